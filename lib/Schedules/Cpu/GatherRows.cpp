//===- GatherRows.cpp - the schedule cpu.gather_rows ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns some positions, or tokens, which it copies element by element;
// LLVM vectorizes this.

#include "Emit.h"
#include "KernelBuilder/GroupColumns.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitGatherRows(tile::GatherRowsOp op,
                                   KernelEmitter &emitter) {
  auto config = requireConfig<tile::CpuGatherRowsAttr>(op, op.getConfigAttr());
  if (failed(config) ||
      failed(requirePositive(op, "rows_per_cta", config->getRowsPerCta())))
    return failure();
  ImplicitLocOpBuilder &b = emitter.b;
  Value offsets = emitter.operand(op.getOffsets());
  Index begin = emitter.cta() * config->getRowsPerCta();
  Index end = begin + config->getRowsPerCta();
  Index count = emitter.tokens();
  if (offsets) {
    int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    count = emitter.loadIndex(offsets, emitter.index(groups));
  }
  emitter.loop(begin, min(end, count), 1, [&](Index row) {
    Index source = row;
    if (Value rows = emitter.operand(op.getSource()))
      source = emitter.loadIndex(rows, row);
    Value columns = emitter.operand(op.getColumns());
    Index group;
    if (columns)
      group = offsets ? findGroup(emitter, offsets, row) : emitter.index(0);
    for (auto [input, result] : llvm::zip(op.getInputs(), op.getResults())) {
      Value from = emitter.operand(input), to = emitter.operand(result);
      int64_t width = cast<MemRefType>(from.getType()).getDimSize(1);
      emitter.loop(
          emitter.index(0), emitter.index(width), 1, [&](Index column) {
            Index read = column;
            if (columns)
              read = toColumn(emitter,
                              emitter.loadI32(columns, {group, column}), width);
            Value element =
                memref::LoadOp::create(b, from, ValueRange{source, read});
            memref::StoreOp::create(b, element, to, ValueRange{row, column});
          });
    }
  });
  return success();
}
