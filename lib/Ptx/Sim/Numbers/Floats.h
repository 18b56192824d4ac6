//===- Floats.h - float formats, bit by bit ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_SIM_NUMBERS_FLOATS_H
#define MOEC_LIB_PTX_SIM_NUMBERS_FLOATS_H

#include "Lanes.h"

#include <cmath>

namespace moec::ptx {

enum class Rounding : uint8_t { Nearest, Zero, Down, Up };

/// A format with the fields sign, exponent and mantissa.
struct FloatFormat {
  int exponentBits, mantissaBits;
  /// The greatest exponent stands for infinity and NaN; else only all ones
  /// stand for NaN.
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
/// Rounds once. `saturates`: what is too large becomes the greatest number.
uint32_t encodeFloat(const FloatFormat &format, double value,
                     Rounding rounding = Rounding::Nearest,
                     bool saturates = false);

/// x + y with the last bit set if it is not exact, so that rounding it to a
/// shorter format gives what rounding the exact sum would.
double addToOdd(double x, double y);

inline float bfloatToFloat(uint16_t bits) {
  return bitCast<float>(uint32_t(bits) << 16);
}

inline uint16_t floatToBfloat(float value) {
  uint32_t bits = bitCast<uint32_t>(value);
  if (value != value)
    return 0x7FFF;
  return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float halfToFloat(uint16_t bits);
inline uint16_t floatToHalf(float value) {
  return uint16_t(encodeFloat(kHalf, double(value)));
}

/// The NaN that arithmetic makes, whatever went in.
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

#endif // MOEC_LIB_PTX_SIM_NUMBERS_FLOATS_H
