//===- Number.cpp - encodings of numbers, bit by bit ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Number.h"

#include <cmath>

namespace moec::conform {

FormatInfo formatInfo(Format format) {
  switch (format) {
  case Format::F16:
    return {16, 5, 10, true};
  case Format::BF16:
    return {16, 8, 7, true};
  case Format::E4M3:
    return {8, 4, 3, false};
  case Format::E5M2:
    return {8, 5, 2, true};
  default:
    // TF32 has the fields of F32; its readers ignore the low 13 bits.
    return {32, 8, 23, true};
  }
}

unsigned formatWidth(Format format) {
  switch (format) {
  case Format::None:
  case Format::S8:
    return 8;
  case Format::S32:
    return 32;
  default:
    return formatInfo(format).bits;
  }
}

static bool isInteger(Format format) {
  return format == Format::None || format == Format::S8 ||
         format == Format::S32;
}

bool isNan(Format format, uint32_t bits) {
  if (isInteger(format))
    return false;
  FormatInfo info = formatInfo(format);
  uint32_t magnitude = bits & ((1u << (info.bits - 1)) - 1);
  uint32_t exponents = ((1u << info.exponentBits) - 1) << info.mantissaBits;
  if (!info.hasInfinity)
    return magnitude == (1u << (info.bits - 1)) - 1;
  return magnitude > exponents;
}

double decode(Format format, uint32_t bits) {
  if (format == Format::S8)
    return static_cast<int8_t>(bits);
  if (format == Format::S32 || format == Format::None)
    return static_cast<int32_t>(bits);
  if (isNan(format, bits))
    return NAN;
  FormatInfo info = formatInfo(format);
  uint32_t mantissa = bits & ((1u << info.mantissaBits) - 1);
  if (format == Format::TF32)
    mantissa &= ~0x1fffu;
  uint32_t exponent =
      (bits >> info.mantissaBits) & ((1u << info.exponentBits) - 1);
  double sign = bits >> (info.bits - 1) & 1 ? -1.0 : 1.0;
  int scale = 1 - info.bias() - static_cast<int>(info.mantissaBits);
  if (exponent == 0)
    return sign * std::ldexp(mantissa, scale);
  if (info.hasInfinity && exponent == (1u << info.exponentBits) - 1)
    return sign * INFINITY;
  return sign * std::ldexp(mantissa | (1u << info.mantissaBits),
                           scale + static_cast<int>(exponent) - 1);
}

uint32_t encode(Format format, double value) {
  if (isInteger(format)) {
    double limit = format == Format::S8 ? 127 : 2147483647;
    double clamped = std::fmin(std::fmax(value, -limit - 1), limit);
    uint32_t mask = format == Format::S8 ? 0xff : 0xffffffff;
    return static_cast<uint32_t>(static_cast<int64_t>(clamped)) & mask;
  }
  FormatInfo info = formatInfo(format);
  uint32_t sign = std::signbit(value) ? 1u << (info.bits - 1) : 0;
  uint32_t infinity = ((1u << info.exponentBits) - 1) << info.mantissaBits;
  uint32_t nan = (1u << (info.bits - 1)) - 1;
  if (std::isnan(value))
    return nan;
  unsigned dropped = format == Format::TF32 ? 13 : 0;
  unsigned digits = info.mantissaBits - dropped;
  double magnitude = std::fabs(value);
  uint32_t largest = info.hasInfinity ? infinity - (1u << dropped) : nan - 1;
  if (magnitude == 0)
    return sign;
  int exponent = std::isinf(magnitude) ? 1 << 20 : std::ilogb(magnitude);
  if (exponent > info.bias() + 1)
    return sign | (info.hasInfinity ? infinity : largest);
  int unit = std::max(exponent, 1 - info.bias()) - static_cast<int>(digits);
  // The default rounding of nearbyint is to nearest, ties to even.
  double steps = std::nearbyint(std::ldexp(magnitude, -unit));
  double rounded = std::ldexp(steps, unit);
  if (rounded > decode(format, largest))
    return sign | (info.hasInfinity ? infinity : largest);
  if (rounded == 0)
    return sign;
  exponent = std::ilogb(rounded);
  if (exponent < 1 - info.bias())
    return sign | static_cast<uint32_t>(steps) << dropped;
  double fraction =
      std::ldexp(rounded, static_cast<int>(info.mantissaBits) - exponent);
  uint32_t mantissa =
      static_cast<uint32_t>(fraction) & ((1u << info.mantissaBits) - 1);
  return sign |
         static_cast<uint32_t>(exponent + info.bias()) << info.mantissaBits |
         mantissa;
}

uint32_t loadNumber(Format format, const Bytes &bytes, size_t index) {
  switch (formatWidth(format)) {
  case 8:
    return load<uint8_t>(bytes, index);
  case 16:
    return load<uint16_t>(bytes, index);
  default:
    return load<uint32_t>(bytes, index);
  }
}

Bytes withOneNan(Format format, Bytes bytes) {
  unsigned width = formatWidth(format) / 8;
  for (size_t i = 0; i < bytes.size() / width; ++i) {
    if (!isNan(format, loadNumber(format, bytes, i)))
      continue;
    std::memset(bytes.data() + i * width, 0xff, width);
  }
  return bytes;
}

} // namespace moec::conform
