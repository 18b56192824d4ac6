//===- ProductTypes.h - types and scales of a gemm's operands ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Types and scales of quantized operands: the stored type, the type that is
// multiplied, and when scales are applied. Used by GPU schedules, their costs
// and their code.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_PRODUCTTYPES_H
#define MOEC_SCHEDULES_PRODUCTTYPES_H

#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// The type of both operands of a multiplication, which determines the rate.
enum class ComputeType { F32, BF16, F16, E4M3, Int8 };

/// The type that decoded operands get: that of the operand that is not
/// quantized or, if both are, f16, which holds e4m3 exactly.
ComputeType getDecodedType(tile::GemmOp op);
/// The stored type of a quantized input that tensor cores multiply natively.
ComputeType getNativeType(tile::GemmOp op);
/// The MLIR type of a compute type; e4m3 and int8 as stored.
mlir::Type getType(mlir::MLIRContext *context, ComputeType type);
/// Whether elements have 8 bits.
inline bool areBytes(ComputeType type) {
  return type == ComputeType::E4M3 || type == ComputeType::Int8;
}

/// Stored elements of an operand on GPUs: elements of the compute type
/// (`Plain`, which includes values dequantized to bf16), or quantized values to
/// decode.
enum class Elements { Plain, E4M3, E2M1, CodeBook, Int4, UInt4, Int8, UInt8 };

Elements getElements(moe::QuantAttr quant);
/// Bits of a stored element.
inline int64_t getElementBits(Elements elements) {
  switch (elements) {
  case Elements::E2M1:
  case Elements::CodeBook:
  case Elements::Int4:
  case Elements::UInt4:
    return 4;
  default:
    return 8;
  }
}
/// Offset that is subtracted from unsigned integers before they are multiplied,
/// so that one decoder serves elements with and without zero points; zero
/// points are reduced by the offset too. `UInt4` is for weights with minima.
constexpr int64_t getOffset(Elements elements) {
  if (elements == Elements::Int4)
    return 8;
  return elements == Elements::UInt8 ? 128 : 0;
}

/// When an operand's scales are applied.
enum class ScaleTime {
  /// No scales.
  Never,
  /// Several per row, each for fewer elements than the K of an mma: applied to
  /// each element before it is multiplied.
  OnElements,
  /// Several per row: applied to partial sums inside the loop over K.
  InLoop,
  /// One per row: applied to the final sums.
  InEpilogue
};

ScaleTime getScaleTime(moe::QuantAttr quant);

/// Whether a weight is prepacked (null: not quantized). Scales of groups are
/// then applied to elements as they are decoded, and those of rows (the second
/// ones) to the final sums.
bool hasPrepackedLayout(moe::QuantAttr quant);

/// Whether an operand is not quantized, or is e4m3 or int8 (perhaps dequantized
/// to bf16) with f32 scales of whole rows.
bool isScaledByRow(moe::QuantAttr quant);

/// Scale times of both operands.
struct ScaleTimes {
  explicit ScaleTimes(tile::GemmOp op)
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

/// Whether elements are the stored values times an f32 scale: no zero point and
/// no second scale.
bool hasPlainScales(moe::QuantAttr quant);

/// Whether tensor cores with e4m3 and int8 multiply the two stored operands
/// natively, for K = `sizeK`: both e4m3 or int8 with scales of whole rows, or
/// block fp8. int8 accumulates in 32 bits. Scales of weights may be of any type
/// that f32 holds exactly.
bool areNativeProducts(moe::QuantAttr input, moe::QuantAttr weight,
                       int64_t sizeK);
/// Describes the operands that `areNativeProducts` accepts.
std::string describeNativeProducts();

/// Whether tensor cores with block scaling multiply the two stored operands
/// natively, for K = `sizeK`: inputs of e4m3 and weights of e4m3 or e2m1 in
/// groups of 32 neighbours, with 8-bit scales of weights (e8m0), scales of
/// inputs that are powers of two, and K a multiple of the k tile.
bool areBlockScaledProducts(moe::QuantAttr input, moe::QuantAttr weight,
                            int64_t sizeK);
/// Block-scaled gemms: elements along K per scale, and per k tile.
inline constexpr int64_t kScaledColumns = 32, kScaledStep = 128;
/// Describes the operands that `areBlockScaledProducts` accepts.
std::string describeBlockScaledProducts();

/// Whether GPUs decode a weight (null: not quantized): any elements but e5m2,
/// with scales of a whole row or of a multiple of `kDecodedColumns` neighbours
/// (of `kProductColumns` for 8-bit elements), or e2m1 with e4m3 scales of 16,
/// whose products with elements 16 bits hold exactly.
bool isWeightDecodedOnGpu(moe::QuantAttr quant);
/// Whether GPUs decode an input: e4m3 or int8, with scales of a whole row or of
/// a multiple of `kDecodedColumns`.
bool isInputDecodedOnGpu(moe::QuantAttr quant);
/// Elements along K that GPU code decodes at once, for two mmas; elements of
/// one mma, which are neighbours if weights have 8 bits.
inline constexpr int64_t kDecodedColumns = 32, kProductColumns = 16;
/// Whether a scale that a GPU computes may be that of `columns` neighbours,
/// which some lanes of a warp hold.
constexpr bool areSharedByLanes(int64_t columns) {
  return columns == 32 || columns == 64 || columns == 128;
}
/// Describe the operands that the two predicates accept.
std::string describeWeightDecodedOnGpu();
std::string describeInputDecodedOnGpu();

} // namespace moec

#endif // MOEC_SCHEDULES_PRODUCTTYPES_H
