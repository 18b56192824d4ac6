//===- Sm90BodiesTest.cpp - sets of heights that are grown ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../lib/Analysis/Schedules/Sm90/Sm90Bodies.h"

#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <limits>
#include <set>

using namespace moec;
using namespace moec::sm90;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const Bodies kHeights = {8, 16, 32, 64};

/// A point has one tile of so many rows, which takes as long as the lowest body
/// that holds it is high, or has to be cut into several of the highest.
double padTile(llvm::ArrayRef<int64_t> bodies, int64_t rows) {
  if (rows > bodies.back())
    return double((rows + bodies.back() - 1) / bodies.back() * bodies.back()) +
           100;
  return double(*llvm::find_if(bodies, [&](int64_t b) { return b >= rows; }));
}

std::vector<Bodies> grow(llvm::ArrayRef<int64_t> rows, double least = 0.01) {
  return growBodies(kHeights, rows.size(), least,
                    [&](const Bodies &bodies, size_t point) {
                      return padTile(bodies, rows[point]);
                    });
}

TEST(Sm90BodiesTest, OnePointHasTheHeightsThatFitBest) {
  EXPECT_EQ(grow({8}), (std::vector<Bodies>{{8}, {16}, {32}, {64}}));
  EXPECT_EQ(grow({20}).front(), Bodies{32});
}

/// Each alone, then both.
TEST(Sm90BodiesTest, WindowsShareWhatEachWants) {
  std::vector<Bodies> found = grow({8, 64});
  EXPECT_EQ(found.front(), Bodies{8});
  EXPECT_TRUE(llvm::is_contained(found, Bodies{64}));
  EXPECT_TRUE(llvm::is_contained(found, Bodies({8, 64})));
}

TEST(Sm90BodiesTest, AllPointsAreAWindow) {
  std::vector<Bodies> found = grow({8, 16, 32, 64});
  EXPECT_TRUE(llvm::is_contained(found, Bodies({8, 16, 32, 64})));
  EXPECT_FALSE(
      llvm::is_contained(grow({8, 16, 32, 64}, 0.3), Bodies({8, 16, 32, 64})));
}

TEST(Sm90BodiesTest, NothingTwice) {
  std::vector<Bodies> found = grow({8, 8, 16, 16, 64, 64, 8});
  EXPECT_EQ(std::set<Bodies>(found.begin(), found.end()).size(), found.size());
  for (const Bodies &bodies : found)
    EXPECT_TRUE(llvm::is_sorted(bodies));
}

TEST(Sm90BodiesTest, WhatCannotBeIsNotFound) {
  auto time = [](const Bodies &bodies, size_t) {
    return bodies.back() > 16 || bodies.size() > 1 ? infinity
                                                   : double(bodies.back());
  };
  EXPECT_EQ(growBodies(kHeights, 3, 0.01, time),
            (std::vector<Bodies>{{8}, {16}}));
  auto never = [](const Bodies &, size_t) { return infinity; };
  EXPECT_TRUE(growBodies(kHeights, 3, 0.01, never).empty());
}

} // namespace
