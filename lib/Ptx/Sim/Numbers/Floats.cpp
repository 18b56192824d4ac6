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
  int exponent = int(magnitude >> format.mantissaBits);
  int mantissa = int(magnitude & ((1u << format.mantissaBits) - 1));
  if (exponent == 0)
    return sign * std::ldexp(mantissa, 1 - format.bias() - format.mantissaBits);
  return sign * std::ldexp(mantissa + (1 << format.mantissaBits),
                           exponent - format.bias() - format.mantissaBits);
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
  // A carry goes from the mantissa into the exponent by itself.
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

double moec::ptx::addToOdd(double x, double y) {
  double sum = x + y;
  if (!std::isfinite(sum))
    return sum;
  double part = sum - x;
  double error = (x - (sum - part)) + (y - part);
  uint64_t bits = bitCast<uint64_t>(sum);
  if (error == 0 || bits & 1)
    return sum;
  bool growsAway = (error > 0) == (sum > 0);
  return bitCast<double>(growsAway ? bits + 1 : bits - 1);
}

float moec::ptx::halfToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00)
    return bitCast<float>(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
  // The exponents differ by 112; what was denormal is a normal float.
  float scaled = bitCast<float>(magnitude << 13) * bitCast<float>(0x77800000u);
  return bitCast<float>(bitCast<uint32_t>(scaled) | sign);
}
