//===- MatrixTest.cpp - fragments and verdicts of products ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxConform/Matrix.h"
#include "moec/PtxConform/Number.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

using namespace moec::conform;

namespace {

Product product(Format type, unsigned k) {
  Product made;
  made.a = made.b = type;
  made.k = k;
  return made;
}

std::vector<uint32_t> exactD(const Product &about, const Tile &tile) {
  std::vector<uint32_t> d;
  for (unsigned row = 0; row < about.m; ++row)
    for (unsigned column = 0; column < about.n; ++column) {
      double sum = decode(about.d, tile.c[row * about.n + column]);
      for (unsigned k = 0; k < about.k; ++k)
        sum += decode(about.a, tile.a[row * about.k + k]) *
               decode(about.b, tile.b[k * about.n + column]);
      d.push_back(encode(about.d, sum));
    }
  return d;
}

} // namespace

TEST(MatrixTest, FragmentsHoldEveryPlaceOnce) {
  for (const Product &about :
       {product(Format::BF16, 16), product(Format::F16, 8),
        product(Format::TF32, 8), product(Format::E4M3, 32)}) {
    std::set<std::pair<unsigned, unsigned>> a, b, d;
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned part = 0; part < about.perRegister(); ++part) {
        for (unsigned reg = 0; reg < about.registersA(); ++reg) {
          Place place = placeInA(about, lane, reg, part);
          EXPECT_LT(place.row, about.m);
          EXPECT_LT(place.column, about.k);
          EXPECT_TRUE(a.insert({place.row, place.column}).second);
        }
        for (unsigned reg = 0; reg < about.registersB(); ++reg) {
          Place place = placeInB(about, lane, reg, part);
          EXPECT_LT(place.row, about.k);
          EXPECT_LT(place.column, about.n);
          EXPECT_TRUE(b.insert({place.row, place.column}).second);
        }
      }
      for (unsigned index = 0; index < 4; ++index) {
        Place place = placeInD(lane, index);
        EXPECT_TRUE(d.insert({place.row, place.column}).second);
      }
    }
    EXPECT_EQ(a.size(), about.m * about.k);
    EXPECT_EQ(b.size(), about.k * about.n);
    EXPECT_EQ(d.size(), about.m * about.n);
  }
}

TEST(MatrixTest, ExactIntegersHaveNoError) {
  Random random(7);
  for (Values values : {Values::Integers, Values::Special}) {
    Product about = product(Format::BF16, 16);
    Tile tile = drawTile(about, values, random);
    std::vector<uint32_t> d = exactD(about, tile);
    Verdict verdict;
    judgeTile(about, tile, d, verdict);
    EXPECT_EQ(verdict.error, 0);
    EXPECT_EQ(verdict.failure, "");
    EXPECT_EQ(productBound(about, values), 0);
  }
}

TEST(MatrixTest, AnErrorIsRelativeToTheTerms) {
  Random random(7);
  Product about = product(Format::F16, 16);
  Tile tile = drawTile(about, Values::Normal, random);
  std::vector<uint32_t> d = exactD(about, tile);
  Verdict verdict;
  judgeTile(about, tile, d, verdict);
  EXPECT_LE(verdict.error, std::ldexp(1, -24));
  d[5] = encode(Format::F32, decode(Format::F32, d[5]) + 1);
  judgeTile(about, tile, d, verdict);
  EXPECT_GT(verdict.error, 0.01);
  EXPECT_EQ(verdict.failure, "");
  d[9] = 0x7fffffff;
  judgeTile(about, tile, d, verdict);
  EXPECT_NE(verdict.failure, "");
}
