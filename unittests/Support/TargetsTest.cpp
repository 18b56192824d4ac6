//===- TargetsTest.cpp - tests of targets -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Targets.h"

#include "gtest/gtest.h"

using namespace moec;

TEST(TargetsTest, AGpuHasTheBestTargetThatItRuns) {
  const std::pair<const char *, const char *> expected[] = {
      {"sm_80", "sm_80"},  {"sm_86", "sm_80"},   {"sm_89", "sm_80"},
      {"sm_90", "sm_90a"}, {"sm_90a", "sm_90a"}, {"sm_100", "sm_100a"},
      {"sm_103", "sm_80"}, {"sm_120", "sm_80"},  {"cpu", "cpu"},
      {"sm_75", "sm_75"},  {"ada", "ada"},       {"", ""},
  };
  for (auto [given, meant] : expected)
    EXPECT_EQ(resolveTarget(given), meant) << given;
  EXPECT_EQ(chooseTarget("sm_75"), "");
  EXPECT_EQ(chooseTarget("cpu"), "");
}
