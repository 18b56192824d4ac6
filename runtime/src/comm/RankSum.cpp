//===- RankSum.cpp - sums over ranks ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankSum.h"

#include "../support/FloatState.h"

#include <cassert>
#include <cstring>

namespace moert {

namespace {

uint32_t bitsOf(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float floatOf(uint32_t bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Drops the lowest `count` bits, rounding to nearest even.
uint32_t roundOff(uint32_t bits, uint32_t count) {
  uint32_t half = 1u << (count - 1);
  return (bits + half - 1 + (bits >> count & 1)) >> count;
}

struct Single {
  using Stored = float;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
};

struct BFloat {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return floatOf(uint32_t(bits) << 16); }
  static uint16_t store(float value) {
    uint32_t bits = bitsOf(value);
    // Keep a NaN, even if all set bits of its mantissa are dropped.
    if (value != value)
      return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>(roundOff(bits, 16));
  }
};

struct Half {
  using Stored = uint16_t;
  static float load(uint16_t bits) {
    uint32_t sign = uint32_t(bits & 0x8000) << 16;
    uint32_t magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00)
      return floatOf(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude >= 0x400)
      return floatOf(sign | ((magnitude << 13) + (112u << 23)));
    // Subnormal, below 2^-14: the magnitude counts units of 2^-24.
    float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  static uint16_t store(float value) {
    uint32_t bits = bitsOf(value), sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t rounded = 0;
    if (magnitude > 0x7f800000)
      rounded = 0x7e00 | (magnitude >> 13 & 0x1ff);
    else if (magnitude >= 0x477ff000) // 65520 rounds to infinity
      rounded = 0x7c00;
    else if (magnitude >= 113u << 23) // 2^-14
      rounded = roundOff(magnitude - (112u << 23), 13);
    else if (magnitude > 102u << 23) // 2^-25, a tie with 0
      rounded =
          roundOff((magnitude & 0x7fffff) | 0x800000, 126 - (magnitude >> 23));
    return static_cast<uint16_t>(sign | rounded);
  }
};

template <typename Type>
void sumOf(const std::vector<const void *> &sources, void *out, size_t count) {
  using Stored = typename Type::Stored;
  // Elements accumulated at a time.
  constexpr size_t block = 512;
  float sums[block];
  for (size_t begin = 0; begin < count; begin += block) {
    size_t size = count - begin < block ? count - begin : block;
    for (size_t s = 0; s < sources.size(); ++s) {
      const Stored *source = static_cast<const Stored *>(sources[s]) + begin;
      for (size_t i = 0; i < size; ++i)
        sums[i] =
            s == 0 ? Type::load(source[i]) : sums[i] + Type::load(source[i]);
    }
    Stored *to = static_cast<Stored *>(out) + begin;
    for (size_t i = 0; i < size; ++i)
      to[i] = Type::store(sums[i]);
  }
}

} // namespace

void sumRanks(DType dtype, const std::vector<const void *> &sources, void *out,
              size_t count) {
  FloatState state;
  switch (dtype) {
  case DType::F32:
    return sumOf<Single>(sources, out, count);
  case DType::BF16:
    return sumOf<BFloat>(sources, out, count);
  case DType::F16:
    return sumOf<Half>(sources, out, count);
  default:
    assert(false && "checkCollective() refuses other types");
  }
}

} // namespace moert
