//===- FragmentsTest.cpp - tests of the order of tensor cores ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Fragments.h"

#include "gtest/gtest.h"

#include <set>

using namespace mlir;
using namespace moec::moe;

namespace {

class FragmentsTest : public ::testing::Test {
protected:
  FragmentsTest() {
    context.loadDialect<MoeDialect>();
    layouts.push_back({});
    for (GateUpOrder order :
         {GateUpOrder::GateUp, GateUpOrder::UpGate, GateUpOrder::Interleaved})
      layouts.push_back(WeightLayoutAttr::get(&context, order));
  }

  MLIRContext context;
  std::vector<WeightLayoutAttr> layouts;
};

constexpr int64_t kRows = 256, kDepth = 192;

} // namespace

/// Each bit of the memory that a matrix has in pairs is one of one element.
TEST_F(FragmentsTest, CodesFillTheirMemory) {
  for (WeightLayoutAttr layout : layouts) {
    std::set<int64_t> seen;
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t element = 0; element < kDepth; ++element) {
        Fragments::Place place =
            Fragments::getPlace(row, element, kRows, layout);
        for (int64_t bit : place.bits)
          seen.insert(place.firstRow * kDepth * 4 + place.word * 32 + bit);
      }
    EXPECT_EQ(int64_t(seen.size()), kRows * kDepth * 4);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), kRows * kDepth * 4 - 1);
  }
}

TEST_F(FragmentsTest, ScalesFillTheirMemory) {
  constexpr int64_t groups = kDepth / Fragments::kGroup;
  for (WeightLayoutAttr layout : layouts) {
    std::set<int64_t> seen;
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t group = 0; group < groups; ++group) {
        Fragments::ScalePlace place =
            Fragments::getScalePlace(row, group, kRows, layout);
        seen.insert(place.firstRow * groups + place.byte);
      }
    EXPECT_EQ(int64_t(seen.size()), kRows * groups);
    EXPECT_EQ(*seen.rbegin(), kRows * groups - 1);
  }
}

/// A thread's four words of a unit are the fragments that PTX gives it: row
/// 16 w + g and 8 on, columns 2 c and 8 on, of 16 of the depth each.
TEST_F(FragmentsTest, WordsAreFragments) {
  // Where bf16 has sign, exponent and mantissa, after a shift by 3 or 6.
  for (int64_t thread : {0, 5, 37, 95, 127})
    for (int64_t product = 0; product < 4; ++product)
      for (int64_t pair = 0; pair < 3; ++pair) {
        int64_t warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
        Fragments::Place place = Fragments::getPlace(
            /*row=*/64 + 16 * warp + g + pair % 2 * 8,
            /*element=*/64 + 16 * product + 2 * c + pair / 2 * 8, kRows, {});
        EXPECT_EQ(place.firstRow, 64 + warp / 2 * 32);
        EXPECT_EQ(place.word, 256 + thread % 64 * 4 + product);
        EXPECT_EQ(place.bits[0], 15 - 3 * pair);
        EXPECT_EQ(place.bits[1], 8 - 3 * pair);
        EXPECT_EQ(place.bits[3], 6 - 3 * pair);
      }
}

/// A block's runs are of gate and of up where these are halves.
TEST_F(FragmentsTest, BlocksKeepTheirMemory) {
  EXPECT_EQ(Fragments::getRunRow(1, 1, kRows, layouts[0]), 96);
  EXPECT_EQ(Fragments::getRunRow(1, 1, kRows, layouts[1]), 128 + 32);
  EXPECT_EQ(Fragments::getRunRow(1, 1, kRows, layouts[3]), 96);
}

TEST_F(FragmentsTest, RefusesWhatIsNoWholeUnits) {
  EXPECT_EQ(Fragments::whyNot(128, 7168, {}), "");
  EXPECT_EQ(Fragments::whyNot(128, 96, {}), "K = 96 is no multiple of 64");
  EXPECT_EQ(Fragments::whyNot(96, 128, {}), "N = 96 is no multiple of 64");
  EXPECT_EQ(Fragments::whyNot(128, 7232, {}), "K = 7232 is above 7168");
}
