//===- GatherRows.cpp - the schedule cpu.gather_rows ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns some positions, or tokens, which it copies element by element;
// LLVM vectorizes this.

#include "../Emission/GroupColumns.h"
#include "Emit.h"

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
  Value begin = emitter.mul(emitter.cta(), config->getRowsPerCta());
  Value end = emitter.add(begin, config->getRowsPerCta());
  Value count = emitter.tokens();
  if (offsets) {
    int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    count = emitter.loadIndex(offsets, emitter.index(groups));
  }
  emitter.forLoop(begin, emitter.min(end, count), 1, [&](Value row) {
    Value source = row;
    if (Value rows = emitter.operand(op.getSource()))
      source = emitter.loadIndex(rows, ValueRange{row});
    Value columns = emitter.operand(op.getColumns()), group;
    if (columns)
      group = offsets ? findGroup(emitter, offsets, row) : emitter.index(0);
    for (auto [input, result] : llvm::zip(op.getInputs(), op.getResults())) {
      Value from = emitter.operand(input), to = emitter.operand(result);
      int64_t width = cast<MemRefType>(from.getType()).getDimSize(1);
      emitter.forLoop(
          emitter.index(0), emitter.index(width), 1, [&](Value column) {
            Value read = column;
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
