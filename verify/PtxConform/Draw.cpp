//===- Draw.cpp - values of operands ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Elementwise.h"
#include "moec/PtxConform/Number.h"

#include <cmath>

namespace moec::conform {

static uint64_t drawInteger(unsigned width, Random &random) {
  uint64_t top = 1ull << (width - 1);
  switch (random.below(8)) {
  case 0: {
    const uint64_t limits[] = {0,       1,       ~0ull,   2,        top,
                               top - 1, top + 1, top | 1, ~0ull - 1};
    return limits[random.below(9)];
  }
  case 1:
    return static_cast<uint64_t>(random.between(-40, 40));
  case 2: {
    uint64_t power = 1ull << random.below(width);
    return power + static_cast<uint64_t>(random.between(-1, 1));
  }
  case 3:
    // Few bits, for counts of leading zeros and products that do not wrap.
    return random.bits() >> random.below(64);
  default:
    return random.bits();
  }
}

static uint32_t drawFloat(Format format, Random &random) {
  FormatInfo info = formatInfo(format);
  uint32_t exponentLimit = (1u << info.exponentBits) - 1;
  uint32_t mantissaMask = (1u << info.mantissaBits) - 1;
  auto sign = static_cast<uint32_t>(random.below(2)) << (info.bits - 1);
  auto mantissa = static_cast<uint32_t>(random.bits()) & mantissaMask;
  auto join = [&](uint64_t exponent) {
    return sign | static_cast<uint32_t>(exponent) << info.mantissaBits |
           mantissa;
  };
  switch (random.below(8)) {
  case 0:
  case 1:
    return join(random.below(exponentLimit + 1));
  case 2: {
    const uint32_t infinity = exponentLimit << info.mantissaBits;
    const uint32_t quiet = 1u << (info.mantissaBits - 1);
    const uint32_t special[] = {
        0,
        1,                       // the smallest subnormal
        mantissaMask,            // the largest one
        1u << info.mantissaBits, // the smallest normal number
        infinity - 1,            // the largest number
        infinity,                //
        infinity | quiet,        // quiet NaN
        infinity | 1,            // signalling NaN
        infinity | mantissaMask, // canonical NaN
        static_cast<uint32_t>(info.bias()) << info.mantissaBits, // 1.0
        infinity | quiet | (mantissa & (quiet - 1))};
    return sign | special[random.below(11)];
  }
  case 3:
    return encode(format, random.between(-64, 64) / 4.0);
  case 4:
    mantissa >>= random.below(info.mantissaBits + 1);
    return join(random.below(3));
  case 5:
    return join(exponentLimit - random.below(3));
  default:
    return join(info.bias() + random.between(-3, 3));
  }
}

static uint32_t drawTie(Random &random) {
  double odd =
      2.0 * static_cast<double>(random.below(1u << random.between(0, 12))) + 1;
  auto exponent = static_cast<int>(random.between(-32, 18));
  if (random.below(8) == 0)
    exponent = static_cast<int>(random.between(-149, 118));
  double value = std::ldexp(random.below(2) ? odd : -odd, exponent);
  return encode(Format::F32, value) +
         static_cast<uint32_t>(random.between(-1, 1));
}

static uint32_t drawNearInteger(Format format, Random &random) {
  double value = 0;
  switch (random.below(4)) {
  case 0:
    value = static_cast<double>(random.between(-600, 600)) / 2;
    break;
  case 1: {
    const int powers[] = {7, 8, 15, 16, 31, 32, 63, 64};
    value = std::ldexp(1, powers[random.below(8)]);
    break;
  }
  case 2:
    value = std::ldexp(static_cast<double>(random.bits() >> 11),
                       static_cast<int>(random.between(-56, 14)));
    break;
  default:
    return drawFloat(format, random);
  }
  uint32_t bits = encode(format, random.below(2) ? value : -value);
  return bits + static_cast<uint32_t>(random.between(-1, 1));
}

/// Draws one number, or two packed ones.
template <typename Fn>
static uint64_t perNumber(const Operand &operand, Fn &&draw) {
  unsigned bits = formatWidth(operand.format);
  uint64_t value = 0;
  for (unsigned at = 0; at < operand.width; at += bits)
    value |= static_cast<uint64_t>(draw(at)) << at;
  return value;
}

uint64_t drawValue(const Operand &operand, Random &random, uint64_t element,
                   uint64_t warpSeed, const std::vector<uint64_t> &before) {
  Format format = operand.format;
  switch (operand.draw) {
  case Draw::Integers:
    return drawInteger(operand.width, random);
  case Draw::Shifts:
    return random.below(4) ? random.below(72) : drawInteger(32, random);
  case Draw::Places:
    return random.below(random.below(4) ? 72 : 256);
  case Draw::Bools:
    return random.below(2);
  case Draw::Divisors: {
    uint64_t mask = operand.width == 64 ? ~0ull : (1ull << operand.width) - 1;
    uint64_t value = drawInteger(operand.width, random) & mask;
    return value ? value : 7;
  }
  case Draw::Floats:
    return perNumber(operand,
                     [&](unsigned) { return drawFloat(format, random); });
  case Draw::Ties:
    return random.below(4) ? drawTie(random) : drawFloat(format, random);
  case Draw::NearIntegers:
    return perNumber(operand,
                     [&](unsigned) { return drawNearInteger(format, random); });
  case Draw::Cancelling:
    return perNumber(operand, [&](unsigned at) {
      if (random.below(2))
        return drawFloat(format, random);
      uint64_t mask = (1ull << formatWidth(format)) - 1;
      size_t last = before.size() - 1;
      double product = decode(format, before[last - 1] >> at & mask) *
                       decode(format, before[last] >> at & mask);
      uint32_t bits = encode(format, -product);
      return (bits + static_cast<uint32_t>(random.between(-2, 2))) &
             static_cast<uint32_t>(mask);
    });
  case Draw::Exponents:
    return perNumber(operand, [&](unsigned) {
      if (random.below(4) == 0)
        return drawFloat(format, random);
      return encode(format, random.between(-10485760, 10485760) /
                                std::ldexp(1, 16 + random.below(12)));
    });
  case Draw::Counting:
    return element;
  case Draw::WarpMasks: {
    Random warp(warpSeed + element / 32);
    uint64_t mask = warp.below(4) ? warp.bits() : 1ull << warp.below(32);
    return mask & 0xffffffff ? mask & 0xffffffff : 0xffffffff;
  }
  case Draw::Few:
    return (random.below(3) * 0x0101010101010101ull) << random.below(2);
  }
  return 0;
}

} // namespace moec::conform
