//===- LoadsTest.cpp - regrets of configs -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Bench/Loads/Loads.h"

#include <gtest/gtest.h>

using namespace moec::bench;

namespace {

TEST(Loads, ChoosesByOneHalfAndComparesByTheOther) {
  MeasuredLoad load;
  load.observations = {{10, 10, 12, 12}, {8, 8, 11, 13}, {9, 9, 1, 1}};
  EXPECT_EQ(load.getBest(), 1u);
  EXPECT_DOUBLE_EQ(load.getRegret(), 0);
  load.observations[1] = {8, 8, 10, 10};
  EXPECT_DOUBLE_EQ(load.getRegret(), 0.2);
  EXPECT_DOUBLE_EQ(load.getSeconds(1), 9);
}

TEST(Loads, HasNoRegretWhereTheLayerAsCompiledIsBest) {
  MeasuredLoad load;
  load.observations = {{1, 2}, {3, 1}};
  EXPECT_EQ(load.getBest(), 0u);
  EXPECT_DOUBLE_EQ(load.getRegret(), 0);
}

TEST(Loads, HasNoRegretWithoutAClock) {
  MeasuredLoad load;
  load.observations.resize(2);
  EXPECT_FALSE(load.isTimed());
  EXPECT_EQ(load.getBest(), 0u);
  EXPECT_DOUBLE_EQ(load.getRegret(), 0);
  EXPECT_DOUBLE_EQ(load.getSeconds(1), 0);
}

} // namespace
