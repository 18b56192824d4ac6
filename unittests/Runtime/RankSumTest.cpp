//===- RankSumTest.cpp - tests of sums over ranks -------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/comm/RankSum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace moert;

/// The value of 16 bits with `exponentBits` of exponent, by the definition of
/// the format.
static double valueOf(uint16_t bits, int exponentBits) {
  int fractionBits = 15 - exponentBits;
  int bias = (1 << (exponentBits - 1)) - 1;
  int exponent = bits >> fractionBits & ((1 << exponentBits) - 1);
  int fraction = bits & ((1 << fractionBits) - 1);
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponentBits) - 1)
    return fraction ? NAN : sign * INFINITY;
  if (exponent == 0)
    return sign * std::ldexp(fraction, 1 - bias - fractionBits);
  return sign * std::ldexp(fraction + (1 << fractionBits),
                           exponent - bias - fractionBits);
}

/// The sum of one 16-bit element of each source.
static uint16_t sum16(DType dtype, std::vector<uint16_t> values) {
  std::vector<const void *> sources;
  for (uint16_t &value : values)
    sources.push_back(&value);
  uint16_t out = 0;
  sumRanks(dtype, sources, &out, 1);
  return out;
}

TEST(RankSumTest, EveryValueOf16BitsIsItsOwnSum) {
  for (auto [dtype, exponentBits] :
       {std::pair(DType::F16, 5), std::pair(DType::BF16, 8)})
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      uint16_t out = sum16(dtype, {uint16_t(bits)});
      if (std::isnan(valueOf(uint16_t(bits), exponentBits)))
        ASSERT_TRUE(std::isnan(valueOf(out, exponentBits))) << bits;
      else
        ASSERT_EQ(out, bits);
    }
}

/// Random pairs of similar magnitude, to reach all cases of rounding: the sum
/// is the nearest value, ties to even.
TEST(RankSumTest, SumsAreRoundedToTheNearestEvenValue) {
  std::mt19937 random(7);
  for (auto [dtype, exponentBits] :
       {std::pair(DType::F16, 5), std::pair(DType::BF16, 8)}) {
    int numTies = 0;
    uint16_t largest =
        uint16_t(((1 << exponentBits) - 1) << (15 - exponentBits)) - 1;
    for (int i = 0; i < 200000; ++i) {
      auto a = uint16_t(random());
      int offset = int(random() % (4u << (15 - exponentBits)));
      auto b = uint16_t((a ^ (random() & 0x8000)) + offset);
      double x = valueOf(a, exponentBits), y = valueOf(b, exponentBits);
      if (!std::isfinite(x) || !std::isfinite(y))
        continue;
      double exact = double(float(x) + float(y));
      double found = valueOf(sum16(dtype, {a, b}), exponentBits);
      if (std::isinf(found)) {
        // The step above the largest value would equal the one below.
        double top = valueOf(largest, exponentBits);
        double step = top - valueOf(largest - 1, exponentBits);
        ASSERT_GE(std::abs(exact), top + step / 2);
        continue;
      }
      uint16_t bits = sum16(dtype, {a, b});
      double error = std::abs(found - exact);
      for (int direction : {-1, 1}) {
        auto neighbour = uint16_t(bits + direction);
        double other = valueOf(neighbour, exponentBits);
        if (std::isnan(other) || (neighbour & 0x8000) != (bits & 0x8000))
          continue;
        if (std::isinf(other))
          continue;
        double otherError = std::abs(other - exact);
        ASSERT_LE(error, otherError) << a << " + " << b;
        if (error == otherError) {
          ++numTies;
          ASSERT_EQ(bits & 1, 0) << a << " + " << b;
        }
      }
    }
    EXPECT_GT(numTies, 1000);
  }
}

TEST(RankSumTest, RanksAreAddedInTheirOrder) {
  // 2^24 + 1 + 1 loses both ones, 1 + 1 + 2^24 none.
  for (auto [values, expected] :
       {std::pair(std::vector<float>{0x1p24f, 1, 1}, 0x1p24f),
        std::pair(std::vector<float>{1, 1, 0x1p24f}, 0x1p24f + 2)}) {
    std::vector<const void *> sources;
    for (const float &value : values)
      sources.push_back(&value);
    float out = 0;
    sumRanks(DType::F32, sources, &out, 1);
    EXPECT_EQ(out, expected);
  }
  // bf16 has 8 significant bits: 256 + 1 + 1 is 258 if rounded once, else 256.
  EXPECT_EQ(sum16(DType::BF16, {0x4380, 0x3f80, 0x3f80}), 0x4381);
}

TEST(RankSumTest, ManyElementsAndOneOfTheSourcesAsOutput) {
  for (size_t count : {0, 1, 511, 512, 513, 2000}) {
    std::vector<float> a(count + 1), b(count + 1, 3), expected(count + 1);
    for (size_t i = 0; i < count; ++i)
      a[i] = float(i), expected[i] = float(i) + 3;
    sumRanks(DType::F32, {a.data(), b.data()}, a.data(), count);
    EXPECT_EQ(a, expected);
  }
}
