//===- WorkShareTest.cpp - tests of the time of comparisons -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../lib/Tools/Verify/WorkShare.h"

#include <gtest/gtest.h>

using moec::WorkShare;
using namespace std::chrono_literals;

TEST(WorkShareTest, ComparisonsOfEachThousandthRunRestThreeTimesAsLong) {
  WorkShare share(1000);
  WorkShare::Clock::time_point start = WorkShare::Clock::now();
  EXPECT_TRUE(share.mayBegin(start));
  share.begin(start);
  share.end(start + 20ms);
  EXPECT_FALSE(share.mayBegin(start + 79ms));
  EXPECT_TRUE(share.mayBegin(start + 80ms));
}

TEST(WorkShareTest, FrequentComparisonsDoNotRest) {
  for (int64_t every : {1, 100, 250}) {
    WorkShare share(every);
    WorkShare::Clock::time_point start = WorkShare::Clock::now();
    share.begin(start);
    share.end(start + 20ms);
    EXPECT_TRUE(share.mayBegin(start + 20ms)) << every;
  }
}
