//===- ProductTypes.cpp - what a product multiplies and scales --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/ProductTypes.h"

#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"

using namespace mlir;
using namespace moec;

static ComputeType toComputeType(Type element) {
  if (element.isBF16())
    return ComputeType::BF16;
  return element.isF16() ? ComputeType::F16 : ComputeType::F32;
}

ComputeType moec::getDecodedType(tile::GemmOp op) {
  for (auto [operand, quant] :
       {std::pair<Value, moe::QuantAttr>{op.getInput(), op.getInputQuantAttr()},
        {op.getWeight(), op.getWeightQuantAttr()}})
    if (!quant || moe::areKeptAsBF16(quant))
      return toComputeType(
          cast<MemRefType>(operand.getType()).getElementType());
  return ComputeType::F16;
}

ComputeType moec::getNativeType(tile::GemmOp op) {
  moe::QuantAttr input = op.getInputQuantAttr();
  if (moe::areKeptAsBF16(input))
    return ComputeType::BF16;
  return input.getStorage().isInteger(8) ? ComputeType::Int8
                                         : ComputeType::E4M3;
}

Type moec::getType(MLIRContext *context, ComputeType type) {
  switch (type) {
  case ComputeType::F32:
    return Float32Type::get(context);
  case ComputeType::BF16:
    return BFloat16Type::get(context);
  case ComputeType::F16:
    return Float16Type::get(context);
  case ComputeType::E4M3:
    return Float8E4M3FNType::get(context);
  case ComputeType::Int8:
    return IntegerType::get(context, 8);
  }
  llvm_unreachable("all types are handled");
}

Elements moec::getElements(moe::QuantAttr quant) {
  if (!quant || moe::areKeptAsBF16(quant))
    return Elements::Plain;
  if (isa<Float8E4M3FNType>(quant.getStorage()))
    return Elements::E4M3;
  if (isa<Float4E2M1FNType>(quant.getStorage()))
    return Elements::E2M1;
  if (moe::isCodeBook(quant.getStorage()))
    return Elements::CodeBook;
  if (quant.getStorage().isInteger(4))
    return quant.getMinimum() ? Elements::UInt4 : Elements::Int4;
  return quant.getZeroPoint() ? Elements::UInt8 : Elements::Int8;
}

bool moec::hasPrepackedLayout(moe::QuantAttr quant) {
  return quant && moe::isPrepacked(quant.getPacking());
}

bool moec::isScaledByRow(moe::QuantAttr quant) {
  return !quant || (hasPlainScales(quant) &&
                    moe::getScaleGroup(quant).columns == moe::ScaleGroup::kAll);
}

/// 4-bit elements are decoded for two mmas at once.
static int64_t getLeastColumns(moe::QuantAttr quant) {
  constexpr int64_t byteBits = 8;
  return moe::getStorageBits(quant) == byteBits ? kProductColumns
                                                : kDecodedColumns;
}

ScaleTime moec::getScaleTime(moe::QuantAttr quant) {
  static_assert(moe::ScaleGroup::kAll % kDecodedColumns == 0);
  if (!quant)
    return ScaleTime::Never;
  if (hasPrepackedLayout(quant))
    return ScaleTime::InEpilogue;
  int64_t columns = moe::getScaleGroup(quant).columns;
  if (columns == moe::ScaleGroup::kAll)
    return ScaleTime::InEpilogue;
  return columns % getLeastColumns(quant) ? ScaleTime::OnElements
                                          : ScaleTime::InLoop;
}

bool moec::hasPlainScales(moe::QuantAttr quant) {
  return quant.getScale().isF32() && !moe::hasZeros(quant) &&
         !quant.getSecondScale();
}

/// Whether scales of a weight are converted to f32 as they are loaded.
static bool haveWideScales(moe::QuantAttr weight) {
  return isa<Float32Type, BFloat16Type, Float16Type, Float8E8M0FNUType>(
             weight.getScale()) &&
         !moe::hasZeros(weight) && !weight.getSecondScale();
}

bool moec::areNativeProducts(moe::QuantAttr input, moe::QuantAttr weight,
                             int64_t sizeK) {
  if (!input || !weight || !hasPlainScales(input) || !haveWideScales(weight) ||
      moe::areKeptAsBF16(input) || input.getStorage() != weight.getStorage())
    return false;
  bool areOfRows =
      moe::getCommonColumns(input, weight) == moe::ScaleGroup::kAll;
  if (isa<Float8E4M3FNType>(weight.getStorage()))
    return areOfRows || moe::isBlockFp8(input, weight);
  // A longer sum could reach 2^31.
  constexpr int64_t least = -128, end = (int64_t(1) << 31) / (least * least);
  return weight.getStorage().isInteger(8) && areOfRows && sizeK < end;
}

std::string moec::describeNativeProducts() {
  return "f8E4M3FN or i8 for both operands with one scale per row; f8E4M3FN "
         "with weights in blocks of [128, 128] and inputs in groups of [1, "
         "128], f32 input scales, and weight scales of f32, bf16, f16 or "
         "f8E8M0FNU";
}

/// Whether each row has a scale per `kScaledColumns` neighbours.
static bool isInScaledGroups(moe::QuantAttr quant) {
  moe::ScaleGroup group = moe::getScaleGroup(quant);
  return group.rows == 1 && group.columns == kScaledColumns &&
         !moe::hasZeros(quant) && !quant.getSecondScale();
}

bool moec::areBlockScaledProducts(moe::QuantAttr input, moe::QuantAttr weight,
                                  int64_t sizeK) {
  return input && weight && isInScaledGroups(input) &&
         isInScaledGroups(weight) &&
         isa<Float8E4M3FNType>(input.getStorage()) &&
         input.getScale().isF32() && input.getPowerOfTwo() &&
         isa<Float8E4M3FNType, Float4E2M1FNType>(weight.getStorage()) &&
         isa<Float8E8M0FNUType>(weight.getScale()) && sizeK % kScaledStep == 0;
}

std::string moec::describeBlockScaledProducts() {
  return "f8E4M3FN inputs with f8E4M3FN or f4E2M1FN weights in groups of [1, " +
         std::to_string(kScaledColumns) +
         "], f8E8M0FNU weight scales and dynamic power-of-two input scales, in "
         "rows of multiples of " +
         std::to_string(kScaledStep);
}

/// Whether `getElements` supports the elements.
static bool areKnown(moe::QuantAttr quant) {
  return !isa<Float8E5M2Type>(quant.getStorage()) &&
         moe::getStorageBits(quant) == getElementBits(getElements(quant));
}

bool moec::isWeightDecodedOnGpu(moe::QuantAttr quant) {
  if (!quant)
    return true;
  if (!areKnown(quant) || hasPrepackedLayout(quant))
    return false;
  if (getScaleTime(quant) != ScaleTime::OnElements)
    return true;
  constexpr int64_t few = 16;
  return getElements(quant) == Elements::E2M1 &&
         isa<Float8E4M3FNType>(quant.getScale()) &&
         moe::getScaleGroup(quant).columns == few;
}

bool moec::isInputDecodedOnGpu(moe::QuantAttr quant) {
  if (!quant)
    return true;
  Elements elements = getElements(quant);
  return areKnown(quant) &&
         moe::getScaleGroup(quant).columns % kDecodedColumns == 0 &&
         (elements == Elements::E4M3 || elements == Elements::Int8);
}

static std::string describeScales() {
  return "with scales per row or in groups of a multiple of " +
         std::to_string(kDecodedColumns);
}

std::string moec::describeWeightDecodedOnGpu() {
  std::string few = std::to_string(kProductColumns);
  return "f8E4M3FN or i8, or f4E2M1FN, code books or i4 in pairs, " +
         describeScales() + " (groups of " + few +
         " for 8-bit weights and for f4E2M1FN with f8E4M3FN scales)";
}

std::string moec::describeInputDecodedOnGpu() {
  return "f8E4M3FN or i8 " + describeScales();
}
