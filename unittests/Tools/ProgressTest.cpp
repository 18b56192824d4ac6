//===- ProgressTest.cpp - tests of progress messages ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Progress.h"

#include "gtest/gtest.h"

#include <chrono>
#include <thread>

using namespace moec;

TEST(Progress, TellsThePartThatIsDone) {
  ::testing::internal::CaptureStderr();
  {
    Progress known("moe-run", "weights are read"), unknown("moe-run", "work");
    known.step(1, 3);
    known.step(0, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1800));
    known.step(2, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  }
  std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("moe-run: weights are read ... 66 %, 2 s\n"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("moe-run: work ... 2 s\n"), std::string::npos) << told;
}
