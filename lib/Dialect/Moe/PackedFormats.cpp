//===- PackedFormats.cpp - formats of prepacked weights ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/PackedFormats.h"

#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "llvm/ADT/STLExtras.h"

using llvm::ArrayRef;
using llvm::SmallVector;

namespace moec::moe {

/// A mask of both halves of a word.
static constexpr int64_t both(int64_t half) { return half << 16 | half; }

static constexpr int64_t kSigns = both(0x8000);

// Register 0 has the positions of the compute type. The last register of a word
// has the remaining bits, in two parts.
static constexpr Decoding kE2M1ToBF16 = {
    {{{0, both(0x81C0)}},
     {{-4, both(0x81C0), /*rotates=*/true}},
     {{6, both(0x81C0)}},
     {{2, both(0x80C0)}, {-6, both(0x0100)}}}};
static constexpr Decoding kE2M1ToF16 = {{{{0, kSigns | both(0x0E00)}},
                                         {{3, kSigns | both(0x0E00)}},
                                         {{2, kSigns}, {6, both(0x0E00)}},
                                         {{1, kSigns}, {9, both(0x0E00)}}}};
static constexpr Decoding kE4M3ToBF16 = {
    {{{0, both(0x87F0)}}, {{4, both(0x80F0)}, {-4, both(0x0700)}}}};
static constexpr Decoding kE4M3ToF16 = {
    {{{0, kSigns | both(0x3F80)}}, {{1, kSigns}, {7, both(0x3F80)}}}};
// Integers are the lowest bits of a 16-bit float; int4 in a thread's second row
// are the next ones.
static constexpr Decoding kInt4 = {{{{0, both(0x000F)}},
                                    {{0, both(0x00F0)}},
                                    {{-8, both(0x000F)}},
                                    {{-8, both(0x00F0)}}}};
static constexpr Decoding kInt8 = {{{{0, both(0x00FF)}}, {{-8, both(0x00FF)}}}};
/// Code books are looked up, and e4m3 have byte operations of their own.
static constexpr Decoding kOther = {};

ArrayRef<ValueFormat> getValueFormats() {
  using S = StoredValue;
  using D = DecodedType;
  // Columns: stored and compute type, bits, exponents, middle, zeroCode,
  // inverted, headroom, decoding.
  //
  // 0.5 of e2m1 is a subnormal, times 2^-126 in bf16 and times 2^-14 in f16;
  // the smallest e4m3 are subnormals too. Integers count steps of 2^-133 in
  // bf16, of 2^-24 in f16, and int4 of 2^-9 in e4m3. The largest e4m3 is below
  // 2^9, which must not overflow an f16.
  static constexpr ValueFormat rows[] = {
      {S::E2M1, D::BF16, 4, {126, 126}, 0, 0, 0, 0, kE2M1ToBF16},
      {S::E2M1, D::F16, 4, {14, 14}, 0, 0, 0, 0, kE2M1ToF16},
      {S::E2M1, D::E4M3, 4, {0, 0}, 0, 0, 0, 0, kOther},
      {S::Int4, D::BF16, 4, {133, 129}, 8, 0, 0, 0, kInt4},
      {S::Int4, D::F16, 4, {24, 20}, 8, 0, 0, 0, kInt4},
      {S::Int4, D::E4M3, 4, {9, 9}, 8, 0, 8, 0, kOther},
      {S::E4M3, D::BF16, 8, {120, 120}, 0, 0, 0, 0, kE4M3ToBF16},
      {S::E4M3, D::F16, 8, {8, 8}, 0, 0, 0, 2, kE4M3ToF16},
      {S::E4M3, D::E4M3, 8, {0, 0}, 0, 0, 0x80, 0, kOther},
      {S::Int8, D::BF16, 8, {133, 133}, 128, 128, 0x80, 0, kInt8},
      {S::Int8, D::F16, 8, {24, 24}, 128, 128, 0x80, 0, kInt8},
      {S::Book, D::BF16, 4, {0, 0}, 0, 0, 0, 0, kOther},
      {S::Book, D::F16, 4, {0, 0}, 0, 0, 0, 0, kOther},
  };
  return rows;
}

ArrayRef<ScaleFormat> getScaleFormats() {
  using S = StoredScale;
  using D = DecodedType;
  constexpr int64_t f16 = kF16Bias;
  // The least r of rows whose largest scale is brought to the largest that can
  // be stored, whatever it is: 2^r is a normal number.
  constexpr int64_t any = -126;
  // Columns: stored form and compute type, bytes, digits, storedDigits, bias,
  // least, largest, leastExcess, isSum.
  //
  // A sum of e4m3 times a scale of 2^(200 - 127) is far from overflowing an
  // f32. A step is the lowest bit of the exponent of an e4m3.
  static constexpr ScaleFormat rows[] = {
      {S::E8M0, D::BF16, 1, 7, 0, 0, 0, 0, 0, false},
      {S::E8M0, D::F16, 1, 7, 3, f16, f16 + 1, 0, any, false},
      {S::E8M0, D::E4M3, 1, 7, 0, 0, 0, 200, any, false},
      {S::E5M3, D::BF16, 1, 7, 3, 235, 0, 0, 0, false},
      {S::E5M3, D::F16, 1, 7, 3, f16, f16 + 1, 0, any, false},
      {S::BF16, D::BF16, 2, 7, 7, 0, 0, 0, 0, false},
      {S::BF16, D::E4M3, 2, 7, 7, 0, 0, 0, 0, false},
      {S::F16, D::BF16, 2, 10, 10, 2 * f16, 2 * f16 + 1, 0, any, true},
      {S::F16, D::F16, 2, 10, 10, f16, f16 + 1, 0, any, false},
      {S::F32, D::BF16, 4, 15, 23, 0, 0, 0, 0, true},
      {S::F32, D::E4M3, 4, 15, 23, 0, 0, 0, 0, false},
      {S::Steps, D::E4M3, 1, 7, 3, kLeastStep, kLeastStep, kMostStep, any,
       false},
  };
  return rows;
}

template <typename Row, typename Stored>
static const Row &findFormat(ArrayRef<Row> rows, Stored stored,
                             DecodedType decoded) {
  const auto *found = llvm::find_if(rows, [&](const Row &row) {
    return row.stored == stored && row.decoded == decoded;
  });
  assert(found != rows.end() && "no such format is legal");
  return *found;
}

const ValueFormat &getValueFormat(StoredValue stored, DecodedType decoded) {
  return findFormat(getValueFormats(), stored, decoded);
}
const ScaleFormat &getScaleFormat(StoredScale stored, DecodedType decoded) {
  return findFormat(getScaleFormats(), stored, decoded);
}

int64_t getLargestExponent(DecodedType type) {
  constexpr int64_t ofBF16 = 254, ofF16 = 142;
  return type == DecodedType::F16 ? ofF16 : ofBF16;
}

int64_t ScaleFormat::getLargestKept() const {
  if (stored == StoredScale::Steps)
    return kMostStep << digits;
  return ((getLargestExponent(decoded) + 1) << digits) - 1;
}

int64_t ValueFormat::getExponent(int64_t tileRow) const {
  return exponents[PrepackedFormat::getParity(tileRow)];
}

ArrayRef<DecodeStep> ValueFormat::getSteps(int64_t i) const {
  return ArrayRef(decoding.steps[i]).take_while([](const DecodeStep &step) {
    return step.mask != 0;
  });
}

int64_t ValueFormat::getInputBytes() const {
  return PrepackedFormat::kSizeK * (decoded == DecodedType::E4M3 ? 1 : 2);
}

int64_t ValueFormat::getTileBytes() const {
  return PrepackedFormat::kRows * PrepackedFormat::kSizeK * bits / 8;
}

int64_t ValueFormat::getHalfWords() const {
  return getChunks() * PrepackedFormat::kChunkWords;
}

int64_t ValueFormat::getProductWords() const {
  return getChunks() * PrepackedFormat::kThreadWords / getProducts();
}

int64_t ValueFormat::getWordRegisters() const {
  return PrepackedFormat::kRegisters / getProductWords();
}

SmallVector<int64_t, 8> ValueFormat::getPairBits(int64_t pair,
                                                 int64_t code) const {
  constexpr int64_t nibble = 4, halfBits = 16, wordBits = 2 * halfBits;
  // Four adjacent indices select the bytes of two registers at once.
  if (stored == StoredValue::Book) {
    int64_t lowest = nibble * (2 * pair + code);
    return {lowest + 3, lowest + 2, lowest + 1, lowest};
  }
  SmallVector<int64_t, 8> positions;
  for (int64_t bit = halfBits - 1; bit >= 0; --bit)
    for (const DecodeStep &step : getSteps(pair))
      if (step.mask >> bit & 1)
        positions.push_back((bit - step.left + code * halfBits) % wordBits);
  return positions;
}

SmallVector<int64_t, 8> ValueFormat::getBits(int64_t inWord,
                                             int64_t code) const {
  constexpr int64_t nibble = 4, byte = 8, wordBits = 32;
  // Magnitudes of e2m1 are nibbles that select bytes of a table, four at once.
  // A sign is the highest bit of some nibble: of its own byte for the first
  // register, and 4 below, reached by a shift, for the second.
  if (stored == StoredValue::E2M1) {
    int64_t lowest = nibble * (4 * inWord + code);
    return {byte * code + (inWord ? 3 : 7), lowest + 2, lowest + 1, lowest};
  }
  if (stored == StoredValue::E4M3) {
    SmallVector<int64_t, 8> positions;
    for (int64_t bit = byte - 1; bit >= 0; --bit)
      positions.push_back(byte * code + bit);
    return positions;
  }
  // Magnitudes of int4 are the lowest bits of a byte, and the sign is its
  // highest bit; for the second register after a rotation by 4.
  int64_t lowest = byte * code + nibble * inWord;
  int64_t sign = (byte * code + 7 + nibble * inWord) % wordBits;
  return {sign, lowest + 2, lowest + 1, lowest};
}

} // namespace moec::moe
