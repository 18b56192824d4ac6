//===- RowMap.cpp - the schedule cpu.row_map --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns some rows; columns run in vectors of `lanes`.

#include "Emit.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitRowMap(tile::RowMapOp op, KernelEmitter &emitter) {
  auto config = requireConfig<tile::CpuRowMapAttr>(op, op.getConfigAttr());
  if (failed(config) ||
      failed(requirePositive(op, "rows_per_cta", config->getRowsPerCta())) ||
      failed(requireLanes(op, config->getLanes())))
    return failure();
  int64_t lanes = config->getLanes();
  Value input = emitter.operand(op.getInput());
  Value result = emitter.operand(op.getResult());
  int64_t columns = cast<MemRefType>(result.getType()).getDimSize(1);

  LogicalResult status = success();
  RowRange range = emitter.rowsOfCta(config->getRowsPerCta());
  Index zero = emitter.index(0);
  Index valid = emitter.validTokens(op.getNumValidTokens());
  emitter.loop(range.begin, min(range.end, valid), 1, [&](Index row) {
    SmallVector<Value> args(1);
    for (Value operand : op.getRowOperands())
      args.push_back(emitter.splat(
          emitter.loadF32(emitter.operand(operand), {row, zero}), lanes));
    emitter.forColumns(
        zero, emitter.index(columns), lanes, columns,
        [&](Index column, Flag mask) {
          args[0] = emitter.loadVector(input, {row, column}, lanes, mask);
          SmallVector<Value> all(args);
          for (Value operand : op.getElementwiseOperands())
            all.push_back(emitter.loadVector(emitter.operand(operand),
                                             {row, column}, lanes, mask));
          FailureOr<Value> value = emitter.inlineRegion(op.getBody(), all);
          if (failed(value))
            status = failure();
          else
            emitter.storeVector(*value, result, {row, column}, mask);
        });
  });
  if (op.getNumValidTokens())
    emitter.storeZeros(result, {max(range.begin, valid), range.end},
                       {zero, emitter.index(columns)}, lanes, columns);
  return status;
}
