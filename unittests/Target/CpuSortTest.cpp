//===- CpuSortTest.cpp - cpu.sort_by_expert, interpreted --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SortHarness.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

using namespace moec;
using namespace moec::test;

namespace {

constexpr char kConfig[] = "#tile.cpu_sort_by_expert";

void run(const RankTensors &tensors) {
  if (tensors.hasCounts())
    tensors.count();
  CompiledKernels kernels(tensors.text(kConfig));
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("rank", 1, tensors.arguments(), tensors.test.tokens);
}

void compareWithInterpreter(const RankCase &test, int64_t lowest,
                            int64_t highest) {
  test::compareWithInterpreter(test, lowest, highest, run);
}

} // namespace

TEST(CpuSortByExpert, SortsStably) {
  RankCase test;
  compareWithInterpreter(test, 0, 7);
  // Empty experts, and all slots to one.
  compareWithInterpreter(test, 2, 3);
  compareWithInterpreter(test, 7, 7);
  test.tokens = 0;
  compareWithInterpreter(test, 0, 7);
  test.tokens = 1;
  test.topK = 1;
  test.numExperts = 1;
  compareWithInterpreter(test, 0, 0);
  test.tokens = 333;
  test.topK = 8;
  test.numExperts = 1024;
  compareWithInterpreter(test, 0, 1023);
}

// field-bug: rocm-libraries#6242
TEST(CpuSortByExpert, LeavesOutWhatIsOutOfRange) {
  RankCase test;
  compareWithInterpreter(test, -2, 9);
  compareWithInterpreter(test, std::numeric_limits<int32_t>::min(),
                         std::numeric_limits<int32_t>::max());
  compareWithInterpreter(test, -1, -1);
}

TEST(CpuSortByExpert, ZeroExperts) {
  RankCase test;
  test.numZeroExperts = 3;
  compareWithInterpreter(test, -2, 13);
  compareWithInterpreter(test, 8, 10);
}

TEST(CpuSortByExpert, LocalExperts) {
  RankCase test;
  test.local = {5, 2, 7};
  compareWithInterpreter(test, -1, 9);
  test.numZeroExperts = 2;
  compareWithInterpreter(test, -1, 11);
  test.numExperts = 200;
  test.local = {199, 0, 64, 63, 100};
  compareWithInterpreter(test, -1, 203);
}

TEST(CpuSortByExpert, PaddingRows) {
  for (int64_t numValid : {0, 1, 20, 50, 90}) {
    RankCase test;
    test.numValid = numValid;
    test.numZeroExperts = 1;
    compareWithInterpreter(test, -1, 9);
  }
}

/// The schedule counts all slots itself.
TEST(CpuSortByExpert, NeedsNoCounts) {
  RankCase test;
  test.chunkTokens = 4;
  compareWithInterpreter(test, 0, 7);
}

TEST(CpuSortByExpert, ByHand) {
  RankCase test;
  test.numExperts = 3;
  test.tokens = 3;
  test.numZeroExperts = 1;
  RankTensors kernel(test);
  double ids[] = {2, 0, 0, 3, -1, 2};
  for (int64_t i = 0; i < 6; ++i) {
    kernel.ids.set(i, ids[i]);
    kernel.weights.set(i, i);
  }
  run(kernel);
  auto check = [](const Array &array, std::vector<double> expected) {
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(array.get(i), expected[i]) << "element " << i;
  };
  check(kernel.offsets, {0, 2, 2, 4});
  check(kernel.position, {2, 0, 1, -2, -1, 3});
  check(kernel.source, {0, 1, 0, 2});
  check(kernel.rowWeight, {1, 2, 0, 5});
}

TEST(CpuSortByExpert, TakesMillisecondsForManyTokens) {
  RankCase test;
  test.tokens = 16384;
  test.topK = 8;
  test.numExperts = 128;
  RankTensors kernel(test);
  std::mt19937 engine(3);
  for (int64_t i = 0; i < kernel.positions; ++i)
    kernel.ids.set(i, engine() % 128);
  CompiledKernels kernels(kernel.text(kConfig));
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  double best = 1;
  for (int repeat = 0; repeat < 5; ++repeat) {
    auto start = std::chrono::steady_clock::now();
    kernels.run("rank", 1, kernel.arguments(), test.tokens);
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  RecordProperty("microseconds", std::to_string(best * 1e6));
  EXPECT_EQ(kernel.offsets.get(128), 131072);
}
