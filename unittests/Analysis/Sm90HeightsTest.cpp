//===- Sm90HeightsTest.cpp - sets of heights that are grown -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../lib/Analysis/Schedules/Sm90/Sm90Heights.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <limits>
#include <set>

using namespace moec;
using namespace moec::sm90;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const Heights kHeights = {8, 16, 32, 64};

/// A point has one tile of so many rows, which takes as long as the lowest
/// height that holds it has rows, or has to be cut into several of the highest.
double padTile(llvm::ArrayRef<int64_t> tileRows, int64_t rows) {
  if (rows > tileRows.back())
    return double((rows + tileRows.back() - 1) / tileRows.back() *
                  tileRows.back()) +
           100;
  return double(*llvm::find_if(tileRows, [&](int64_t b) { return b >= rows; }));
}

std::vector<Heights> grow(llvm::ArrayRef<int64_t> rows, double least = 0.01) {
  return growHeights(kHeights, rows.size(), least,
                     [&](const Heights &tileRows, size_t point) {
                       return padTile(tileRows, rows[point]);
                     });
}

TEST(Sm90HeightsTest, OnePointHasTheHeightsThatFitBest) {
  EXPECT_EQ(grow({8}), (std::vector<Heights>{{8}, {16}, {32}, {64}}));
  EXPECT_EQ(grow({20}).front(), Heights{32});
}

/// Each alone, then both.
TEST(Sm90HeightsTest, WindowsShareWhatEachWants) {
  std::vector<Heights> found = grow({8, 64});
  EXPECT_EQ(found.front(), Heights{8});
  EXPECT_TRUE(llvm::is_contained(found, Heights{64}));
  EXPECT_TRUE(llvm::is_contained(found, Heights({8, 64})));
}

TEST(Sm90HeightsTest, AllPointsAreAWindow) {
  std::vector<Heights> found = grow({8, 16, 32, 64});
  EXPECT_TRUE(llvm::is_contained(found, Heights({8, 16, 32, 64})));
  EXPECT_FALSE(
      llvm::is_contained(grow({8, 16, 32, 64}, 0.3), Heights({8, 16, 32, 64})));
}

TEST(Sm90HeightsTest, NothingTwice) {
  std::vector<Heights> found = grow({8, 8, 16, 16, 64, 64, 8});
  EXPECT_EQ(std::set<Heights>(found.begin(), found.end()).size(), found.size());
  for (const Heights &tileRows : found)
    EXPECT_TRUE(llvm::is_sorted(tileRows));
}

TEST(Sm90HeightsTest, WhatCannotBeIsNotFound) {
  auto time = [](const Heights &tileRows, size_t) {
    return tileRows.back() > 16 || tileRows.size() > 1
               ? infinity
               : double(tileRows.back());
  };
  EXPECT_EQ(growHeights(kHeights, 3, 0.01, time),
            (std::vector<Heights>{{8}, {16}}));
  auto never = [](const Heights &, size_t) { return infinity; };
  EXPECT_TRUE(growHeights(kHeights, 3, 0.01, never).empty());
}

} // namespace
