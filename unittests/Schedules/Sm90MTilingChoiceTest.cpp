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

} // namespace
