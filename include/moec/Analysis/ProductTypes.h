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
enum class ComputeType { F32, BF16, F16, E4M3, Int8 };

/// The type that two operands which are decoded get: that of the one that is
/// not quantized, or f16, which holds e4m3 exactly, where both are.
ComputeType getDecodedType(tile::ContractOp op);
/// The type that a quantized input has in memory, as which tensor cores
/// multiply it.
ComputeType getNativeType(tile::ContractOp op);
/// The same as a type of MLIR; e4m3 and int8 as they are in memory.
mlir::Type getType(mlir::MLIRContext *context, ComputeType type);
/// Whether elements have 8 bits.
inline bool areBytes(ComputeType type) {
  return type == ComputeType::E4M3 || type == ComputeType::Int8;
}

/// What GPUs find of an operand in memory: elements of the compute type
/// (`Plain`), codes that are kept as bf16 among them, or those that they
/// decode.
enum class Elements { Plain, E4M3, E2M1, CodeBook, Int4, UInt4, Int8, UInt8 };

Elements getElements(moe::QuantAttr quant);
/// Bits of an element that is decoded.
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
/// What is subtracted of integers that have no sign in memory before they are
/// multiplied, so that one decoder serves them with zero points and without: a
/// zero point is less by as much. `UInt4` is of weights with minima.
constexpr int64_t getOffset(Elements elements) {
  if (elements == Elements::Int4)
    return 8;
  return elements == Elements::UInt8 ? 128 : 0;
}

/// When an operand's scales are multiplied.
enum class ScaleTime {
  /// There are none.
  Never,
  /// A row has several, of fewer elements than a product of tensor cores has:
  /// with each element, before it is multiplied.
  OnElements,
  /// A row has several: with the sums of the elements that share one, inside
  /// the loop over contracted elements.
  InLoop,
  /// One is that of a whole row: with the sums of all elements.
  InEpilogue
};

ScaleTime getScaleTime(moe::QuantAttr quant);

/// Whether a weight (null: it is not quantized) is in the order of tensor
/// cores: scales of groups then meet elements on their way to registers, and
/// those of rows, the second ones, sums of all elements.
bool hasFragments(moe::QuantAttr quant);

/// Whether an operand is as it is, or e4m3 or int8, perhaps kept as bf16, with
/// f32 scales of whole rows.
bool isScaledByRow(moe::QuantAttr quant);

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

/// Whether codes stand for themselves times an f32 scale: no zero point and no
/// second scale.
bool hasPlainScales(moe::QuantAttr quant);

/// Whether tensor cores that know e4m3 and int8 multiply two operands of
/// `depth` contracted elements as they are in memory: both are e4m3 or int8
/// with scales of whole rows, or block fp8. Sums of int8 have 32 bits. Scales
/// of weights may be what an f32 has exactly.
bool areNativeProducts(moe::QuantAttr input, moe::QuantAttr weight,
                       int64_t depth);
/// What `areNativeProducts` accepts, in words.
std::string describeNativeProducts();

/// Whether tensor cores that scale blocks as they multiply take two operands of
/// `depth` contracted elements as they are in memory: inputs of e4m3 and
/// weights of e4m3 or e2m1 in groups of 32 neighbours, with scales of weights
/// of 8 bits (e8m0) and scales of inputs that are powers of two, and rows of
/// whole steps.
bool areBlockScaledProducts(moe::QuantAttr input, moe::QuantAttr weight,
                            int64_t depth);
/// Contracted elements that share a scale there, and those of a step.
inline constexpr int64_t kScaledColumns = 32, kScaledStep = 128;
/// What `areBlockScaledProducts` accepts, in words.
std::string describeBlockScaledProducts();

/// Whether GPUs decode a weight (null: it is not quantized): any elements but
/// e5m2, with scales of a whole row or of a multiple of `kDecodedColumns`
/// neighbours, of `kProductColumns` where elements have 8 bits, or e2m1 with
/// e4m3 scales of 16, which 16 bits hold the products of exactly.
bool isWeightDecodedOnGpu(moe::QuantAttr quant);
/// The same of an input: e4m3 or int8, with scales of a whole row or of a
/// multiple of `kDecodedColumns`.
bool isInputDecodedOnGpu(moe::QuantAttr quant);
/// Contracted elements that code for GPUs decodes at once, for two products of
/// tensor cores; those of one product, which are neighbours where elements of
/// weights have 8 bits.
inline constexpr int64_t kDecodedColumns = 32, kProductColumns = 16;
/// What the two accept, in words.
std::string describeWeightDecodedOnGpu();
std::string describeInputDecodedOnGpu();

} // namespace moec

#endif // MOEC_ANALYSIS_PRODUCTTYPES_H
