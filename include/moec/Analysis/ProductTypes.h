//===- ProductTypes.h - what a product multiplies and scales ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A quantized operand has one type in memory, another one where it is
// multiplied, and scales that meet the sums at some time. Schedules of GPUs,
// their costs and their code ask here which.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_PRODUCTTYPES_H
#define MOEC_ANALYSIS_PRODUCTTYPES_H

#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// The type that both operands of a multiplication have: rates go by it.
enum class ComputeType { F32, BF16, F16, E4M3 };

/// Of two operands that are decoded to the type of the layer: that of the one
/// that is not quantized, or f16, which holds e4m3 exactly, where both are.
ComputeType getDecodedType(tile::ContractOp op);
/// The same as a type of MLIR; e4m3 as it is in memory.
mlir::Type getType(mlir::MLIRContext *context, ComputeType type);
inline bool isFloat8(ComputeType type) { return type == ComputeType::E4M3; }

/// When an operand's scales are multiplied.
enum class ScaleTime {
  /// There are none.
  Never,
  /// A row has several: with the sums of the elements that share one, inside
  /// the loop over contracted elements.
  InLoop,
  /// One is that of a whole row: with the sums of all elements.
  InEpilogue
};

ScaleTime getScaleTime(moe::QuantAttr quant);

/// That of both operands.
struct ScaleTimes {
  explicit ScaleTimes(tile::ContractOp op)
      : input(getScaleTime(op.getInputQuantAttr())),
        weight(getScaleTime(op.getWeightQuantAttr())) {}

  ScaleTime input, weight;

  bool areInLoop() const {
    return input == ScaleTime::InLoop || weight == ScaleTime::InLoop;
  }
  bool areInEpilogue() const {
    return input == ScaleTime::InEpilogue || weight == ScaleTime::InEpilogue;
  }
};

/// Whether tensor cores that know e4m3 multiply two operands as they are in
/// memory: both are e4m3 with f32 scales of whole rows, or block fp8.
bool areFloat8Products(moe::QuantAttr input, moe::QuantAttr weight);
/// What `areFloat8Products` accepts, in words.
std::string describeFloat8Products();

/// Whether GPUs decode an operand (null: it is not quantized): e4m3 with f32
/// scales, of a whole row or of a multiple of `kDecodedColumns` neighbours.
bool isDecodedOnGpu(moe::QuantAttr quant);
/// Contracted elements that code for GPUs decodes at once.
inline constexpr int64_t kDecodedColumns = 32;
/// What `isDecodedOnGpu` accepts, in words.
std::string describeDecodedOnGpu();

} // namespace moec

#endif // MOEC_ANALYSIS_PRODUCTTYPES_H
