//===- ProductTypes.cpp - what a product multiplies and scales --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/ProductTypes.h"

using namespace mlir;
using namespace moec;

static ComputeType toComputeType(Type element) {
  if (isa<Float8E4M3FNType>(element))
    return ComputeType::E4M3;
  if (element.isBF16())
    return ComputeType::BF16;
  return element.isF16() ? ComputeType::F16 : ComputeType::F32;
}

ComputeType moec::getDecodedType(tile::ContractOp op) {
  for (Value operand : {op.getInput(), op.getWeight()}) {
    ComputeType type =
        toComputeType(cast<MemRefType>(operand.getType()).getElementType());
    if (!isFloat8(type))
      return type;
  }
  return ComputeType::F16;
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
  }
  llvm_unreachable("all types are handled");
}

ScaleTime moec::getScaleTime(moe::QuantAttr quant) {
  if (!quant)
    return ScaleTime::Never;
  return moe::getScaleGroup(quant).columns == moe::ScaleGroup::kAll
             ? ScaleTime::InEpilogue
             : ScaleTime::InLoop;
}

/// e4m3 with scales that are multiplied as they are.
static bool isPlainFloat8(moe::QuantAttr quant) {
  return quant && isa<Float8E4M3FNType>(quant.getStorage()) &&
         quant.getScale().isF32() && !quant.getZeroPoint() &&
         !quant.getSecondScale();
}

bool moec::areFloat8Products(moe::QuantAttr input, moe::QuantAttr weight) {
  return isPlainFloat8(input) && isPlainFloat8(weight) &&
         (moe::isBlockFp8(input, weight) ||
          moe::getCommonColumns(input, weight) == moe::ScaleGroup::kAll);
}

std::string moec::describeFloat8Products() {
  return "f8E4M3FN of both operands with f32 scales of whole rows, or of "
         "weights in blocks of [128, 128] and inputs in groups of [1, 128]";
}

bool moec::isDecodedOnGpu(moe::QuantAttr quant) {
  static_assert(moe::ScaleGroup::kAll % kDecodedColumns == 0);
  return !quant || (isPlainFloat8(quant) &&
                    moe::getScaleGroup(quant).columns % kDecodedColumns == 0);
}

std::string moec::describeDecodedOnGpu() {
  return "f8E4M3FN with f32 scales of whole rows, or of multiples of " +
         std::to_string(kDecodedColumns) + " neighbours";
}
