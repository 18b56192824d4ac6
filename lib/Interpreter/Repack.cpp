//===- Repack.cpp - weights in the order of tensor cores --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formulas.h"

#include "moec/Dialect/Moe/Fragments.h"
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

using moe::Fragments;

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
class MatrixRepacker {
public:
  MatrixRepacker(const RepackArguments &arguments, int64_t matrix)
      : arguments(arguments),
        format(Fragments::getQuant(arguments.quant, arguments.packing)),
        digits(format.getDigits()), rows(arguments.weight.shape.end()[-2]),
        rowBytes(arguments.weight.shape.back()),
        depth(moe::getRowWidth(arguments.quant, rowBytes)),
        firstRow(matrix * rows),
        codes(arguments.weight.as<uint8_t>() + firstRow * rowBytes),
        packed(rows * rowBytes), packedScale(rows * format.getRowBytes(depth)),
        rowScale(rows) {}

  void run();

private:
  int64_t getScaleIndex(int64_t row, int64_t element) const;
  int64_t getCode(int64_t row, int64_t element) const {
    moe::ElementPlace place = moe::getElementPlace(arguments.quant, element);
    int64_t bits = codes[row * rowBytes + place.byte] >> place.bit;
    return bits & ((1 << format.getCodeBits()) - 1);
  }
  GroupScale getScale(int64_t row, int64_t element) const;
  int64_t getZeroPoint(int64_t row, int64_t element) const;
  Fragments::SplitMinimum getMinimum(int64_t row, int64_t element) const;
  /// Whether all elements that share a scale with an element, in a unit, are 0,
  /// and whether any is NaN.
  bool isZero(int64_t row, int64_t element) const;
  bool hasNaN(int64_t row, int64_t element) const;
  /// The factor of a whole row: its scale, or that of the matrix.
  float getFactor(int64_t row) const;
  void pack(int64_t row, int64_t excess);
  void runRow(int64_t row);

  const RepackArguments &arguments;
  Fragments format;
  int64_t digits, rows, rowBytes, depth, firstRow;
  const uint8_t *codes;
  std::vector<uint8_t> packed, packedScale;
  std::vector<float> rowScale;
};

} // namespace

int64_t MatrixRepacker::getScaleIndex(int64_t row, int64_t element) const {
  moe::QuantAttr quant = arguments.quant;
  int64_t perMatrix = moe::getNumScaleRows(quant, rows, arguments.layout);
  int64_t scaleRow = moe::getScaleRow(quant, row, rows, arguments.layout);
  return (firstRow / rows * perMatrix + scaleRow) *
             moe::getNumScaleColumns(quant, depth) +
         moe::getScaleColumn(quant, element);
}

GroupScale MatrixRepacker::getScale(int64_t row, int64_t element) const {
  if (!format.matrixGroup)
    return {kOne << digits, false};
  int64_t index = getScaleIndex(row, element);
  if (format.arePowers())
    return {arguments.scale.as<uint8_t>()[index] << digits, false};
  float scale = loadAt(arguments.scale, index);
  int64_t bits = llvm::bit_cast<uint32_t>(std::fabs(scale));
  // Round an f32, unless it would become infinite; other types stored as f16 do
  // not have more bits.
  if (format.scales == Fragments::Scales::F16 &&
      bits <= Fragments::kMostRounded)
    bits += int64_t(1) << (kDigits - digits - 1);
  return {bits >> (kDigits - digits), std::signbit(scale)};
}

int64_t MatrixRepacker::getZeroPoint(int64_t row, int64_t element) const {
  if (!arguments.zeroPoint || format.hasMinima)
    return moe::getImpliedZeroPoint(arguments.quant);
  return arguments.zeroPoint->as<uint8_t>()[getScaleIndex(row, element)];
}

Fragments::SplitMinimum MatrixRepacker::getMinimum(int64_t row,
                                                   int64_t element) const {
  int64_t index = getScaleIndex(row, element);
  return format.splitMinimum(loadAt(arguments.scale, index),
                             loadAt(*arguments.zeroPoint, index),
                             isZero(row, element));
}

bool MatrixRepacker::isZero(int64_t row, int64_t element) const {
  if (format.book && !format.findZero())
    return false;
  // Zeros of floats have either sign.
  int64_t all = format.getLargestCode();
  int64_t zero = format.book ? *format.findZero() : getZeroPoint(row, element);
  int64_t mask = format.areIntegers() || format.book ? all : all / 2;
  for (int64_t i = element; i < element + format.group; ++i)
    if ((getCode(row, i) & mask) != zero)
      return false;
  return true;
}

bool MatrixRepacker::hasNaN(int64_t row, int64_t element) const {
  constexpr int64_t magnitude = 0x7F;
  if (format.codes != Fragments::Codes::E4M3)
    return false;
  for (int64_t i = element; i < element + format.group; ++i)
    if ((getCode(row, i) & magnitude) == magnitude)
      return true;
  return false;
}

float MatrixRepacker::getFactor(int64_t row) const {
  if (!format.matrixGroup)
    return loadAt(arguments.scale, getScaleIndex(row, /*element=*/0));
  if (!arguments.globalScale)
    return 1;
  int64_t perMatrix =
      moe::getNumSecondScales(arguments.quant, rows, arguments.layout);
  int64_t half = row / (rows / perMatrix);
  return loadAt(*arguments.globalScale, firstRow / rows * perMatrix + half);
}

void MatrixRepacker::pack(int64_t row, int64_t excess) {
  int64_t unitRow = Fragments::getUnitRow(row, rows, arguments.layout);
  for (int64_t i = 0; i < depth; ++i) {
    int64_t code = format.toKept(getCode(row, i));
    if (format.scales == Fragments::Scales::Steps) {
      int64_t exponent = (getScale(row, i).bits >> digits) - excess;
      code = Fragments::weaken(code, Fragments::kLeastStep - exponent);
    }
    if (format.scales == Fragments::Scales::E5M3) {
      // E5M3 has neither a zero nor a sign.
      GroupScale scale = getScale(row, i);
      code = scale.bits ? code ^ (scale.isNegative ? 8 : 0) : 0;
    }
    Fragments::Place place = format.getPlace(row, i, rows, arguments.layout);
    uint8_t *words = &packed[place.firstRow * rowBytes];
    int64_t lowest = int64_t(place.bits.size()) - 1;
    for (auto [n, bit] : llvm::enumerate(place.bits))
      if (code >> (lowest - int64_t(n)) & 1)
        words[4 * place.word + bit / 8] |= 1 << bit % 8;
  }
  for (int64_t i = 0; i < depth; i += format.group) {
    Fragments::ScalePlace place =
        format.getScalePlace(row, i, rows, arguments.layout);
    uint8_t *bytes = &packedScale[place.firstRow * format.getRowBytes(depth)];
    GroupScale scale = getScale(row, i);
    bool isZero = !format.arePowers() && scale.bits >> digits == 0;
    int64_t bits =
        scale.bits + (format.getExponent(unitRow) - excess) * (1 << digits);
    if (isZero || bits < format.getLeastKept(unitRow) << digits)
      bits = 0;
    int64_t kept = format.encodeScale(std::min(bits, format.getLargestKept()));
    if (format.areNumbers() && scale.isNegative)
      kept |= format.getSign();
    memcpy(bytes + place.byte, &kept, format.getScaleBytes());
    int64_t zeroPoint = getZeroPoint(row, i);
    if (format.hasMinima) {
      auto [whole, rest] = getMinimum(row, i);
      zeroPoint = whole;
      int64_t keptRest = format.encodeRest(rest, excess);
      memcpy(bytes + place.rest, &keptRest, format.getRestBytes());
    }
    int64_t keptZeroPoint = format.encodeZeroPoint(zeroPoint, unitRow);
    memcpy(bytes + place.zeroPoint, &keptZeroPoint, format.getZeroPointBytes());
  }
}

void MatrixRepacker::runRow(int64_t row) {
  int64_t largest = 0;
  bool isFinite = true;
  for (int64_t i = 0; i < depth; i += format.group) {
    int64_t bits = getScale(row, i).bits;
    isFinite &= bits >> digits < kNoNumber && !hasNaN(row, i);
    if (!isZero(row, i))
      largest = std::max(largest, bits >> digits);
    if (format.areRestsBounded()) {
      float rest = std::fabs(getMinimum(row, i).rest);
      largest = std::max(largest, (llvm::bit_cast<int32_t>(rest) >> kDigits) -
                                      format.getRestRoom());
    }
  }
  int64_t excess =
      std::max(largest - format.getLargestExponent(), format.getLeastExcess());
  pack(row, excess);
  float factor = getFactor(row);
  // Finite factors stay finite, since they may belong to rows of zeros.
  constexpr float most = std::numeric_limits<float>::max();
  float number = std::clamp(std::ldexp(factor, int(excess)), -most, most);
  rowScale[row] = isFinite && std::isfinite(factor)
                      ? number
                      : std::numeric_limits<float>::quiet_NaN();
}

void MatrixRepacker::run() {
  for (int64_t row = 0; row < rows; ++row)
    runRow(row);
  std::copy(packed.begin(), packed.end(),
            arguments.packed.as<uint8_t>() + firstRow * rowBytes);
  std::copy(packedScale.begin(), packedScale.end(),
            arguments.packedScale.as<uint8_t>() +
                firstRow * format.getRowBytes(depth));
  store(arguments.rowScale, firstRow, rowScale);
}

Status repack(const RepackArguments &arguments) {
  int64_t matrices =
      arguments.weight.shape.size() > 2 ? arguments.weight.shape.front() : 1;
  for (int64_t matrix = 0; matrix < matrices; ++matrix)
    MatrixRepacker(arguments, matrix).run();
  return Status::ok();
}

} // namespace moec::interpreter
