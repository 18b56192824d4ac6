//===- Cpu.h - what configs and kernels of the CPU share --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_CPU_H
#define MOEC_ANALYSIS_CPU_H

#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Tile/Tile.h"

#include <numeric>

namespace moec::cpu {

/// Whether a gemm's operands are decoded to f32 before they are multiplied.
inline bool decodesOperands(tile::ContractOp op) {
  return op.getInputQuantAttr() || op.getWeightQuantAttr();
}

/// Elements along K that are decoded at once: few enough that either operand
/// has one scale for all of a row's.
inline int64_t getDecodedColumns(tile::ContractOp op) {
  constexpr int64_t most = 128;
  return std::gcd(most, moe::getCommonColumns(op.getInputQuantAttr(),
                                              op.getWeightQuantAttr()));
}

} // namespace moec::cpu

#endif // MOEC_ANALYSIS_CPU_H
