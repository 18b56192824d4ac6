//===- Fragments.cpp - layout of prepacked weights --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Fragments.h"

#include "moec/Dialect/Moe/QuantLayout.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using llvm::APFloat;

namespace moec::moe {

/// Consecutive gate rows of a unit, followed by the up rows of equal columns.
constexpr int64_t kPairedRows = 8;

bool hasHalves(WeightLayoutAttr layout) {
  return layout && layout.getOrder() != GateUpOrder::Interleaved;
}

static std::string show(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

bool isFragments(Packing packing) {
  return packing == Packing::Fragments || packing == Packing::FragmentsF16 ||
         packing == Packing::FragmentsE4M3;
}

std::optional<Packing> Fragments::getPacking(Type input) {
  if (input.isF16())
    return Packing::FragmentsF16;
  if (isa<Float8E4M3FNType>(input))
    return Packing::FragmentsE4M3;
  return input.isBF16() ? std::optional(Packing::Fragments) : std::nullopt;
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
  return "f4E2M1FN has scales f8E8M0FNU of groups of 32 or f8E4M3FN of groups "
         "of 16";
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
      (group != least && group % Fragments::kDepth != 0 && !isOfFew))
    return show(storage) + " has scales of rows, of groups of " +
           (hasBytes ? "16, " : "") + "32 or of multiples of " +
           std::to_string(Fragments::kDepth);
  // Two bf16 have the relevant bits of an f32, and an f16 as many as the
  // weight.
  if (isa<Float32Type, BFloat16Type, Float16Type>(scale))
    return {};
  return show(storage) +
         " becomes a number of 16 bits times the scale of its group, which is "
         "of f32, bf16 or f16, and scales of " +
         show(scale) + " are none of these";
}

/// Restricted, since an e4m3 has few bits.
static std::string whyNotE4M3(Type storage, Type scale, Granularity granularity,
                              int64_t group, Fragments::Beside beside) {
  constexpr int64_t ofMx = 32;
  if (isa<Float4E2M1FNType>(storage) && isa<Float8E8M0FNUType>(scale) &&
      granularity == Granularity::Group && group == ofMx)
    return {};
  bool isE4M3 = isa<Float8E4M3FNType>(storage);
  // A `wgmma` of e4m3 has K = 32.
  bool isOfSums = (granularity == Granularity::Group ||
                   (granularity == Granularity::Block && isE4M3)) &&
                  (group == ofMx || group % Fragments::kDepth == 0);
  bool isNumber = isa<Float32Type, Float16Type, BFloat16Type>(scale);
  if (isE4M3 && isOfSums &&
      (isNumber || (isa<Float8E8M0FNUType>(scale) && group == ofMx)))
    return {};
  if (storage.isInteger(4) && beside == Fragments::Beside::Nothing &&
      isNumber && (isOfSums || granularity == Granularity::Channel))
    return {};
  return "e4m3 has digits for f4E2M1FN with scales f8E8M0FNU of groups of 32, "
         "and sums are scaled of i4 without zero points and minima, or of "
         "f8E4M3FN, in groups of 32 or of multiples of " +
         std::to_string(Fragments::kDepth);
}

std::string Fragments::whyNot(Type storage, Type scale, Granularity granularity,
                              int64_t group, Beside beside, Packing packing) {
  if (packing == Packing::FragmentsE4M3)
    return whyNotE4M3(storage, scale, granularity, group, beside);
  if (isa<Float4E2M1FNType>(storage))
    return whyNotE2M1(scale, granularity, group);
  if (isCodeBook(storage) && packing == Packing::FragmentsF16 &&
      !isForF16(*getCodeBook(storage)))
    return "f16 has digits for a book whose largest number is from 0.5 up to "
           "32,768, which that of " +
           show(storage) + " is not";
  if (isa<Float8E5M2Type>(storage))
    return "no GPU decodes " + show(storage);
  return whyNotInteger(storage, scale, granularity, group);
}

std::string Fragments::whyNot(QuantAttr plain, Packing packing) {
  if (!isFragments(packing))
    return "'" + stringifyPacking(packing).str() +
           "' is no order of fragments; 'fragments', 'fragments_f16' and "
           "'fragments_e4m3' are";
  if (isFragments(plain.getPacking()))
    return "weights have one already";
  // The scale of the matrix becomes part of `row_scale`.
  bool hasSecond = isa<Float4E2M1FNType>(plain.getStorage()) &&
                   isa<Float8E4M3FNType>(plain.getScale());
  if (bool(plain.getSecondScale()) != hasSecond)
    return "f8E4M3FN scales of f4E2M1FN have a second scale, and others have "
           "none";
  return whyNot(plain.getStorage(), plain.getScale(), plain.getGranularity(),
                plain.getBlock().empty() ? 0 : plain.getBlock()[1],
                getBeside(plain.getZeroPoint(), plain.getMinimum()), packing);
}

std::string Fragments::whyNot(int64_t rows, int64_t depth) {
  if (depth % kDepth)
    return "K = " + std::to_string(depth) + " is no multiple of " +
           std::to_string(kDepth);
  if (rows % kRows)
    return "N = " + std::to_string(rows) + " is no multiple of " +
           std::to_string(kRows);
  return {};
}

QuantAttr Fragments::getQuant(QuantAttr plain, Packing packing) {
  MLIRContext *context = plain.getContext();
  return QuantAttr::get(
      context, plain.getStorage(), plain.getScale(), plain.getGranularity(),
      plain.getBlock(), plain.getZeroPoint(), plain.getDynamic(), packing,
      Float32Type::get(context), /*power_of_two=*/false, plain.getMinimum());
}

/// Whether scales belong to groups or blocks, not to whole rows.
static bool areOfGroups(QuantAttr quant) { return !quant.getBlock().empty(); }

/// Stored form of group scales, which are 1 if the matrix has scales of
/// channels or tensors.
static Fragments::Scales getKeptScales(QuantAttr quant) {
  Type scale = quant.getScale();
  if (isa<Float8E8M0FNUType>(scale))
    return quant.getPacking() == Packing::FragmentsE4M3 &&
                   isa<Float4E2M1FNType>(quant.getStorage())
               ? Fragments::Scales::Steps
               : Fragments::Scales::E8M0;
  if (isa<Float8E4M3FNType>(scale))
    return Fragments::Scales::E5M3;
  // Scales multiply f32 sums.
  if (quant.getPacking() == Packing::FragmentsE4M3)
    return areOfGroups(quant) && !scale.isBF16() ? Fragments::Scales::F32
                                                 : Fragments::Scales::BF16;
  bool areF16 = quant.getPacking() == Packing::FragmentsF16;
  // With minima, r is never negative, so that no rest overflows a bf16.
  if (quant.getMinimum() && !areF16)
    return Fragments::Scales::F32;
  if (areF16 || (areOfGroups(quant) && scale.isF16()))
    return Fragments::Scales::F16;
  return areOfGroups(quant) && scale.isF32() ? Fragments::Scales::F32
                                             : Fragments::Scales::BF16;
}

static Fragments::Codes getCodes(Type storage) {
  if (isCodeBook(storage))
    return Fragments::Codes::Book;
  if (isa<Float4E2M1FNType>(storage))
    return Fragments::Codes::E2M1;
  if (isa<Float8E4M3FNType>(storage))
    return Fragments::Codes::E4M3;
  return storage.isInteger(8) ? Fragments::Codes::Int8 : Fragments::Codes::Int4;
}

static Fragments::Numbers getNumbers(Packing packing) {
  if (packing == Packing::FragmentsE4M3)
    return Fragments::Numbers::E4M3;
  return packing == Packing::FragmentsF16 ? Fragments::Numbers::F16
                                          : Fragments::Numbers::BF16;
}

static const llvm::fltSemantics &getSemantics(Fragments::Numbers numbers) {
  return numbers == Fragments::Numbers::F16 ? APFloat::IEEEhalf()
                                            : APFloat::BFloat();
}

static APFloat round(double number, Fragments::Numbers numbers) {
  APFloat rounded(number);
  bool losesInfo;
  rounded.convert(getSemantics(numbers), APFloat::rmNearestTiesToEven,
                  &losesInfo);
  return rounded;
}

static std::optional<CodeBook> getRoundedBook(QuantAttr quant) {
  std::optional<CodeBook> book = getCodeBook(quant.getStorage());
  if (book)
    for (float &number : *book)
      number = round(number, getNumbers(quant.getPacking())).convertToFloat();
  return book;
}

Fragments::Fragments(QuantAttr quant)
    : codes(getCodes(quant.getStorage())), book(getRoundedBook(quant)),
      numbers(getNumbers(quant.getPacking())), scales(getKeptScales(quant)),
      matrixGroup(areOfGroups(quant) ? quant.getBlock()[1] : 0),
      hasZeroPoints(hasZeros(quant)), hasMinima(quant.getMinimum()) {
  group = matrixGroup ? std::min(matrixGroup, kDepth) : kDepth;
}

int64_t Fragments::getRunRow(int64_t block, int64_t run, int64_t rows,
                             WeightLayoutAttr layout) {
  if (hasHalves(layout))
    return run * (rows / 2) + block * kRunRows;
  return block * kRows + run * kRunRows;
}

namespace {
/// A row of a matrix as a block and a row of its units.
struct UnitRow {
  int64_t block, row;
};
} // namespace

static UnitRow findUnitRow(int64_t row, int64_t rows, WeightLayoutAttr layout) {
  if (!layout)
    return {row / Fragments::kRows, row % Fragments::kRows};
  bool isHalved = hasHalves(layout);
  int64_t projection = isHalved ? row / (rows / 2) : row % 2;
  int64_t column = isHalved ? row % (rows / 2) : row / 2;
  int64_t inBlock = column % Fragments::kRunRows;
  return {column / Fragments::kRunRows,
          inBlock / kPairedRows * 2 * kPairedRows + projection * kPairedRows +
              inBlock % kPairedRows};
}

int64_t Fragments::getUnitRow(int64_t row, int64_t rows,
                              WeightLayoutAttr layout) {
  return findUnitRow(row, rows, layout).row;
}

/// A warp has 16 rows of a unit; a thread has two of them, 8 apart.
constexpr int64_t kWarpRows = 16, kFragmentRows = 8;

/// The index, 0 or 1, of a unit's row among its thread's two rows.
static int64_t getParity(int64_t unitRow) {
  return unitRow % kWarpRows / kFragmentRows;
}

std::optional<int64_t> Fragments::findZero() const {
  const float *zero = llvm::find(*book, 0.0F);
  return zero == book->end() ? std::nullopt
                             : std::optional(zero - book->begin());
}

ArrayRef<int64_t> Fragments::getHalfBits(int64_t pair) const {
  // Positions of the sign, two bits of exponent and the mantissa. Pair 0: the
  // positions in a bf16; pair 1: after a rotation of the word by 4; pair 2: 6
  // below; pair 3: the remaining bits, one 6 above its position and the others
  // 2 below.
  static constexpr int64_t e2m1[4][4] = {
      {15, 8, 7, 6}, {19, 12, 11, 10}, {9, 2, 1, 0}, {13, 14, 5, 4}};
  // The positions in an f16, 3 below, and the remaining bits: signs 2 and 1
  // below their positions, the others 6 and 9.
  static constexpr int64_t e2m1OfHalves[4][4] = {
      {15, 11, 10, 9}, {12, 8, 7, 6}, {13, 5, 4, 3}, {14, 2, 1, 0}};
  // Bits 0 to 7 of a bf16 count in steps of 2^-133 (bit 7 is the lowest of the
  // exponent), and bits 0 to 10 of an f16 in steps of 2^-24.
  static constexpr int64_t int4[4][4] = {
      {3, 2, 1, 0}, {7, 6, 5, 4}, {11, 10, 9, 8}, {15, 14, 13, 12}};
  static constexpr int64_t int8[2][8] = {{7, 6, 5, 4, 3, 2, 1, 0},
                                         {15, 14, 13, 12, 11, 10, 9, 8}};
  // Four bits of exponent and three of mantissa, at their positions in a bf16
  // or f16. The second pair has the remaining bits, in two parts.
  static constexpr int64_t e4m3[2][8] = {{15, 10, 9, 8, 7, 6, 5, 4},
                                         {11, 14, 13, 12, 3, 2, 1, 0}};
  static constexpr int64_t ofHalves[2][8] = {{15, 13, 12, 11, 10, 9, 8, 7},
                                             {14, 6, 5, 4, 3, 2, 1, 0}};
  switch (codes) {
  case Codes::E2M1:
    return numbers == Numbers::F16 ? e2m1OfHalves[pair] : e2m1[pair];
  case Codes::Int4:
    return int4[pair];
  case Codes::E4M3:
    return numbers == Numbers::F16 ? ofHalves[pair] : e4m3[pair];
  case Codes::Int8:
    return int8[pair];
  case Codes::Book:
    break;
  }
  llvm_unreachable("all codes that are halves apart are listed");
}

SmallVector<int64_t, 8> Fragments::getPairBits(int64_t pair,
                                               int64_t code) const {
  constexpr int64_t nibble = 4, halfBits = 16, wordBits = 2 * halfBits;
  // Four adjacent indices select the bytes of two registers at once.
  if (codes == Codes::Book) {
    int64_t lowest = nibble * (2 * pair + code);
    return {lowest + 3, lowest + 2, lowest + 1, lowest};
  }
  SmallVector<int64_t, 8> bits;
  for (int64_t inHalf : getHalfBits(pair))
    bits.push_back((inHalf + code * halfBits) % wordBits);
  return bits;
}

SmallVector<int64_t, 8> Fragments::getBits(int64_t inWord, int64_t code) const {
  constexpr int64_t nibble = 4, byte = 8, wordBits = 32;
  // Magnitudes of e2m1 are nibbles that select bytes of a table, four at once.
  // A sign is the highest bit of some nibble: of its own byte for the first
  // register, and 4 below, reached by a shift, for the second.
  if (codes == Codes::E2M1) {
    int64_t lowest = nibble * (4 * inWord + code);
    return {byte * code + (inWord ? 3 : 7), lowest + 2, lowest + 1, lowest};
  }
  if (codes == Codes::E4M3) {
    SmallVector<int64_t, 8> bits;
    for (int64_t bit = byte - 1; bit >= 0; --bit)
      bits.push_back(byte * code + bit);
    return bits;
  }
  // Magnitudes of int4 are the lowest bits of a byte, and the sign is its
  // highest bit; for the second register after a rotation by 4.
  int64_t lowest = byte * code + nibble * inWord;
  int64_t sign = (byte * code + 7 + nibble * inWord) % wordBits;
  return {sign, lowest + 2, lowest + 1, lowest};
}

int64_t Fragments::weaken(int64_t code, int64_t by) {
  constexpr int64_t magnitude = 7, nibble = 4;
  uint32_t codes = kWeakenedCodes[std::clamp<int64_t>(by, 0, kWeakened)];
  return (code & ~magnitude) |
         (codes >> nibble * (code & magnitude) & magnitude);
}

int64_t Fragments::getExponent(int64_t unitRow) const {
  // 0.5 of e2m1 is stored as a subnormal: times 2^-126 in bf16, times 2^-14 in
  // f16. The smallest e4m3 are subnormals too. Integers count the lowest bit of
  // a 16-bit float, int4 in a thread's second row the fifth.
  constexpr int64_t e2m1 = 126, e2m1OfF16 = 14, e4m3 = 120, e4m3OfF16 = 8,
                    ofBF16 = 133, ofF16 = 24, nibble = 4;
  if (numbers == Numbers::E4M3) {
    // Four bits of an e4m3 count in steps of 2^-9.
    constexpr int64_t ofE4M3 = 9;
    return codes == Codes::Int4 ? ofE4M3 : 0;
  }
  bool hasF16 = numbers == Numbers::F16;
  if (codes == Codes::Book)
    return 0;
  if (codes == Codes::E2M1)
    return hasF16 ? e2m1OfF16 : e2m1;
  if (codes == Codes::E4M3)
    return hasF16 ? e4m3OfF16 : e4m3;
  return (hasF16 ? ofF16 : ofBF16) -
         (codes == Codes::Int4 ? nibble * getParity(unitRow) : 0);
}

/// Exponents, in bf16 encoding, of the largest bf16 and of the largest f16.
constexpr int64_t kLargestBF16 = 254, kLargestF16 = 142;

int64_t Fragments::getLargestExponent() const {
  if (scales == Scales::Steps)
    return kMostStep;
  // A sum of e4m3 times such a scale is far from overflowing an f32.
  constexpr int64_t ofSums = 200;
  if (isE4M3() && arePowers())
    return ofSums;
  // The largest e4m3 is below 2^9, which must not overflow an f16.
  constexpr int64_t room = 2;
  int64_t largest = (numbers == Numbers::F16 ? kLargestF16 : kLargestBF16) -
                    getExponent(/*unitRow=*/0);
  bool isBounded = numbers == Numbers::F16 && codes == Codes::E4M3;
  if (isBounded)
    return largest - room;
  if (!book)
    return largest;
  // The largest entry times the scale must not overflow.
  float most = 0;
  for (float number : *book)
    most = std::max(most, std::fabs(number));
  return largest - std::max(std::ilogb(most) + 1, 0);
}

int64_t Fragments::getLeastKept(int64_t unitRow) const {
  if (scales == Scales::Steps)
    return kLeastStep;
  if (scales == Scales::F16 || numbers == Numbers::F16)
    return getKeptBias() + 1;
  // For integers, the implied zero point times the scale is subtracted, which
  // is exact if the scale is not subnormal.
  return areIntegers() ? getExponent(unitRow) + 1 : 1;
}

int64_t Fragments::getLeastExcess() const {
  // 2^r is a normal number.
  constexpr int64_t least = -126;
  bool isBrought = scales == Scales::F16 || numbers == Numbers::F16 ||
                   scales == Scales::Steps || (isE4M3() && arePowers());
  return isBrought ? least : 0;
}

int64_t Fragments::getRestRoom() const {
  // A code's product with its scale is less than 1, and takes what is left of
  // the largest exponent.
  return kLargestF16 - 1 - getLargestExponent();
}

int64_t Fragments::getLargestKept() const {
  if (scales == Scales::Steps)
    return kMostStep << getDigits();
  int64_t exponent = numbers == Numbers::F16 ? kLargestF16 : kLargestBF16;
  return ((exponent + 1) << getDigits()) - 1;
}

/// Mantissa bits of a bf16, of an f16, and of `E5M3`; mantissa bits of an f32
/// that are not stored.
constexpr int64_t kDigits = 7, kHalfDigits = 10, kFewDigits = 3,
                  kMissingDigits = 8;

int64_t Fragments::encodeScale(int64_t bits) const {
  if (areE5M3())
    return std::max<int64_t>(bits - (getLeastExponent() << kDigits), 0) >>
           (kDigits - kFewDigits);
  switch (scales) {
  case Scales::E8M0:
    return bits >> kDigits;
  case Scales::E5M3:
    break;
  case Scales::BF16:
    return bits;
  case Scales::F32:
    return bits << kMissingDigits;
  case Scales::F16:
    return std::max<int64_t>(bits - (getKeptBias() << getDigits()), 0);
  case Scales::Steps:
    return std::max<int64_t>((bits >> kDigits) - kLeastStep, 0) * kStepBits;
  }
  llvm_unreachable("all scales are listed");
}

static double getNumber(const llvm::fltSemantics &semantics, int64_t bits) {
  constexpr unsigned width = 16;
  return APFloat(semantics, llvm::APInt(width, bits)).convertToDouble();
}

double Fragments::decodeScale(int64_t kept) const {
  if (areE5M3() && numbers == Numbers::F16)
    return getNumber(APFloat::IEEEhalf(), kept << (kHalfDigits - kFewDigits));
  switch (scales) {
  case Scales::E8M0:
    return getNumber(APFloat::BFloat(), kept << kDigits);
  case Scales::E5M3:
    return getNumber(APFloat::BFloat(), (kept << (kDigits - kFewDigits)) +
                                            (getLeastExponent() << kDigits));
  case Scales::BF16:
    return getNumber(APFloat::BFloat(), kept);
  case Scales::F32:
    return llvm::bit_cast<float>(uint32_t(kept));
  case Scales::F16:
    return std::ldexp(getNumber(APFloat::IEEEhalf(), kept),
                      int(getKeptBias() - kF16Bias));
  case Scales::Steps: {
    constexpr int64_t bias = 127;
    return std::ldexp(1.0, int(kept / kStepBits + kLeastStep - bias));
  }
  }
  llvm_unreachable("all scales are listed");
}

int64_t Fragments::encodeOfBook(int64_t code) const {
  return round((*book)[code], numbers).bitcastToAPInt().getZExtValue();
}

int64_t Fragments::encodeZeroPoint(int64_t zeroPoint, int64_t unitRow) const {
  double number = std::ldexp(double(zeroPoint), -int(getExponent(unitRow)));
  return round(number, numbers).bitcastToAPInt().getSExtValue();
}

double Fragments::decodeZeroPoint(int64_t kept, int64_t unitRow) const {
  return std::ldexp(getNumber(getSemantics(numbers), kept),
                    int(getExponent(unitRow)));
}

Fragments::SplitMinimum Fragments::splitMinimum(float scale, float minimum,
                                                bool isOfZeros) const {
  int64_t zero = getZeroCode();
  if (isOfZeros)
    return {zero, -minimum};
  // fmax maps NaN (0 / 0) to the least.
  float whole =
      std::fmin(std::fmax(std::nearbyint(minimum / scale), -float(zero)),
                float(getLargestCode() - zero));
  return {int64_t(whole) + zero, std::fma(whole, scale, -minimum)};
}

int64_t Fragments::encodeRest(float rest, int64_t excess) const {
  // Two factors, since 2^-excess may not be a normal number.
  int64_t half = excess / 2;
  float less = rest * std::ldexp(1.0F, -int(half)) *
               std::ldexp(1.0F, -int(excess - half));
  return round(less, numbers).bitcastToAPInt().getZExtValue();
}

double Fragments::decodeRest(int64_t kept) const {
  return getNumber(getSemantics(numbers), kept);
}

Fragments::Place Fragments::getPlace(int64_t row, int64_t element, int64_t rows,
                                     WeightLayoutAttr layout) const {
  // A register has adjacent elements along K, equally many for each of the four
  // threads that share a row; a `wgmma` has two such stretches.
  constexpr int64_t lanes = 4;
  int64_t product = kDepth / getProducts(), stretch = product / 2;
  int64_t perRegister = stretch / lanes;
  UnitRow own = findUnitRow(row, rows, layout);
  int64_t warp = own.row / kWarpRows, in = element % kDepth;
  int64_t thread =
      warp * 32 + own.row % kFragmentRows * lanes + in % stretch / perRegister;
  int64_t run = warp / 2, second = in % product / stretch;
  // The index of the register in its `wgmma`, in the order of words:
  // alternating between both rows, or one row after the other.
  int64_t inProduct = numbers == Numbers::E4M3
                          ? getParity(own.row) * 2 + second
                          : getParity(own.row) + second * 2;
  // Among the words of the thread, of all pieces.
  int64_t word =
      in / product * getProductWords() + inProduct / getWordRegisters();
  int64_t inWord = inProduct % getWordRegisters();
  Place place;
  place.firstRow = getRunRow(own.block, run, rows, layout);
  place.word = element / kDepth * getRunWords() +
               word / kThreadWords * kPieceWords +
               thread % kRows * kThreadWords + word % kThreadWords;
  int64_t code = in % perRegister;
  place.bits = numbers == Numbers::E4M3 ? getBits(inWord, code)
                                        : getPairBits(inWord, code);
  return place;
}

Fragments::ScalePlace Fragments::getScalePlace(int64_t row, int64_t element,
                                               int64_t rows,
                                               WeightLayoutAttr layout) const {
  UnitRow own = findUnitRow(row, rows, layout);
  int64_t warp = own.row / kWarpRows;
  int64_t quad = warp % 2 * kFragmentRows + own.row % kFragmentRows;
  int64_t first = (element / kDepth * kQuads + quad) * getQuadBytes();
  int64_t number = element % kDepth / group * kQuadRows + getParity(own.row);
  int64_t count = kQuadRows * getGroups();
  int64_t zeroPoints = first + count * getScaleBytes();
  int64_t rests = zeroPoints + count * getZeroPointBytes();
  return {getRunRow(own.block, warp / 2, rows, layout),
          first + number * getScaleBytes(),
          zeroPoints + number * getZeroPointBytes(),
          rests + number * getRestBytes()};
}

} // namespace moec::moe
