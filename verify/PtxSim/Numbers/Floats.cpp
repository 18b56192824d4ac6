//===- Floats.cpp - float formats, bit by bit -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Floats.h"

#include <algorithm>

using namespace moec::ptx;

double moec::ptx::decodeFloat(const FloatFormat &format, uint32_t bits) {
  uint32_t magnitude = bits & (format.signBit() - 1);
  double sign = bits & format.signBit() ? -1 : 1;
  if (format.hasInfinity && magnitude >= format.infinity())
    return magnitude == format.infinity() ? sign * HUGE_VAL : NAN;
  if (!format.hasInfinity && magnitude == format.nan())
    return NAN;
  // A double has more exponent and mantissa bits: shift the fields into place
  // and rescale, so that denormals become normal doubles.
  double scaled =
      bitCast<double>(uint64_t(magnitude) << (52 - format.mantissaBits));
  auto scale = uint64_t(2 * 1023 - format.bias()) << 52;
  return sign * (scaled * bitCast<double>(scale));
}

uint32_t moec::ptx::encodeFloat(const FloatFormat &format, double value,
                                Rounding rounding, bool saturates) {
  if (value != value)
    return format.nan();
  bool isNegative = std::signbit(value);
  uint32_t sign = isNegative ? format.signBit() : 0;
  double magnitude = std::fabs(value);
  if (magnitude == 0)
    return sign;
  if (std::isinf(magnitude))
    return sign | (saturates            ? format.greatest()
                   : format.hasInfinity ? format.infinity()
                                        : format.nan());
  int exponent = std::max(std::ilogb(magnitude), 1 - format.bias());
  double scaled = std::ldexp(magnitude, format.mantissaBits - exponent);
  double whole = std::floor(scaled), rest = scaled - whole;
  uint64_t mantissa = uint64_t(whole);
  bool roundsUp = false;
  switch (rounding) {
  case Rounding::Nearest:
    roundsUp = rest > 0.5 || (rest == 0.5 && (mantissa & 1));
    break;
  case Rounding::Zero:
    break;
  case Rounding::Down:
    roundsUp = isNegative && rest > 0;
    break;
  case Rounding::Up:
    roundsUp = !isNegative && rest > 0;
    break;
  }
  mantissa += roundsUp;
  // A carry from the mantissa increments the exponent.
  uint64_t one = uint64_t(1) << format.mantissaBits;
  uint64_t bits = mantissa < one ? mantissa
                                 : (uint64_t(exponent + format.bias()) * one) +
                                       (mantissa - one);
  if (bits <= format.greatest())
    return sign | uint32_t(bits);
  bool staysFinite = saturates || rounding == Rounding::Zero ||
                     (rounding == Rounding::Down && !isNegative) ||
                     (rounding == Rounding::Up && isNegative);
  return sign | (staysFinite          ? format.greatest()
                 : format.hasInfinity ? format.infinity()
                                      : format.nan());
}
