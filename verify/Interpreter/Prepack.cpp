//===- Prepack.cpp - weights in the order of tensor cores -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formulas.h"

#include "moec/Dialect/Moe/PackedValues.h"
#include "moec/Dialect/Moe/Prepacking.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/bit.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

using moe::PrepackedFormat;

/// The biased exponents, in bf16 and f32, of 1 and of NaN and infinity.
static constexpr int64_t kOne = 127, kNoNumber = 255;
/// Mantissa bits of an f32.
static constexpr int64_t kDigits = 23;

namespace {

/// A group's scale before encoding: exponent and first mantissa bits, and the
/// sign. If all scales are powers of two, the exponent 0 stands for 2^-127.
struct GroupScale {
  int64_t bits;
  bool isNegative;
};

/// Prepacks one matrix.
class MatrixPrepacker {
public:
  MatrixPrepacker(const PrepackArguments &arguments, int64_t matrix)
      : arguments(arguments),
        format(moe::getPrepacked(arguments.quant, arguments.packing)),
        digits(format.scale.digits), rows(arguments.weight.shape.end()[-2]),
        rowBytes(arguments.weight.shape.back()),
        sizeK(moe::getRowWidth(arguments.quant, rowBytes)),
        firstRow(matrix * rows),
        values(arguments.weight.as<uint8_t>() + firstRow * rowBytes),
        packed(rows * rowBytes), packedScale(rows * format.getRowBytes(sizeK)),
        rowScale(rows) {}

  void run();

private:
  int64_t getScaleIndex(int64_t row, int64_t element) const;
  int64_t getCode(int64_t row, int64_t element) const {
    moe::ElementOffset place = moe::getElementOffset(arguments.quant, element);
    int64_t bits = values[row * rowBytes + place.byte] >> place.bit;
    return bits & ((1 << format.values.bits) - 1);
  }
  GroupScale getScale(int64_t row, int64_t element) const;
  int64_t getZeroPoint(int64_t row, int64_t element) const;
  moe::SplitMinimum getMinimum(int64_t row, int64_t element) const;
  /// Whether all elements that share a scale with an element, in a packed tile,
  /// are 0, and whether any is NaN.
  bool isZero(int64_t row, int64_t element) const;
  bool hasNaN(int64_t row, int64_t element) const;
  /// The factor of a whole row: its scale, or that of the matrix.
  float getFactor(int64_t row) const;
  void pack(int64_t row, int64_t excess);
  void runRow(int64_t row);

  const PrepackArguments &arguments;
  PrepackedFormat format;
  int64_t digits, rows, rowBytes, sizeK, firstRow;
  const uint8_t *values;
  std::vector<uint8_t> packed, packedScale;
  std::vector<float> rowScale;
};

} // namespace

int64_t MatrixPrepacker::getScaleIndex(int64_t row, int64_t element) const {
  moe::QuantAttr quant = arguments.quant;
  int64_t perMatrix = moe::getNumScaleRows(quant, rows, arguments.layout);
  int64_t scaleRow = moe::getScaleRow(quant, row, rows, arguments.layout);
  return (firstRow / rows * perMatrix + scaleRow) *
             moe::getNumScaleColumns(quant, sizeK) +
         moe::getScaleColumn(quant, element);
}

GroupScale MatrixPrepacker::getScale(int64_t row, int64_t element) const {
  if (!format.matrixGroup)
    return {kOne << digits, false};
  int64_t index = getScaleIndex(row, element);
  if (format.scale.isPower())
    return {arguments.scale.as<uint8_t>()[index] << digits, false};
  float scale = loadAt(arguments.scale, index);
  int64_t bits = llvm::bit_cast<uint32_t>(std::fabs(scale));
  // Round an f32, unless it would become infinite; other types stored as f16 do
  // not have more bits.
  if (format.scale.stored == moe::StoredScale::F16 && bits <= moe::kMostRounded)
    bits += int64_t(1) << (kDigits - digits - 1);
  return {bits >> (kDigits - digits), std::signbit(scale)};
}

int64_t MatrixPrepacker::getZeroPoint(int64_t row, int64_t element) const {
  if (!arguments.zeroPoint || format.hasMinima)
    return moe::getImpliedZeroPoint(arguments.quant);
  return arguments.zeroPoint->as<uint8_t>()[getScaleIndex(row, element)];
}

moe::SplitMinimum MatrixPrepacker::getMinimum(int64_t row,
                                              int64_t element) const {
  int64_t index = getScaleIndex(row, element);
  return moe::splitMinimum(format.values, loadAt(arguments.scale, index),
                           loadAt(*arguments.zeroPoint, index),
                           isZero(row, element));
}

bool MatrixPrepacker::isZero(int64_t row, int64_t element) const {
  if (format.book && !format.findZero())
    return false;
  // Zeros of floats have either sign.
  int64_t all = format.values.getLargest();
  int64_t zero = format.book ? *format.findZero() : getZeroPoint(row, element);
  int64_t mask = format.values.isInteger() || format.book ? all : all / 2;
  for (int64_t i = element; i < element + format.group; ++i)
    if ((getCode(row, i) & mask) != zero)
      return false;
  return true;
}

bool MatrixPrepacker::hasNaN(int64_t row, int64_t element) const {
  constexpr int64_t magnitude = 0x7F;
  if (format.values.stored != moe::StoredValue::E4M3)
    return false;
  for (int64_t i = element; i < element + format.group; ++i)
    if ((getCode(row, i) & magnitude) == magnitude)
      return true;
  return false;
}

float MatrixPrepacker::getFactor(int64_t row) const {
  if (!format.matrixGroup)
    return loadAt(arguments.scale, getScaleIndex(row, /*element=*/0));
  if (!arguments.globalScale)
    return 1;
  int64_t perMatrix =
      moe::getNumSecondScales(arguments.quant, rows, arguments.layout);
  int64_t half = row / (rows / perMatrix);
  return loadAt(*arguments.globalScale, firstRow / rows * perMatrix + half);
}

void MatrixPrepacker::pack(int64_t row, int64_t excess) {
  int64_t tileRow = PrepackedFormat::getTileRow(row, rows, arguments.layout);
  for (int64_t i = 0; i < sizeK; ++i) {
    int64_t code = moe::toKept(format, getCode(row, i));
    if (format.scale.stored == moe::StoredScale::Steps) {
      int64_t exponent = (getScale(row, i).bits >> digits) - excess;
      code = moe::weaken(code, moe::kLeastStep - exponent);
    }
    if (format.scale.stored == moe::StoredScale::E5M3) {
      // E5M3 has neither a zero nor a sign.
      GroupScale scale = getScale(row, i);
      code = scale.bits ? code ^ (scale.isNegative ? 8 : 0) : 0;
    }
    PrepackedFormat::Address place =
        format.getAddress(row, i, rows, arguments.layout);
    uint8_t *words = &packed[place.firstRow * rowBytes];
    int64_t lowest = int64_t(place.bits.size()) - 1;
    for (auto [n, bit] : llvm::enumerate(place.bits))
      if (code >> (lowest - int64_t(n)) & 1)
        words[4 * place.word + bit / 8] |= 1 << bit % 8;
  }
  for (int64_t i = 0; i < sizeK; i += format.group) {
    PrepackedFormat::ScaleAddress place =
        format.getScaleAddress(row, i, rows, arguments.layout);
    uint8_t *bytes = &packedScale[place.firstRow * format.getRowBytes(sizeK)];
    GroupScale scale = getScale(row, i);
    bool isZero = !format.scale.isPower() && scale.bits >> digits == 0;
    int64_t bits = scale.bits + (format.values.getExponent(tileRow) - excess) *
                                    (1 << digits);
    if (isZero || bits < format.getLeastKept(tileRow) << digits)
      bits = 0;
    int64_t kept = moe::encodeScale(
        format.scale, std::min(bits, format.scale.getLargestKept()));
    if (format.scale.isNumber() && scale.isNegative)
      kept |= format.scale.getSign();
    memcpy(bytes + place.byte, &kept, format.scale.bytes);
    int64_t zeroPoint = getZeroPoint(row, i);
    if (format.hasMinima) {
      auto [whole, rest] = getMinimum(row, i);
      zeroPoint = whole;
      int64_t keptRest = moe::encodeRest(format.values.decoded, rest, excess);
      memcpy(bytes + place.rest, &keptRest, format.getRestBytes());
    }
    int64_t keptZeroPoint =
        moe::encodeZeroPoint(format.values, zeroPoint, tileRow);
    memcpy(bytes + place.zeroPoint, &keptZeroPoint, format.getZeroPointBytes());
  }
}

void MatrixPrepacker::runRow(int64_t row) {
  int64_t largest = 0;
  bool isFinite = true;
  for (int64_t i = 0; i < sizeK; i += format.group) {
    int64_t bits = getScale(row, i).bits;
    isFinite &= bits >> digits < kNoNumber && !hasNaN(row, i);
    if (!isZero(row, i))
      largest = std::max(largest, bits >> digits);
    if (format.areRestsBounded()) {
      float rest = std::fabs(getMinimum(row, i).rest);
      largest = std::max(largest, (llvm::bit_cast<int32_t>(rest) >> kDigits) -
                                      format.getRestHeadroom());
    }
  }
  int64_t excess =
      std::max(largest - format.getLargestExponent(), format.scale.leastExcess);
  pack(row, excess);
  float factor = getFactor(row);
  // Finite factors stay finite, since they may belong to rows of zeros.
  constexpr float most = std::numeric_limits<float>::max();
  float number = std::clamp(std::ldexp(factor, int(excess)), -most, most);
  rowScale[row] = isFinite && std::isfinite(factor)
                      ? number
                      : std::numeric_limits<float>::quiet_NaN();
}

void MatrixPrepacker::run() {
  for (int64_t row = 0; row < rows; ++row)
    runRow(row);
  std::copy(packed.begin(), packed.end(),
            arguments.packed.as<uint8_t>() + firstRow * rowBytes);
  std::copy(packedScale.begin(), packedScale.end(),
            arguments.packedScale.as<uint8_t>() +
                firstRow * format.getRowBytes(sizeK));
  store(arguments.rowScale, firstRow, rowScale);
}

Status repack(const PrepackArguments &arguments) {
  int64_t matrices =
      arguments.weight.shape.size() > 2 ? arguments.weight.shape.front() : 1;
  for (int64_t matrix = 0; matrix < matrices; ++matrix)
    MatrixPrepacker(arguments, matrix).run();
  return Status::ok();
}

} // namespace moec::interpreter
