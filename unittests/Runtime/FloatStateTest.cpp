//===- FloatStateTest.cpp - independence of the caller's rounding ---------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/support/FloatState.h"
#include "../../runtime/src/comm/RankSum.h"
#include "../../runtime/src/host/ThreadPool.h"
#include "moert/Balance.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cstring>

#if defined(__SSE2__)
#include <pmmintrin.h>
#endif

using namespace moert;

namespace {

/// Sets a state as libraries built with -ffast-math, or fesetround, leave it.
void spoilState() {
  std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
#endif
}

/// Restores the state of the test's own thread at the end.
class FloatStateTest : public ::testing::Test {
  void TearDown() override { std::fesetround(FE_TONEAREST); }

  FloatState usual;
};

/// Two numbers whose sum is rounded, and a subnormal one.
struct Numbers {
  volatile float one = 1, small = 0x1p-30F, subnormal = 0x1p-140F;
};

bool isUsual() {
  Numbers numbers;
  return numbers.one + numbers.small == 1 && numbers.subnormal * 2 != 0;
}

/// Writes whether CTA `cta` has a new process' floating-point state.
void look(const uint64_t *args, int64_t cta) {
  reinterpret_cast<int8_t *>(static_cast<uintptr_t>(args[0]))[cta] = isUsual();
}

TEST_F(FloatStateTest, ComesBack) {
  spoilState();
  ASSERT_FALSE(isUsual());
  std::feclearexcept(FE_ALL_EXCEPT);
  {
    FloatState state;
    EXPECT_TRUE(isUsual());
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  EXPECT_EQ(std::fetestexcept(FE_INEXACT), 0);
  EXPECT_FALSE(isUsual());
}

// Threads inherit the state of the creator of the pool, and the launching
// thread also computes.
// field-bug: HMMER#106, OpenBLAS#1237
TEST_F(FloatStateTest, KernelsHaveTheirOwn) {
  for (bool isSpoiledBefore : {false, true}) {
    FloatState usual;
    if (isSpoiledBefore)
      spoilState();
    Result<std::unique_ptr<ThreadPool>> pool = ThreadPool::create(3);
    ASSERT_TRUE(pool) << pool.status().message();
    spoilState();
    for (int64_t grid : {1, 200}) {
      std::vector<int8_t> seen(static_cast<size_t>(grid));
      uint64_t arg = reinterpret_cast<uintptr_t>(seen.data());
      (*pool)->run(&look, &arg, grid);
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), grid);
    }
    EXPECT_FALSE(isUsual());
  }
}

TEST_F(FloatStateTest, SumsOfRanksHaveTheirOwn) {
  float values[] = {1, 0x1p-30F}, subnormal = 0x1p-140F, out = 0;
  spoilState();
  sumRanks(DType::F32, {&values[0], &values[1]}, &out, 1);
  EXPECT_EQ(out, 1);
  sumRanks(DType::F32, {&subnormal, &subnormal}, &out, 1);
  float expected = 0x1p-139F;
  EXPECT_EQ(memcmp(&out, &expected, sizeof(out)), 0);
}

/// The order of these sums depends on rounding.
TEST_F(FloatStateTest, ExpertsAreBalancedAlike) {
  std::vector<double> loads = {0.2, 0.5, 0.5, 0.6, 0.1, 0.5,
                               0.5, 0,   0.3, 0.5, 0.3, 0.2};
  BalanceOptions options;
  options.numGroups = 4;
  options.numNodes = 2;
  options.numPhysical = 16;
  options.numRanks = 4;
  Result<std::vector<int64_t>> usual = balanceExperts(loads, options);
  ASSERT_TRUE(usual) << usual.status().message();
  for (int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(rounding);
    EXPECT_EQ(*balanceExperts(loads, options), *usual);
  }
}

} // namespace
