//===- QuantSupport.cpp - which quantizations targets multiply --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Table of supported operands: a row per architecture and kind of operands. All
// others are refused, with a message made from the rows that exist.
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/QuantSupport.h"

#include "mlir/IR/TypeUtilities.h"
#include "moec/Analysis/ProductTypes.h"
#include "moec/Dialect/Moe/Fragments.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace moec;

namespace {

//===----------------------------------------------------------------------===//
// Kinds of operands
//===----------------------------------------------------------------------===//

/// Types of quantized rows: e4m3, or int8 symmetric about 0.
bool areCodesOfRows(moe::QuantAttr quant) {
  Type storage = quant.getStorage();
  return (isa<Float8E4M3FNType>(storage) || storage.isInteger(8)) &&
         hasPlainScales(quant) && !moe::areKeptAsBF16(quant);
}

/// One or both operands quantized with any granularity, except groups smaller
/// than a vector, which has at most 16 elements.
bool areDecodedOnCpu(const QuantProduct &product) {
  constexpr int64_t lanes = 16;
  auto [input, weight] = std::pair(product.input, product.weight);
  return (!input || areCodesOfRows(input)) &&
         (!weight || !isa<Float8E5M2Type>(weight.getStorage())) &&
         moe::getCommonColumns(input, weight) % lanes == 0;
}

/// e4m3 or int8 with one scale per row, or e4m3 with scales of neighbours.
bool isQuantizedOnGpu(moe::QuantAttr quant) {
  int64_t columns = moe::getScaleGroup(quant).columns;
  return areCodesOfRows(quant) && (columns == moe::ScaleGroup::kAll ||
                                   (areSharedByLanes(columns) &&
                                    isa<Float8E4M3FNType>(quant.getStorage())));
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

struct ProductCapability {
  Architecture architecture;
  bool (*holds)(const QuantProduct &product);
  moe::Way way;
  StringLiteral reason;
  /// Text for messages.
  StringLiteral operands;
};

/// One or both operands are decoded; rows are multiples of the 4-bit elements
/// that are decoded at once.
bool areDecoded(const QuantProduct &product) {
  moe::QuantAttr weight = product.weight;
  bool arePairs = weight && moe::getStorageBits(weight) == 4;
  return isInputDecodedOnGpu(product.input) && isWeightDecodedOnGpu(weight) &&
         (!arePairs || product.depth % kDecodedColumns == 0);
}

bool areNative(const QuantProduct &product) {
  return areNativeProducts(product.input, product.weight, product.depth);
}

bool areBlockScaled(const QuantProduct &product) {
  return areBlockScaledProducts(product.input, product.weight, product.depth);
}

/// Prepackable: weights of 4 or 8 bits in whole packed tiles, with inputs of
/// bf16 or f16, or of 4 bits with inputs of e4m3 that have scales of whole
/// rows.
bool areFragments(const QuantProduct &product) {
  std::optional<moe::Packing> packing =
      moe::Fragments::getPacking(product.inputType);
  return product.weight && packing && isScaledByRow(product.input) &&
         moe::Fragments::whyNot(product.weight, *packing).empty() &&
         moe::Fragments::whyNot(product.rows, product.depth).empty();
}

/// Fragments with inputs of e4m3 that take longer than the same with bf16: of
/// groups of 32 each product is a sum of its own, to be scaled. To make bf16 of
/// them takes longer where a scale is the sum of two, and where codes have 8
/// bits (docs/design/gemm-hopper.md).
bool areSlowByE4M3(const QuantProduct &product) {
  constexpr int64_t ofProduct = 32;
  moe::QuantAttr weight = product.weight;
  return weight.getStorage().isInteger(4) && weight.getScale().isBF16() &&
         moe::getScaleGroup(weight).columns == ofProduct;
}

constexpr StringLiteral kNative =
    "f8E4M3FN or i8 of both operands with scales of whole rows, or f8E4M3FN of "
    "weights in blocks of [128, 128] and of inputs in dynamic groups of "
    "[1, 128], scales of inputs f32 and of weights f32, bf16, f16 or "
    "f8E8M0FNU,";
constexpr StringLiteral kBlockScaled =
    "f8E4M3FN of inputs with f8E4M3FN or f4E2M1FN of weights in groups of [1, "
    "32], scales of weights f8E8M0FNU and of inputs dynamic powers of two, in "
    "rows of multiples of 128,";
constexpr StringLiteral kDecoded =
    "f8E4M3FN or i8 of one operand or both, or i4, f4E2M1FN or code books of "
    "weights with rows of multiples of 32, with scales of whole rows or of "
    "multiples of 32 neighbours, of 16 of weights of 8 bits, or f4E2M1FN with "
    "f8E4M3FN scales of 16,";

constexpr ProductCapability kProducts[] = {
    {Architecture::Cpu, areDecodedOnCpu, moe::Way::Decode,
     "operands become f32 in a near cache",
     "f8E4M3FN, f4E2M1FN, code books, i8 and i4 with scales of any granularity "
     "but groups of other than multiples of 16, or weights of the layer's "
     "type,"},
    {Architecture::Ampere, areDecoded, moe::Way::Decode,
     "tensor cores multiply 16 bits: elements become the other operand's type, "
     "or f16, in registers, exactly",
     kDecoded},
    {Architecture::Hopper, areNative, moe::Way::Native,
     "tensor cores multiply e4m3 and int8", kNative},
    {Architecture::Hopper, areFragments, moe::Way::Repack,
     "once, ahead of all runs, weights are brought into the order in which "
     "tensor cores take them from registers, where they become the input's "
     "type",
     kDecoded},
    {Architecture::Hopper, areDecoded, moe::Way::Decode,
     "elements become the other operand's type, or f16, in registers, exactly",
     kDecoded},
    {Architecture::Blackwell, areBlockScaled, moe::Way::Native,
     "tensor cores scale blocks of 32 elements; not executed here",
     kBlockScaled},
    {Architecture::Blackwell, areDecoded, moe::Way::Decode,
     "tensor cores multiply 16 bits: elements become the other operand's type, "
     "or f16, in registers, exactly",
     kDecoded},
};

struct QuantizeCapability {
  Architecture architecture;
  bool (*holds)(moe::QuantAttr quant);
  StringLiteral rows;
};

constexpr QuantizeCapability kQuantizations[] = {
    {Architecture::Cpu, areCodesOfRows,
     "f8E4M3FN or i8 with f32 scales of any granularity"},
    {Architecture::Ampere, isQuantizedOnGpu,
     "f8E4M3FN of groups of [1, 32], [1, 64], [1, 128] or whole rows, or i8 of "
     "whole rows"},
    {Architecture::Hopper, isQuantizedOnGpu,
     "f8E4M3FN of groups of [1, 32], [1, 64], [1, 128] or whole rows, or i8 of "
     "whole rows"},
    {Architecture::Blackwell, isQuantizedOnGpu,
     "f8E4M3FN of groups of [1, 32], [1, 64], [1, 128] or whole rows, or i8 of "
     "whole rows"},
};

std::string show(moe::QuantAttr quant) {
  if (!quant)
    return "as it is";
  std::string text;
  llvm::raw_string_ostream(text) << quant;
  return text;
}

} // namespace

QuantProduct::QuantProduct(moe::GroupedMatmulOp op)
    : input(op.getInputQuantAttr()), weight(op.getWeightQuantAttr()),
      inputType(getElementTypeOrSelf(op.getInput().getType())),
      layout(op.getLayoutAttr()) {
  auto type = cast<ShapedType>(op.getWeight().getType());
  rows = type.getShape().end()[-2];
  depth = moe::getRowWidth(weight, type.getShape().back());
}

std::optional<ProductWay> moec::findWay(const Target &target,
                                        const QuantProduct &product) {
  for (const ProductCapability &line : kProducts)
    if (line.architecture == target.getArchitecture() && line.holds(product))
      return ProductWay{line.way, line.reason};
  return std::nullopt;
}

StringRef moec::getReason(const Target &target, moe::Way way) {
  for (const ProductCapability &line : kProducts)
    if (line.architecture == target.getArchitecture() && line.way == way)
      return line.reason;
  return {};
}

bool moec::isBetterByBF16(const Target &target, const QuantProduct &product) {
  std::optional<ProductWay> way = findWay(target, product);
  if (!way || !product.input || !areCodesOfRows(product.input))
    return false;
  if (way->way != moe::Way::Decode &&
      (way->way != moe::Way::Repack || !areSlowByE4M3(product)))
    return false;
  moe::QuantAttr numbers = moe::keepAsBF16(product.input);
  if (!numbers)
    return false;
  QuantProduct kept(product);
  kept.input = moe::areTimesScales(numbers) ? moe::QuantAttr() : numbers;
  kept.inputType = moe::getMemoryType(numbers);
  std::optional<ProductWay> other = findWay(target, kept);
  return other && other->way != moe::Way::Decode;
}

StringRef moec::getReasonForBF16() {
  return "tensor cores have no product of these weights and the codes of rows, "
         "or a slower one than by bf16, in which each code is the same number";
}

std::string moec::declineProduct(const Target &target,
                                 const QuantProduct &product) {
  if ((!product.input && !product.weight) || findWay(target, product))
    return {};
  SmallVector<StringRef> known;
  for (const ProductCapability &line : kProducts)
    if (line.architecture == target.getArchitecture() &&
        !llvm::is_contained(known, line.operands))
      known.push_back(line.operands);
  return "an input quantized " + show(product.input) +
         " with a weight quantized " + show(product.weight) + " in rows of " +
         std::to_string(product.depth) + " is not multiplied on target " +
         target.name + "; " + llvm::join(known, " or ") + " is" +
         (target.isGpu() ? ", and target cpu multiplies other granularities too"
                         : "");
}

std::string moec::declineQuantize(const Target &target, moe::QuantAttr quant) {
  SmallVector<StringRef> known;
  for (const QuantizeCapability &line : kQuantizations) {
    if (line.architecture != target.getArchitecture())
      continue;
    if (line.holds(quant))
      return {};
    known.push_back(line.rows);
  }
  return "rows are not quantized " + show(quant) + " on target " + target.name +
         "; " + llvm::join(known, " or ") + " are";
}
