//===- NumberTest.cpp - encodings of numbers --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Number.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace moec::conform;

TEST(NumberTest, EveryPatternOfANarrowFormatComesBack) {
  for (Format format :
       {Format::F16, Format::BF16, Format::E4M3, Format::E5M2}) {
    for (uint32_t bits = 0; bits < 1u << formatWidth(format); ++bits) {
      if (isNan(format, bits))
        EXPECT_TRUE(std::isnan(decode(format, bits)));
      else
        ASSERT_EQ(encode(format, decode(format, bits)), bits);
    }
  }
}

TEST(NumberTest, RoundsToNearestEven) {
  // 1 + 2^-11 is halfway between 1 and its neighbour.
  EXPECT_EQ(encode(Format::F16, 1 + std::ldexp(1, -11)), 0x3c00u);
  EXPECT_EQ(encode(Format::F16, 1 + 3 * std::ldexp(1, -11)), 0x3c02u);
  EXPECT_EQ(encode(Format::F32, 1 + std::ldexp(1, -24) + std::ldexp(1, -40)),
            0x3f800001u);
  // Half of the smallest subnormal number, and more.
  EXPECT_EQ(encode(Format::BF16, std::ldexp(1, -134)), 0u);
  EXPECT_EQ(encode(Format::BF16, std::ldexp(3, -135)), 1u);
}

TEST(NumberTest, KnowsTheLimits) {
  EXPECT_EQ(decode(Format::E4M3, 0x7e), 448);
  EXPECT_EQ(encode(Format::E4M3, 1000), 0x7eu);
  EXPECT_EQ(encode(Format::E5M2, 1e9), 0x7cu);
  EXPECT_EQ(encode(Format::F16, 65520), 0x7c00u);
  EXPECT_EQ(encode(Format::F16, 65519), 0x7bffu);
  EXPECT_EQ(encode(Format::S8, -1000), 0x80u);
  EXPECT_EQ(decode(Format::TF32, 0x3f801fff), 1);
}

TEST(NumberTest, TellsNanFromInfinity) {
  EXPECT_FALSE(isNan(Format::F32, 0x7f800000));
  EXPECT_TRUE(isNan(Format::F32, 0xff800001));
  EXPECT_TRUE(isNan(Format::E4M3, 0xff));
  EXPECT_FALSE(isNan(Format::E4M3, 0x7e));
  Bytes bytes = {0x01, 0x7c, 0x00, 0x7c};
  EXPECT_EQ(withOneNan(Format::F16, bytes), (Bytes{0xff, 0xff, 0x00, 0x7c}));
}
