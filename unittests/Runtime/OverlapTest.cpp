//===- OverlapTest.cpp - tests of overlapping memory ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/executor/Overlap.h"
#include "TestPlan.h"
#include "moert/Executor.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace moert;
using namespace moert::test;

namespace {

constexpr int64_t kRows = 20;
constexpr int64_t kPage = 1024;

/// A layer whose tensors are all in one block of memory.
class OverlapTest : public ::testing::Test {
protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> made = createHostDevice(2);
    ASSERT_TRUE(made);
    device = std::move(*made);
    auto created = Executor::create(makePlan(), *device, makeImage());
    ASSERT_TRUE(created) << created.status().toString();
    executor = std::move(*created);
    std::copy(scale.begin(), scale.end(), at(kPage));
    std::fill_n(at(2 * kPage), kRows * kWidth, 1.5f);
    ASSERT_TRUE(executor->bind("scale", view(kPage, {kWidth})));
    ASSERT_TRUE(executor->prepareWeights());
    ASSERT_TRUE(executor->bind("x", view(2 * kPage, {kRows, kWidth})));
    ASSERT_TRUE(executor->bind("y", view(3 * kPage, {kRows, kWidth})));
    ASSERT_TRUE(executor->bind("offset", {&offset, DType::I32, {1}, {}}));
  }

  /// The address `place` floats after the first one that is aligned for a
  /// workspace.
  float *at(int64_t place) {
    auto address = reinterpret_cast<uintptr_t>(memory.data());
    uintptr_t ahead = (0 - address) % kWorkspaceAlignment / sizeof(float);
    return memory.data() + ahead + place;
  }
  TensorView view(int64_t place, std::vector<int64_t> shape) {
    return {at(place), DType::F32, std::move(shape), {}};
  }
  std::string runAt(int64_t place, int64_t tokens = kRows) {
    Status bound = executor->bind("y", view(place, {kRows, kWidth}));
    return bound ? executor->run(tokens).message() : bound.message();
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;
  std::vector<float> memory = std::vector<float>(16 * kPage);
  const std::vector<float> scale = {0.5f, -1.0f, 2.0f, 0.25f};
  int32_t offset = 3;
};

} // namespace

// field-bug: vllm#29219
TEST_F(OverlapTest, OutputInAWeightIsRefused) {
  const std::string message =
      "run 'y': shares memory with the weight 'scale'; give it its own memory";
  constexpr int64_t size = kRows * kWidth;
  EXPECT_EQ(runAt(kPage), message);
  EXPECT_EQ(runAt(kPage - 2 * kWidth), message);
  EXPECT_EQ(runAt(kPage - size + kWidth), message);
  // Nothing was written, and memory beside the weight may be used.
  EXPECT_TRUE(std::equal(scale.begin(), scale.end(), at(kPage)));
  EXPECT_EQ(runAt(kPage + kWidth), "");
  EXPECT_EQ(runAt(kPage - size), "");
  // A run of fewer tokens does not reach the weight, a run of more does.
  EXPECT_EQ(runAt(kPage - size + kWidth, kRows - 1), "");
  EXPECT_EQ(runAt(kPage - size + kWidth), message);
}

TEST_F(OverlapTest, OutputInAnInputIsRefused) {
  const std::string message =
      "run 'y': shares memory with the input 'x'; give it its own memory";
  EXPECT_EQ(runAt(2 * kPage), message);
  EXPECT_EQ(runAt(2 * kPage + kWidth), message);
  EXPECT_EQ(runAt(3 * kPage), "");
  // After a valid run: only an address changes.
  EXPECT_EQ(runAt(2 * kPage - kWidth), message);
  EXPECT_EQ(runAt(2 * kPage - kWidth), message);
  EXPECT_EQ(runAt(3 * kPage), "");
  EXPECT_EQ(*at(3 * kPage),
            expectedY({1.5f, 1.5f, 1.5f, 1.5f}, scale, offset, 0, 0, kRows));
}

TEST_F(OverlapTest, WorkspaceOfTheCallerIsRefusedInOtherMemory) {
  auto bytes = *executor->workspaceBytes(kRows);
  ASSERT_GT(bytes, 0);
  auto runIn = [&](int64_t place) {
    return executor->run(kRows, WorkspaceView{at(place), bytes}).message();
  };
  EXPECT_EQ(runIn(8 * kPage), "");
  EXPECT_EQ(
      runIn(2 * kPage),
      "run 'x': shares memory with the workspace; give it its own memory");
  EXPECT_EQ(
      runIn(3 * kPage),
      "run 'y': shares memory with the workspace; give it its own memory");
  EXPECT_EQ(runIn(kPage), "run: the workspace shares memory with the weight "
                          "'scale'; give it its own memory");
  EXPECT_TRUE(std::equal(scale.begin(), scale.end(), at(kPage)));
  EXPECT_EQ(runIn(8 * kPage), "");
  // A weight bound anew, in the workspace of earlier runs.
  std::copy(scale.begin(), scale.end(), at(8 * kPage));
  ASSERT_TRUE(executor->bind("scale", view(8 * kPage, {kWidth})));
  ASSERT_TRUE(executor->prepareWeights());
  EXPECT_EQ(runIn(8 * kPage), "run: the workspace shares memory with the "
                              "weight 'scale'; give it its own memory");
}

TEST(BoundMemoryTest, FindsWhatALookAtEveryRangeFinds) {
  std::mt19937 random(1);
  auto draw = [&](uint32_t below) { return uintptr_t(random() % below); };
  for (int round = 0; round < 300; ++round) {
    std::vector<MemoryRange> weights;
    for (size_t i = 0; i < draw(9); ++i) {
      uintptr_t begin = 100 + draw(100);
      weights.push_back({begin, begin + 1 + draw(30), i});
    }
    BoundMemory memory(weights);
    for (int i = 0; i < 20; ++i) {
      uintptr_t begin = 90 + draw(150);
      MemoryRange range = {begin, begin + draw(20), 0};
      const MemoryRange *found = memory.findWeight(range);
      EXPECT_EQ(found != nullptr,
                std::any_of(weights.begin(), weights.end(),
                            [&](const MemoryRange &weight) {
                              return std::max(weight.begin, range.begin) <
                                     std::min(weight.end, range.end);
                            }));
      EXPECT_TRUE(!found || found->overlaps(range));
    }
  }
}
