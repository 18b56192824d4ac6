//===- Sm90MTilingChoiceTest.cpp - sets of BLOCK_M --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Sm90Gemm/MTilingChoice.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <limits>
#include <set>

using namespace moec;
using namespace moec::sm90;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const BlockMs kBlockMs = {8, 16, 32, 64};

/// A point has one tile of so many rows, which takes as long as the lowest
/// BLOCK_M that holds it has rows, or has to be cut into several of the
/// highest.
double padTile(llvm::ArrayRef<int64_t> tileRows, int64_t rows) {
  if (rows > tileRows.back())
    return double((rows + tileRows.back() - 1) / tileRows.back() *
                  tileRows.back()) +
           100;
  return double(*llvm::find_if(tileRows, [&](int64_t b) { return b >= rows; }));
}

std::vector<BlockMs> grow(llvm::ArrayRef<int64_t> rows, double least = 0.01) {
  return growBlockMs(kBlockMs, rows.size(), least,
                     [&](const BlockMs &tileRows, size_t point) {
                       return padTile(tileRows, rows[point]);
                     });
}

TEST(Sm90MTilingChoiceTest, OnePointHasTheBlockMsThatFitBest) {
  EXPECT_EQ(grow({8}), (std::vector<BlockMs>{{8}, {16}, {32}, {64}}));
  EXPECT_EQ(grow({20}).front(), BlockMs{32});
}

/// Each alone, then both.
TEST(Sm90MTilingChoiceTest, WindowsShareWhatEachWants) {
  std::vector<BlockMs> found = grow({8, 64});
  EXPECT_EQ(found.front(), BlockMs{8});
  EXPECT_TRUE(llvm::is_contained(found, BlockMs{64}));
  EXPECT_TRUE(llvm::is_contained(found, BlockMs({8, 64})));
}

TEST(Sm90MTilingChoiceTest, AllPointsAreAWindow) {
  std::vector<BlockMs> found = grow({8, 16, 32, 64});
  EXPECT_TRUE(llvm::is_contained(found, BlockMs({8, 16, 32, 64})));
  EXPECT_FALSE(
      llvm::is_contained(grow({8, 16, 32, 64}, 0.3), BlockMs({8, 16, 32, 64})));
}

TEST(Sm90MTilingChoiceTest, NothingTwice) {
  std::vector<BlockMs> found = grow({8, 8, 16, 16, 64, 64, 8});
  EXPECT_EQ(std::set<BlockMs>(found.begin(), found.end()).size(), found.size());
  for (const BlockMs &tileRows : found)
    EXPECT_TRUE(llvm::is_sorted(tileRows));
}

TEST(Sm90MTilingChoiceTest, WhatCannotBeIsNotFound) {
  auto time = [](const BlockMs &tileRows, size_t) {
    return tileRows.back() > 16 || tileRows.size() > 1
               ? infinity
               : double(tileRows.back());
  };
  EXPECT_EQ(growBlockMs(kBlockMs, 3, 0.01, time),
            (std::vector<BlockMs>{{8}, {16}}));
  auto never = [](const BlockMs &, size_t) { return infinity; };
  EXPECT_TRUE(growBlockMs(kBlockMs, 3, 0.01, never).empty());
}

//===----------------------------------------------------------------------===//
// Skewed loads
//===----------------------------------------------------------------------===//

/// At each point a uniform load has one tile of so many rows, and a skewed one
/// has a second one.
struct Load {
  int64_t rows, more;
};

BlockMs adapt(const BlockMs &chosen, llvm::ArrayRef<Load> loads,
              double penalty = 0.002) {
  return adaptBlockMs(
      kBlockMs, chosen, loads.size(), penalty,
      [&](const BlockMs &tileRows, size_t point, bool isSkewed) {
        double us = padTile(tileRows, loads[point].rows);
        return isSkewed ? us + padTile(tileRows, loads[point].more) : us;
      });
}

TEST(Sm90MTilingChoiceTest, ASkewedLoadGetsALowerBlockM) {
  EXPECT_EQ(adapt({64}, {{64, 10}}), BlockMs({16, 64}));
  EXPECT_EQ(adapt({64}, {{64, 10}, {64, 30}}), BlockMs({16, 32, 64}));
}

TEST(Sm90MTilingChoiceTest, TheLargestBlockMStays) {
  for (const BlockMs &chosen : {BlockMs{32}, {64}, {16, 64}})
    EXPECT_EQ(adapt(chosen, {{20, 5}, {30, 50}}).back(), chosen.back());
}

/// A saving that is smaller than the penalty is none.
TEST(Sm90MTilingChoiceTest, AValueHasToPayForItself) {
  // 48 of 128 rows less with the skewed load, which counts half.
  EXPECT_EQ(adapt({64}, {{64, 10}}, 0.18), BlockMs({16, 64}));
  EXPECT_EQ(adapt({64}, {{64, 10}}, 0.20), BlockMs{64});
}

/// 32 would suit the skewed load, but takes the place of nothing here: without
/// 16 the uniform load is padded.
TEST(Sm90MTilingChoiceTest, AUniformLoadKeepsItsBlockM) {
  EXPECT_EQ(adapt({16, 64}, {{16, 32}}, 0.9), BlockMs({16, 64}));
  // Nothing needs the 8, so 32 takes its place at no penalty.
  EXPECT_EQ(adapt({8, 64}, {{64, 32}}, 0.9), BlockMs({32, 64}));
}

/// Only for the sake of skewed loads.
TEST(Sm90MTilingChoiceTest, EqualLoadsKeepWhatWasChosen) {
  auto time = [](const BlockMs &tileRows, size_t, bool) {
    return padTile(tileRows, 10);
  };
  EXPECT_EQ(adaptBlockMs(kBlockMs, {64}, 2, 0.001, time), BlockMs{64});
}

} // namespace
