//===- Shape.h - what configs and kernels of the CPU share ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_CPU_SHAPE_H
#define MOEC_LIB_SCHEDULES_CPU_SHAPE_H

#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Tile/Tile.h"

#include <numeric>

namespace moec::cpu {

/// Whether a gemm's operands are decoded to f32 before they are multiplied.
inline bool decodesOperands(tile::GemmOp op) {
  return op.getInputQuantAttr() || op.getWeightQuantAttr();
}

/// Elements along K that are decoded at once: few enough that either operand
/// has one scale for all of a row's.
inline int64_t getDecodedColumns(tile::GemmOp op) {
  constexpr int64_t most = 128;
  return std::gcd(most, moe::getCommonColumns(op.getInputQuantAttr(),
                                              op.getWeightQuantAttr()));
}

/// Adjacent elements of a row that a lane of a vector sums, one after the
/// other.
inline int64_t getLaneElements(mlir::Type element) {
  return element.isBF16() ? 2 : element.isInteger(8) ? 4 : 1;
}

} // namespace moec::cpu

#endif // MOEC_LIB_SCHEDULES_CPU_SHAPE_H
