//===- PrepackedFormat.cpp - layout of prepacked weights --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/PrepackedFormat.h"

#include "moec/Dialect/Moe/PackedValues.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace moec::moe {

/// Consecutive gate rows of a packed tile, followed by the up rows of equal
/// columns.
constexpr int64_t kPairedRows = 8;

bool hasHalves(WeightLayoutAttr layout) {
  return layout && layout.getOrder() != GateUpOrder::Interleaved;
}

bool isPrepacked(Packing packing) {
  return packing == Packing::Prepacked || packing == Packing::PrepackedF16 ||
         packing == Packing::PrepackedE4M3;
}

/// Whether scales belong to groups or blocks, not to whole rows.
static bool areOfGroups(QuantAttr quant) { return !quant.getBlock().empty(); }

/// Stored form of group scales, which are 1 if the matrix has scales of
/// channels or tensors.
static StoredScale getStoredScale(QuantAttr quant) {
  Type scale = quant.getScale();
  if (isa<Float8E8M0FNUType>(scale))
    return quant.getPacking() == Packing::PrepackedE4M3 &&
                   isa<Float4E2M1FNType>(quant.getStorage())
               ? StoredScale::Steps
               : StoredScale::E8M0;
  if (isa<Float8E4M3FNType>(scale))
    return StoredScale::E5M3;
  // Scales multiply f32 sums.
  if (quant.getPacking() == Packing::PrepackedE4M3)
    return areOfGroups(quant) && !scale.isBF16() ? StoredScale::F32
                                                 : StoredScale::BF16;
  bool areF16 = quant.getPacking() == Packing::PrepackedF16;
  // With minima, r is never negative, so that no rest overflows a bf16.
  if (quant.getMinimum() && !areF16)
    return StoredScale::F32;
  if (areF16 || (areOfGroups(quant) && scale.isF16()))
    return StoredScale::F16;
  return areOfGroups(quant) && scale.isF32() ? StoredScale::F32
                                             : StoredScale::BF16;
}

static StoredValue getStoredValue(Type storage) {
  if (isCodeBook(storage))
    return StoredValue::Book;
  if (isa<Float4E2M1FNType>(storage))
    return StoredValue::E2M1;
  if (isa<Float8E4M3FNType>(storage))
    return StoredValue::E4M3;
  return storage.isInteger(8) ? StoredValue::Int8 : StoredValue::Int4;
}

static DecodedType getDecodedType(Packing packing) {
  if (packing == Packing::PrepackedE4M3)
    return DecodedType::E4M3;
  return packing == Packing::PrepackedF16 ? DecodedType::F16
                                          : DecodedType::BF16;
}

static std::optional<CodeBook> getRoundedBook(QuantAttr quant) {
  std::optional<CodeBook> book = getCodeBook(quant.getStorage());
  DecodedType type = getDecodedType(quant.getPacking());
  if (book)
    for (float &number : *book)
      number = float(decodeFloat(type, encodeFloat(type, number)));
  return book;
}

PrepackedFormat::PrepackedFormat(QuantAttr quant)
    : values(getValueFormat(getStoredValue(quant.getStorage()),
                            getDecodedType(quant.getPacking()))),
      scale(getScaleFormat(getStoredScale(quant), values.decoded)),
      book(getRoundedBook(quant)),
      matrixGroup(areOfGroups(quant) ? quant.getBlock()[1] : 0),
      hasZeroPoints(hasZeros(quant)), hasMinima(quant.getMinimum()) {
  group = matrixGroup ? std::min(matrixGroup, kSizeK) : kSizeK;
  // Blocks may end within a copy, and rests of minima depend on the elements of
  // one packed tile.
  constexpr int64_t shared = 2;
  bool isShared = matrixGroup && matrixGroup % (shared * kSizeK) == 0 &&
                  !hasMinima && quant.getBlock()[0] == 1;
  scaleTiles = isShared ? shared : 1;
}

int64_t PrepackedFormat::getHalfRow(int64_t block, int64_t tileHalf,
                                    int64_t rows, WeightLayoutAttr layout) {
  if (hasHalves(layout))
    return tileHalf * (rows / 2) + block * kHalfRows;
  return block * kRows + tileHalf * kHalfRows;
}

namespace {
/// A row of a matrix as a block and a row of its packed tiles.
struct TileRow {
  int64_t block, row;
};
} // namespace

static TileRow findTileRow(int64_t row, int64_t rows, WeightLayoutAttr layout) {
  if (!layout)
    return {row / PrepackedFormat::kRows, row % PrepackedFormat::kRows};
  bool isHalved = hasHalves(layout);
  int64_t projection = isHalved ? row / (rows / 2) : row % 2;
  int64_t column = isHalved ? row % (rows / 2) : row / 2;
  int64_t inBlock = column % PrepackedFormat::kHalfRows;
  return {column / PrepackedFormat::kHalfRows,
          inBlock / kPairedRows * 2 * kPairedRows + projection * kPairedRows +
              inBlock % kPairedRows};
}

int64_t PrepackedFormat::getTileRow(int64_t row, int64_t rows,
                                    WeightLayoutAttr layout) {
  return findTileRow(row, rows, layout).row;
}

/// A warp has 16 rows of a packed tile; a thread has two of them, 8 apart.
constexpr int64_t kWarpRows = 16, kFragmentRows = 8;

int64_t PrepackedFormat::getParity(int64_t tileRow) {
  return tileRow % kWarpRows / kFragmentRows;
}

std::optional<int64_t> PrepackedFormat::findZero() const {
  const float *zero = llvm::find(*book, 0.0F);
  return zero == book->end() ? std::nullopt
                             : std::optional(zero - book->begin());
}

int64_t PrepackedFormat::getInvertedBits() const {
  bool isUnsigned =
      values.stored == StoredValue::Int8 && hasZeroPoints && !hasMinima;
  return isUnsigned ? 0 : values.inverted;
}

int64_t PrepackedFormat::getLargestExponent() const {
  if (scale.largest)
    return scale.largest;
  int64_t largest = moe::getLargestExponent(values.decoded) -
                    values.getExponent(/*tileRow=*/0) - values.headroom;
  if (!book)
    return largest;
  // The largest entry times the scale must not overflow.
  float most = 0;
  for (float number : *book)
    most = std::max(most, std::fabs(number));
  return largest - std::max(std::ilogb(most) + 1, 0);
}

int64_t PrepackedFormat::getLeastKept(int64_t tileRow) const {
  if (scale.least)
    return scale.least;
  // For integers, the implied zero point times the scale is subtracted, which
  // is exact if the scale is not subnormal.
  return values.isInteger() ? values.getExponent(tileRow) + 1 : 1;
}

int64_t PrepackedFormat::getRestHeadroom() const {
  // A code's product with its scale is less than 1, and takes what is left of
  // the largest exponent.
  return moe::getLargestExponent(DecodedType::F16) - 1 - getLargestExponent();
}

PrepackedFormat::Address
PrepackedFormat::getAddress(int64_t row, int64_t element, int64_t rows,
                            WeightLayoutAttr layout) const {
  // A register has adjacent elements along K, equally many for each of the four
  // threads that share a row; a `wgmma` has two such stretches.
  constexpr int64_t lanes = 4;
  int64_t product = kSizeK / values.getProducts(), stretch = product / 2;
  int64_t perRegister = stretch / lanes;
  TileRow own = findTileRow(row, rows, layout);
  int64_t warp = own.row / kWarpRows, in = element % kSizeK;
  int64_t thread =
      warp * 32 + own.row % kFragmentRows * lanes + in % stretch / perRegister;
  int64_t tileHalf = warp / 2, second = in % product / stretch;
  // The index of the register in its `wgmma`, in the order of words:
  // alternating between both rows, or one row after the other.
  int64_t inProduct = values.decoded == DecodedType::E4M3
                          ? getParity(own.row) * 2 + second
                          : getParity(own.row) + second * 2;
  // Among the words of the thread, of all chunks.
  int64_t word = in / product * values.getProductWords() +
                 inProduct / values.getWordRegisters();
  int64_t inWord = inProduct % values.getWordRegisters();
  Address address;
  address.firstRow = getHalfRow(own.block, tileHalf, rows, layout);
  address.word = element / kSizeK * values.getHalfWords() +
                 word / kThreadWords * kChunkWords +
                 thread % kRows * kThreadWords + word % kThreadWords;
  int64_t code = in % perRegister;
  address.bits = values.decoded == DecodedType::E4M3
                     ? values.getBits(inWord, code)
                     : values.getPairBits(inWord, code);
  return address;
}

PrepackedFormat::ScaleAddress
PrepackedFormat::getScaleAddress(int64_t row, int64_t element, int64_t rows,
                                 WeightLayoutAttr layout) const {
  TileRow own = findTileRow(row, rows, layout);
  int64_t warp = own.row / kWarpRows;
  int64_t quad = warp % 2 * kFragmentRows + own.row % kFragmentRows;
  int64_t copy = element / (kSizeK * scaleTiles);
  int64_t first = (copy * kQuads + quad) * getQuadBytes();
  int64_t number = element % kSizeK / group * kQuadRows + getParity(own.row);
  int64_t count = kQuadRows * getGroups();
  int64_t zeroPoints = first + count * scale.bytes;
  int64_t rests = zeroPoints + count * getZeroPointBytes();
  return {getHalfRow(own.block, warp / 2, rows, layout),
          first + number * scale.bytes,
          zeroPoints + number * getZeroPointBytes(),
          rests + number * getRestBytes()};
}

} // namespace moec::moe
