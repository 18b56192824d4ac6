//===- GatherReduce.cpp - the schedule cpu.gather_reduce --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns `rows` tokens. Columns run in tiles of `n` (`lanes` if 0), each
// held in registers while the token's rows are added to it in order of j.

#include "../Emission/GatherReduce.h"
#include "Emit.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitGatherReduce(tile::GatherReduceOp op,
                                     KernelEmitter &emitter) {
  auto config = requireConfig(op, op.getConfigAttr(), "cpu.gather_reduce");
  if (failed(config) ||
      failed(requirePositive(op, "rows", config->getRows())) ||
      failed(requireLanes(op, config->getLanes())))
    return failure();
  int64_t lanes = config->getLanes();
  int64_t tile = config->getN() ? config->getN() : lanes;
  if (tile % lanes)
    return op.emitOpError("has a config whose n = ")
           << tile << " is not a multiple of lanes = " << lanes;

  GatherReduce reduce(op, emitter, lanes);
  Value result = emitter.operand(op.getResult());
  int64_t columns = cast<MemRefType>(result.getType()).getDimSize(1);
  Value begin = emitter.index(0);
  Value tiled = emitter.index(columns - columns % tile);
  Value end = emitter.index(columns);

  RowRange range = emitter.rowsOfCta(config->getRows());
  Value valid = emitter.validTokens(op.getNumValidTokens());
  emitter.forLoop(
      range.begin, emitter.min(range.end, valid), 1, [&](Value token) {
        emitter.forLoop(begin, tiled, tile, [&](Value column) {
          reduce.emitColumns(token, column, tile / lanes, {});
        });
        if (columns % tile)
          emitter.forColumns(tiled, end, lanes, columns % tile,
                             [&](Value column, Value mask) {
                               reduce.emitColumns(token, column, 1, mask);
                             });
      });
  if (op.getNumValidTokens())
    emitter.storeZeros(result, {emitter.max(range.begin, valid), range.end},
                       {begin, end}, lanes, columns);
  return success();
}
