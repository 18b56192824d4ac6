//===- WatchdogTest.cpp - tests of the watchdog -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Bench/Run/Watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

using moec::bench::Watchdog;

static void sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Waits up to ten seconds for the count to reach the value.
static bool becomes(const std::atomic<int> &count, int value) {
  for (int i = 0; i < 1000 && count != value; ++i)
    sleep(0.01);
  return count == value;
}

TEST(Watchdog, BarksOnceWhenTimeIsOver) {
  std::atomic<int> count{0};
  Watchdog dog([&] { ++count; });
  dog.arm(0.01);
  EXPECT_TRUE(becomes(count, 1));
  sleep(0.05);
  EXPECT_EQ(count, 1);
  dog.arm(0.01);
  EXPECT_TRUE(becomes(count, 2));
}

TEST(Watchdog, IsSilentWhenDisarmedInTime) {
  std::atomic<int> count{0};
  {
    Watchdog dog([&] { ++count; });
    for (int i = 0; i < 3; ++i) {
      dog.arm(100);
      dog.disarm();
    }
    dog.disarm();
    dog.arm(100);
  }
  EXPECT_EQ(count, 0);
}

TEST(Watchdog, ArmingAgainBeginsAnew) {
  std::atomic<int> count{0};
  Watchdog dog([&] { ++count; });
  dog.arm(100);
  dog.arm(0.01);
  EXPECT_TRUE(becomes(count, 1));
}
