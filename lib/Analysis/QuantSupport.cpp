//===- QuantSupport.cpp - which quantizations targets multiply --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/QuantSupport.h"

#include "moec/Analysis/ProductTypes.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace moec;

static std::string show(moe::QuantAttr quant) {
  if (!quant)
    return "as it is";
  std::string text;
  llvm::raw_string_ostream(text) << quant;
  return text;
}

/// What every target decodes: one byte per element, and its scale.
static bool isDecoded(moe::QuantAttr quant) {
  return !quant || (isa<Float8E4M3FNType>(quant.getStorage()) &&
                    quant.getScale().isF32() && !quant.getZeroPoint());
}

std::string moec::declineProduct(const Target &target, moe::QuantAttr input,
                                 moe::QuantAttr weight) {
  std::string what = "an input quantized " + show(input) +
                     " with a weight quantized " + show(weight) +
                     " is not multiplied on target " + target.name;
  if (target.isGpu()) {
    if (isDecodedOnGpu(input) && isDecodedOnGpu(weight))
      return {};
    return what + "; " + describeDecodedOnGpu() +
           " is, and target cpu multiplies other groups too";
  }
  if (isDecoded(input) && isDecoded(weight))
    return {};
  return what + "; f8E4M3FN with f32 scales of any granularity is, and weights "
                "of the layer's type";
}

std::string moec::declineQuantize(const Target &target, moe::QuantAttr quant) {
  constexpr int64_t neighbours = 128;
  int64_t columns = moe::getScaleGroup(quant).columns;
  if (!target.isGpu() || columns == neighbours ||
      columns == moe::ScaleGroup::kAll)
    return {};
  return "rows are not quantized " + show(quant) + " on target " + target.name +
         "; groups of [1, 128] and whole rows are";
}
