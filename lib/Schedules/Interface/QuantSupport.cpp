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

#include "moec/Schedules/QuantSupport.h"

#include "mlir/IR/TypeUtilities.h"
#include "moec/Dialect/Moe/Prepacking.h"
#include "moec/Schedules/ProductTypes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace moec;

namespace {

//===----------------------------------------------------------------------===//
// Kinds of operands
//===----------------------------------------------------------------------===//

/// Types of quantized rows: e4m3, or int8 symmetric about 0.
bool areQuantizedByRow(moe::QuantAttr quant) {
  Type storage = quant.getStorage();
  return (isa<Float8E4M3FNType>(storage) || storage.isInteger(8)) &&
         hasPlainScales(quant) && !moe::areKeptAsBF16(quant);
}

/// One or both operands quantized with any granularity, except groups smaller
/// than a vector, which has at most 16 elements.
bool areDecodedOnCpu(const QuantProduct &product) {
  constexpr int64_t lanes = 16;
  auto [input, weight] = std::pair(product.input, product.weight);
  return (!input || areQuantizedByRow(input)) &&
         (!weight || !isa<Float8E5M2Type>(weight.getStorage())) &&
         moe::getCommonColumns(input, weight) % lanes == 0;
}

/// e4m3 or int8 with one scale per row, or e4m3 with scales of neighbours.
bool isQuantizedOnGpu(moe::QuantAttr quant) {
  int64_t columns = moe::getScaleGroup(quant).columns;
  return areQuantizedByRow(quant) &&
         (columns == moe::ScaleGroup::kAll ||
          (areSharedByLanes(columns) &&
           isa<Float8E4M3FNType>(quant.getStorage())));
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

struct ProductCapability {
  Architecture architecture;
  bool (*holds)(const QuantProduct &product);
  moe::Strategy strategy;
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
         (!arePairs || product.sizeK % kDecodedColumns == 0);
}

bool areNative(const QuantProduct &product) {
  return areNativeProducts(product.input, product.weight, product.sizeK);
}

bool areBlockScaled(const QuantProduct &product) {
  return areBlockScaledProducts(product.input, product.weight, product.sizeK);
}

/// Prepackable: weights of 4 or 8 bits in whole packed tiles, with inputs of
/// bf16 or f16, or of 4 bits with inputs of e4m3 that have scales of whole
/// rows.
bool arePrepacked(const QuantProduct &product) {
  std::optional<moe::Packing> packing = moe::getPrepacking(product.inputType);
  return product.weight && packing && isScaledByRow(product.input) &&
         moe::whyNotPrepacked(product.weight, *packing).empty() &&
         moe::whyNotPrepacked(product.rows, product.sizeK).empty();
}

/// Prepacked weights with inputs of e4m3 that take longer than the same with
/// bf16: of groups of 32 each product is a sum of its own, to be scaled. To
/// make bf16 of them takes longer where a scale is the sum of two, and where
/// quantized values have 8 bits (docs/design/gemm-hopper.md).
bool areSlowByE4M3(const QuantProduct &product) {
  constexpr int64_t ofProduct = 32;
  moe::QuantAttr weight = product.weight;
  return weight.getStorage().isInteger(4) && weight.getScale().isBF16() &&
         moe::getScaleGroup(weight).columns == ofProduct;
}

constexpr StringLiteral kNative =
    "f8E4M3FN or i8 for both operands with one scale per row; f8E4M3FN with "
    "weights in blocks of [128, 128] and inputs in dynamic groups of [1, 128], "
    "f32 input scales, and weight scales of f32, bf16, f16 or f8E8M0FNU";
constexpr StringLiteral kBlockScaled =
    "f8E4M3FN inputs with f8E4M3FN or f4E2M1FN weights in groups of [1, 32], "
    "f8E8M0FNU weight scales and dynamic power-of-two input scales, in rows of "
    "multiples of 128";
constexpr StringLiteral kDecoded =
    "f8E4M3FN or i8 for either operand or both, or i4, f4E2M1FN or code books "
    "for weights in rows of multiples of 32, with scales per row or in groups "
    "of a multiple of 32 (groups of 16 for 8-bit weights and for f4E2M1FN with "
    "f8E4M3FN scales)";

constexpr ProductCapability kProducts[] = {
    {Architecture::Cpu, areDecodedOnCpu, moe::Strategy::Dequantize,
     "operands are dequantized to f32 in a cache buffer",
     "f8E4M3FN, f4E2M1FN, code books, i8 and i4 with scales of any granularity "
     "except groups that are not multiples of 16, or weights of the layer's "
     "type"},
    {Architecture::Ampere, areDecoded, moe::Strategy::Dequantize,
     "tensor cores multiply 16-bit types: elements are dequantized in "
     "registers, exactly, to the other operand's type or f16",
     kDecoded},
    {Architecture::Hopper, areNative, moe::Strategy::Native,
     "tensor cores multiply e4m3 and int8", kNative},
    {Architecture::Hopper, arePrepacked, moe::Strategy::Prepack,
     "weights are prepacked once, before all runs, in the register order of "
     "tensor cores, and dequantized to the input's type in registers",
     kDecoded},
    {Architecture::Hopper, areDecoded, moe::Strategy::Dequantize,
     "elements are dequantized in registers, exactly, to the other operand's "
     "type or f16",
     kDecoded},
    {Architecture::Blackwell, areBlockScaled, moe::Strategy::Native,
     "tensor cores scale blocks of 32 elements; not yet run on hardware",
     kBlockScaled},
    {Architecture::Blackwell, areDecoded, moe::Strategy::Dequantize,
     "tensor cores multiply 16-bit types: elements are dequantized in "
     "registers, exactly, to the other operand's type or f16",
     kDecoded},
};

struct QuantizeCapability {
  Architecture architecture;
  bool (*holds)(moe::QuantAttr quant);
  StringLiteral rows;
};

constexpr QuantizeCapability kQuantizations[] = {
    {Architecture::Cpu, areQuantizedByRow,
     "f8E4M3FN or i8 with f32 scales of any granularity"},
    {Architecture::Ampere, isQuantizedOnGpu,
     "f8E4M3FN with scales in groups of [1, 32], [1, 64] or [1, 128] or per "
     "row; i8 with scales per row"},
    {Architecture::Hopper, isQuantizedOnGpu,
     "f8E4M3FN with scales in groups of [1, 32], [1, 64] or [1, 128] or per "
     "row; i8 with scales per row"},
    {Architecture::Blackwell, isQuantizedOnGpu,
     "f8E4M3FN with scales in groups of [1, 32], [1, 64] or [1, 128] or per "
     "row; i8 with scales per row"},
};

std::string show(moe::QuantAttr quant) {
  if (!quant)
    return "that is not quantized";
  std::string text;
  llvm::raw_string_ostream(text) << "quantized " << quant;
  return text;
}

} // namespace

QuantProduct::QuantProduct(moe::GroupedMatmulOp op)
    : input(op.getInputQuantAttr()), weight(op.getWeightQuantAttr()),
      inputType(getElementTypeOrSelf(op.getInput().getType())),
      layout(op.getLayoutAttr()) {
  auto type = cast<ShapedType>(op.getWeight().getType());
  rows = type.getShape().end()[-2];
  sizeK = moe::getRowWidth(weight, type.getShape().back());
}

std::optional<ProductStrategy> moec::findStrategy(const Target &target,
                                                  const QuantProduct &product) {
  for (const ProductCapability &line : kProducts)
    if (line.architecture == target.getArchitecture() && line.holds(product))
      return ProductStrategy{line.strategy, line.reason};
  return std::nullopt;
}

StringRef moec::getReason(const Target &target, moe::Strategy strategy) {
  for (const ProductCapability &line : kProducts)
    if (line.architecture == target.getArchitecture() &&
        line.strategy == strategy)
      return line.reason;
  return {};
}

bool moec::isBetterByBF16(const Target &target, const QuantProduct &product) {
  std::optional<ProductStrategy> strategy = findStrategy(target, product);
  if (!strategy || !product.input || !areQuantizedByRow(product.input))
    return false;
  if (strategy->strategy != moe::Strategy::Dequantize &&
      (strategy->strategy != moe::Strategy::Prepack || !areSlowByE4M3(product)))
    return false;
  moe::QuantAttr numbers = moe::keepAsBF16(product.input);
  if (!numbers)
    return false;
  QuantProduct kept(product);
  kept.input = moe::areTimesScales(numbers) ? moe::QuantAttr() : numbers;
  kept.inputType = moe::getMemoryType(numbers);
  std::optional<ProductStrategy> other = findStrategy(target, kept);
  return other && other->strategy != moe::Strategy::Dequantize;
}

StringRef moec::getReasonForBF16() {
  return "tensor cores cannot multiply these weights by the quantized values, "
         "or multiply them faster by bf16, which represents the values exactly";
}

std::string moec::declineProduct(const Target &target,
                                 const QuantProduct &product) {
  if ((!product.input && !product.weight) || findStrategy(target, product))
    return {};
  SmallVector<StringRef> known;
  for (const ProductCapability &line : kProducts)
    if (line.architecture == target.getArchitecture() &&
        !llvm::is_contained(known, line.operands))
      known.push_back(line.operands);
  return "an input " + show(product.input) + " with a weight " +
         show(product.weight) + " and K = " + std::to_string(product.sizeK) +
         " is not supported on target " + target.name + ", which supports " +
         llvm::join(known, "; or ") +
         (target.isGpu() ? "; target cpu supports other granularities too"
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
  return "rows " + show(quant) + " are not supported on target " + target.name +
         ", which supports " + llvm::join(known, "; or ");
}
