//===- GemmOperands.h - where a product's operands lie ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_KERNELBUILDER_GEMMOPERANDS_H
#define MOEC_LIB_KERNELBUILDER_GEMMOPERANDS_H

#include "KernelEmitter.h"

#include "moec/Dialect/Moe/QuantLayout.h"

namespace moec {

/// The weight row of a result column (index). Projection 0 is the gate, or the
/// only one without a layout; projection 1 is up.
inline Index getWeightRow(KernelEmitter &emitter, tile::GemmOp op,
                          int64_t projection, mlir::Value resultColumn) {
  Index column(emitter.b, resultColumn);
  if (!op.getLayout())
    return column;
  int64_t columns = getColumns(op.getResult());
  switch (op.getLayoutAttr().getOrder()) {
  case moe::GateUpOrder::GateUp:
    return column + projection * columns;
  case moe::GateUpOrder::UpGate:
    return column + (1 - projection) * columns;
  case moe::GateUpOrder::Interleaved:
    return column * 2 + projection;
  }
  llvm_unreachable("all orders are handled");
}

/// The row of scales of a weight row: `moe::getScaleRow` in index arithmetic.
inline Index getScaleRow(KernelEmitter &emitter, tile::GemmOp op,
                         int64_t projection, mlir::Value column) {
  int64_t group = moe::getScaleGroup(op.getWeightQuantAttr()).rows;
  auto inside = [&](Index row) {
    return group == moe::ScaleGroup::kAll ? emitter.index(0) : row / group;
  };
  moe::WeightLayoutAttr layout = op.getLayoutAttr();
  if (!layout || layout.getOrder() == moe::GateUpOrder::Interleaved)
    return inside(getWeightRow(emitter, op, projection, column));
  int64_t half = layout.getOrder() == moe::GateUpOrder::GateUp ? projection
                                                               : 1 - projection;
  int64_t rows =
      moe::getNumScaleRows(op.getWeightQuantAttr(), getColumns(op.getResult()));
  return inside({emitter.b, column}) + half * rows;
}

/// A row operand's value for a row (index), as f32.
inline F32 loadRowOperand(KernelEmitter &emitter, mlir::Value operand,
                          mlir::Value row) {
  mlir::Value numbers = emitter.operand(operand);
  if (!getElementType(numbers).isInteger())
    return emitter.loadF32(numbers, {row, emitter.index(0)});
  return select(emitter.loadFlag(numbers, row), emitter.f32(1), 0);
}

/// The scale of a whole input row (index), as f32: its own, or the one that all
/// rows share.
inline F32 loadInputScale(KernelEmitter &emitter, tile::GemmOp op,
                          mlir::Value row) {
  mlir::Value scales = emitter.operand(op.getInputScale());
  Index zero = emitter.index(0);
  if (mlir::cast<mlir::MemRefType>(scales.getType()).getRank() == 1)
    return emitter.loadF32(scales, zero);
  return emitter.loadF32(scales, {row, zero});
}

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_GEMMOPERANDS_H
