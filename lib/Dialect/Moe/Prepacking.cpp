//===- Prepacking.cpp - weights that can be prepacked -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Prepacking.h"

#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace moec::moe {

static std::string show(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

std::optional<Packing> getPrepacking(Type input) {
  if (input.isF16())
    return Packing::PrepackedF16;
  if (isa<Float8E4M3FNType>(input))
    return Packing::PrepackedE4M3;
  return input.isBF16() ? std::optional(Packing::Prepacked) : std::nullopt;
}

/// Restricted, since a value times its scale must be exact in few bits.
static std::string whyNotE2M1(Type scale, Granularity granularity,
                              int64_t group) {
  constexpr int64_t ofMx = 32, ofNv = 16;
  int64_t expected = isa<Float8E8M0FNUType>(scale)  ? ofMx
                     : isa<Float8E4M3FNType>(scale) ? ofNv
                                                    : 0;
  if (granularity == Granularity::Group && group == expected)
    return {};
  return "f4E2M1FN needs f8E8M0FNU scales in groups of 32 or f8E4M3FN scales "
         "in groups of 16";
}

/// Whether f16 represents the larger entries of the book with full precision.
static bool isForF16(const CodeBook &book) {
  constexpr float least = 0.5F, most = 32768;
  float largest = 0;
  for (float number : book)
    largest = std::max(largest, std::fabs(number));
  return largest >= least && largest <= most;
}

/// For 8-bit values, int4 and code books.
static std::string whyNotInteger(Type storage, Type scale,
                                 Granularity granularity, int64_t group) {
  bool hasBytes = getElementBits(storage) == 8;
  bool isOfAllRow = granularity == Granularity::Channel ||
                    (granularity == Granularity::Tensor && hasBytes);
  if (isOfAllRow && isa<Float32Type, Float16Type, BFloat16Type>(scale))
    return {};
  constexpr int64_t few = 16, least = 32;
  // Scales that are exponents of floats.
  if (isa<Float8E4M3FNType>(storage) && isa<Float8E8M0FNUType>(scale) &&
      granularity == Granularity::Group && group == least)
    return {};
  bool isOfBlocks = granularity == Granularity::Block && hasBytes;
  // With groups of 16, one `wgmma` has one scale per row.
  bool isOfFew = group == few && hasBytes && granularity == Granularity::Group;
  if ((granularity != Granularity::Group && !isOfBlocks) ||
      (group != least && group % PrepackedFormat::kSizeK != 0 && !isOfFew))
    return show(storage) + " needs scales per row, in groups of " +
           (hasBytes ? "16, " : "") + "32 or in groups of a multiple of " +
           std::to_string(PrepackedFormat::kSizeK);
  // Two bf16 have the relevant bits of an f32, and an f16 as many as the
  // weight.
  if (isa<Float32Type, BFloat16Type, Float16Type>(scale))
    return {};
  return show(storage) + " needs scales of f32, bf16 or f16, not " +
         show(scale);
}

/// Restricted, since an e4m3 has few bits.
static std::string whyNotE4M3(Type storage, Type scale, Granularity granularity,
                              int64_t group, bool hasOffsets) {
  constexpr int64_t ofMx = 32;
  if (isa<Float4E2M1FNType>(storage) && isa<Float8E8M0FNUType>(scale) &&
      granularity == Granularity::Group && group == ofMx)
    return {};
  bool isE4M3 = isa<Float8E4M3FNType>(storage);
  // A `wgmma` of e4m3 has K = 32.
  bool isOfSums = (granularity == Granularity::Group ||
                   (granularity == Granularity::Block && isE4M3)) &&
                  (group == ofMx || group % PrepackedFormat::kSizeK == 0);
  bool isNumber = isa<Float32Type, Float16Type, BFloat16Type>(scale);
  if (isE4M3 && isOfSums &&
      (isNumber || (isa<Float8E8M0FNUType>(scale) && group == ofMx)))
    return {};
  if (storage.isInteger(4) && !hasOffsets && isNumber &&
      (isOfSums || granularity == Granularity::Channel))
    return {};
  return "e4m3 represents f4E2M1FN with f8E8M0FNU scales in groups of 32; i4 "
         "without zero points and minima, and f8E4M3FN, need scales in groups "
         "of 32 or of a multiple of " +
         std::to_string(PrepackedFormat::kSizeK);
}

std::string whyNotPrepacked(Type storage, Type scale, Granularity granularity,
                            int64_t group, bool hasOffsets, Packing packing) {
  if (packing == Packing::PrepackedE4M3)
    return whyNotE4M3(storage, scale, granularity, group, hasOffsets);
  if (isa<Float4E2M1FNType>(storage))
    return whyNotE2M1(scale, granularity, group);
  if (isCodeBook(storage) && packing == Packing::PrepackedF16 &&
      !isForF16(*getCodeBook(storage)))
    return "f16 needs a code book whose largest magnitude is 0.5 to 32768, "
           "unlike that of " +
           show(storage);
  if (isa<Float8E5M2Type>(storage))
    return "no GPU dequantizes " + show(storage);
  return whyNotInteger(storage, scale, granularity, group);
}

std::string whyNotPrepacked(QuantAttr plain, Packing packing) {
  if (!isPrepacked(packing))
    return "'" + stringifyPacking(packing).str() +
           "' is not a prepacked layout; 'prepacked', 'prepacked_f16' and "
           "'prepacked_e4m3' are";
  if (isPrepacked(plain.getPacking()))
    return "the weights are prepacked already";
  // The scale of the matrix becomes part of `row_scale`.
  bool hasSecond = isa<Float4E2M1FNType>(plain.getStorage()) &&
                   isa<Float8E4M3FNType>(plain.getScale());
  if (bool(plain.getSecondScale()) != hasSecond)
    return "a 'second_scale' goes with f8E4M3FN scales of f4E2M1FN, and with "
           "no others";
  return whyNotPrepacked(plain.getStorage(), plain.getScale(),
                         plain.getGranularity(),
                         plain.getBlock().empty() ? 0 : plain.getBlock()[1],
                         plain.getZeroPoint() || plain.getMinimum(), packing);
}

std::string whyNotPrepacked(int64_t rows, int64_t sizeK) {
  if (sizeK % PrepackedFormat::kSizeK)
    return "K = " + std::to_string(sizeK) + " is not a multiple of " +
           std::to_string(PrepackedFormat::kSizeK);
  if (rows % PrepackedFormat::kRows)
    return "N = " + std::to_string(rows) + " is not a multiple of " +
           std::to_string(PrepackedFormat::kRows);
  return {};
}

QuantAttr getPrepacked(QuantAttr plain, Packing packing) {
  MLIRContext *context = plain.getContext();
  return QuantAttr::get(
      context, plain.getStorage(), plain.getScale(), plain.getGranularity(),
      plain.getBlock(), plain.getZeroPoint(), plain.getDynamic(), packing,
      Float32Type::get(context), /*power_of_two=*/false, plain.getMinimum());
}

} // namespace moec::moe
