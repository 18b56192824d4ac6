//===- Floats.h - float formats, bit by bit ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_NUMBERS_FLOATS_H
#define MOEC_VERIFY_PTXSIM_NUMBERS_FLOATS_H

#include "Lanes.h"

#include <cmath>

namespace moec::ptx {

enum class Rounding : uint8_t { Nearest, Zero, Down, Up };

/// A format with sign, exponent and mantissa.
struct FloatFormat {
  int exponentBits, mantissaBits;
  /// The greatest exponent encodes infinity and NaN; otherwise only all ones
  /// are NaN.
  bool hasInfinity;

  int bias() const { return (1 << (exponentBits - 1)) - 1; }
  uint32_t signBit() const { return 1u << (exponentBits + mantissaBits); }
  uint32_t nan() const { return signBit() - 1; }
  uint32_t infinity() const {
    return ((1u << exponentBits) - 1) << mantissaBits;
  }
  uint32_t greatest() const { return (hasInfinity ? infinity() : nan()) - 1; }
};

inline constexpr FloatFormat kHalf{5, 10, true}, kBfloat{8, 7, true},
    kE4M3{4, 3, false}, kE5M2{5, 2, true}, kTf32{8, 10, true};

/// Exact.
double decodeFloat(const FloatFormat &format, uint32_t bits);
/// Rounds once. `saturates`: overflow gives the greatest finite number.
uint32_t encodeFloat(const FloatFormat &format, double value, Rounding rounding,
                     bool saturates);

/// Encodes with rounding to nearest; fast path for normal numbers.
inline uint32_t encodeNearest(const FloatFormat &format, double value,
                              bool saturates = false) {
  constexpr int mantissaBits = 52, bias = 1023;
  uint64_t bits = bitCast<uint64_t>(value);
  uint64_t magnitude = bits << 1 >> 1;
  uint32_t sign = bits >> 63 ? format.signBit() : 0;
  if (magnitude == 0)
    return sign;
  int exponent = int(magnitude >> mantissaBits) - bias;
  // The value just below the limit may round up to it.
  if (exponent < 1 - format.bias() || exponent >= format.bias())
    return encodeFloat(format, value, Rounding::Nearest, saturates);
  int dropped = mantissaBits - format.mantissaBits;
  uint64_t half = uint64_t(1) << (dropped - 1);
  uint64_t rounded =
      (magnitude + half - 1 + (magnitude >> dropped & 1)) >> dropped;
  rounded -= uint64_t(bias - format.bias()) << format.mantissaBits;
  return sign | uint32_t(rounded);
}

/// x + y rounded to odd: if inexact, the last bit is set, so that rounding to a
/// shorter format gives the same as rounding the exact sum.
inline double addToOdd(double x, double y) {
  double sum = x + y;
  double part = sum - x;
  double error = (x - (sum - part)) + (y - part);
  uint64_t bits = bitCast<uint64_t>(sum);
  // Infinities and NaNs have a NaN as their error.
  bool isInexact = (error < 0 || error > 0) && !(bits & 1);
  bool growsAway = (error > 0) == (sum > 0);
  uint64_t moved = growsAway ? bits + 1 : bits - 1;
  return bitCast<double>(isInexact ? moved : bits);
}

inline float bfloatToFloat(uint16_t bits) {
  return bitCast<float>(uint32_t(bits) << 16);
}

inline uint16_t floatToBfloat(float value) {
  uint32_t bits = bitCast<uint32_t>(value);
  if (value != value)
    return 0x7FFF;
  return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float halfToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t magnitude = bits & 0x7FFF;
  uint32_t special = sign | 0x7F800000 | (magnitude & 0x3FF) << 13;
  // Exponent biases differ by 112; denormal f16 become normal f32.
  float scaled = bitCast<float>(magnitude << 13) * bitCast<float>(0x77800000u);
  return bitCast<float>(magnitude >= 0x7C00 ? special
                                            : bitCast<uint32_t>(scaled) | sign);
}

inline uint16_t floatToHalf(float value) {
  return uint16_t(encodeNearest(kHalf, double(value)));
}

/// Canonicalizes NaNs as arithmetic instructions do.
inline float canonical(float value) {
  return value == value ? value : bitCast<float>(uint32_t(0x7FFFFFFF));
}
inline double canonical(double value) {
  return value == value ? value : bitCast<double>(uint64_t(0x7FFFFFFFFFFFFFFF));
}

/// Denormal numbers become zeros of their sign.
inline float flushDenormal(float value) {
  uint32_t bits = bitCast<uint32_t>(value);
  return (bits & 0x7F800000) == 0 ? bitCast<float>(bits & 0x80000000) : value;
}

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_NUMBERS_FLOATS_H
