//===- StridedWeightTest.cpp - weights with gaps between rows ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaTesting.h"
#include "moert/CudaDevice.h"
#include "moert/Executor.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

#include <limits>

using namespace moert;
using namespace moert::test;

namespace {

constexpr int64_t kExperts = 2, kRows = 3, kColumns = 4;

/// y[e][r] = sum of w[e][r], over the strides that follow the address of w.
void sumRows(const uint64_t *args, int64_t) {
  auto *w = reinterpret_cast<const float *>(static_cast<uintptr_t>(args[0]));
  auto *y = reinterpret_cast<float *>(static_cast<uintptr_t>(args[3]));
  for (int64_t e = 0; e < kExperts; ++e)
    for (int64_t r = 0; r < kRows; ++r) {
      y[e * kRows + r] = static_cast<float>(args[4]);
      for (int64_t c = 0; c < kColumns; ++c)
        y[e * kRows + r] += w[e * static_cast<int64_t>(args[1]) +
                              r * static_cast<int64_t>(args[2]) + c];
    }
}

Plan makeStridedPlan(const char *target) {
  Plan plan;
  plan.target = target;
  plan.maxTokens = 10;
  TensorDecl w{"w", DType::F32, {kExperts, kRows, kColumns}, TensorRole::Weight,
               -1,  16};
  w.strided = true;
  plan.tensors = {w, {"y", DType::F32, {kExperts * kRows}, TensorRole::Output}};
  plan.kernels = {{"sum_rows", 1}};
  plan.variants = {
      {0,
       10,
       {Step::launch(0, {Argument::ofTensor(0), Argument::ofTensor(1),
                         Argument::ofTokens()})}}};
  return plan;
}

class StridedWeightTest : public ::testing::Test {
protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> made = createHostDevice(1);
    ASSERT_TRUE(made);
    device = std::move(*made);
    ModuleImage image;
    image.lookup = [](const std::string &) -> Result<HostKernelFn> {
      return &sumRows;
    };
    auto created = Executor::create(makeStridedPlan("cpu"), *device, image);
    ASSERT_TRUE(created) << created.status().toString();
    executor = std::move(*created);
    ASSERT_TRUE(executor->bind("y", {y, DType::F32, {kExperts * kRows}, {}}));
  }

  Status bind(std::vector<int64_t> strides) {
    return executor->bind(
        "w", {w, DType::F32, {kExperts, kRows, kColumns}, std::move(strides)});
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;
  alignas(16) float w[256] = {};
  float y[kExperts * kRows] = {};
};

} // namespace

TEST_F(StridedWeightTest, LaunchesPassTheStridesAfterTheAddress) {
  for (auto [expert, row] :
       {std::pair<int64_t, int64_t>(100, 12), {12, 4}, {24, 8}}) {
    std::fill(std::begin(w), std::end(w),
              std::numeric_limits<float>::quiet_NaN());
    for (int64_t e = 0; e < kExperts; ++e)
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t c = 0; c < kColumns; ++c)
          w[e * expert + r * row + c] = static_cast<float>(10 * e + r);
    ASSERT_TRUE(bind({expert, row, 1}));
    ASSERT_TRUE(executor->run(5));
    for (int64_t i = 0; i < kExperts * kRows; ++i)
      EXPECT_EQ(y[i], 4 * (10 * (i / kRows) + i % kRows) + 5) << i;
    EXPECT_EQ(executor->view("w")->strides,
              (std::vector<int64_t>{expert, row, 1}));
  }
  // A contiguous tensor needs no strides.
  std::fill(std::begin(w), std::end(w), 1.5f);
  ASSERT_TRUE(bind({}));
  ASSERT_TRUE(executor->run(5));
  EXPECT_EQ(y[0], 11.0f);
  EXPECT_EQ(executor->view("w")->strides, (std::vector<int64_t>{12, 4, 1}));
  // A clone sees the same strides.
  auto clone = executor->clone();
  ASSERT_TRUE(clone);
  float other[kExperts * kRows];
  ASSERT_TRUE((*clone)->bind("y", {other, DType::F32, {kExperts * kRows}, {}}));
  ASSERT_TRUE((*clone)->run(5));
  EXPECT_TRUE(std::equal(std::begin(y), std::end(y), other));
}

TEST_F(StridedWeightTest, GapsOfAWeightAreNoMemoryForOutputs) {
  ASSERT_TRUE(bind({100, 12, 1}));
  ASSERT_TRUE(
      executor->bind("y", {w + 50, DType::F32, {kExperts * kRows}, {}}));
  EXPECT_EQ(executor->run(5).message(),
            "run 'y': shares memory with the weight 'w', or with the gaps "
            "between its rows; give it its own memory");
  // After the last element, not after the last stride.
  ASSERT_TRUE(
      executor->bind("y", {w + 128, DType::F32, {kExperts * kRows}, {}}));
  EXPECT_TRUE(executor->run(5));
}

// field-bug: transformers#48644
TEST_F(StridedWeightTest, BindChecksTheStrides) {
  constexpr int64_t large = std::numeric_limits<int64_t>::max() / 4;
  struct {
    std::vector<int64_t> strides;
    const char *message;
  } cases[] = {
      {{24, 8, 2},
       "bind 'w': the stride 1 in the last dimension expected, "
       "strides [24, 8, 2] found for shape [2, 3, 4]; make the "
       "tensor contiguous"},
      {{24, 3, 1}, "a stride of at least 4 (no overlap) in dimension 1"},
      {{20, 8, 1}, "a stride of at least 24 (no overlap) in dimension 0"},
      {{4, 8, 1}, "a stride of at least 24 (no overlap) in dimension 0"},
      {{0, 8, 1}, "a stride of at least 24 (no overlap) in dimension 0"},
      {{-24, 8, 1}, "a stride of at least 24 (no overlap) in dimension 0"},
      {{24, 6, 1}, "a stride that is a multiple of 16 bytes in dimension 1"},
      {{25, 8, 1}, "a stride that is a multiple of 16 bytes in dimension 0"},
      {{large, 8, 1}, "fewer than 2^63 bytes in dimension 0"},
      {{8, 1}, "strides [8, 1] found for shape [2, 3, 4]; one per dimension"},
  };
  for (const auto &c : cases) {
    Status status = bind(c.strides);
    EXPECT_NE(status.message().find(c.message), std::string::npos)
        << c.message << "\n  found: " << status.message();
  }
  EXPECT_TRUE(bind({24, 8, 1}));
}

TEST(StridedWeightPlanTest, OnlyMatricesOfWeightsAreStrided) {
  EXPECT_TRUE(verifyPlan(makeStridedPlan("cpu")));
  for (auto change : {+[](Plan &p) { p.tensors[0].role = TensorRole::Input; },
                      +[](Plan &p) { p.tensors[0].shape = {4}; },
                      +[](Plan &p) { p.tensors[0].dtype = DType::F4E2M1; },
                      +[](Plan &p) { p.tensors[1].strided = true; }}) {
    Plan plan = makeStridedPlan("cpu");
    change(plan);
    Status status = verifyPlan(plan);
    EXPECT_NE(status.message().find(
                  "].strided is true; that of a weight of rank 2 or more"),
              std::string::npos)
        << status.message();
  }
}

TEST(StridedWeightPlanTest, OthersAreToldOfTheRemedy) {
  auto device = createHostDevice(1);
  ASSERT_TRUE(device);
  Plan plan = makeStridedPlan("cpu");
  plan.tensors[0].strided = false;
  ModuleImage image;
  image.lookup = [](const std::string &) -> Result<HostKernelFn> {
    return &sumRows;
  };
  auto executor = Executor::create(plan, **device, image);
  ASSERT_TRUE(executor);
  alignas(16) float w[64];
  EXPECT_EQ(
      (*executor)
          ->bind("w", {w, DType::F32, {kExperts, kRows, kColumns}, {24, 8, 1}})
          .message(),
      "bind 'w': strides [12, 4, 1] (contiguous) expected, [24, 8, 1] "
      "found; make the tensor contiguous, or compile the layer with "
      "\"strided_weights\": true in its spec");
}

TEST(StridedWeightPlanTest, StridesGoIntoTensorMaps) {
  FakeCuda &fake = resetFakeCuda();
  fake.numArgs = [](const std::string &) { return 5; };
  fake.numMaps = [](const std::string &) { return 1; };
  uint64_t found[5] = {};
  fake.kernel = [&](const std::string &, const uint64_t *args, int64_t) {
    std::copy(args, args + 5, found);
  };
  auto device = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(device);
  Plan plan = makeStridedPlan("sm_90");
  plan.kernels[0].block = 32;
  plan.kernels[0].tensorMaps = {{0,
                                 {kExperts, kRows, kColumns},
                                 {0, 1, 2},
                                 {1, 1, 1},
                                 {1, 2, kColumns},
                                 0}};
  ModuleImage image;
  image.kind = ModuleImage::Kind::Cubin;
  image.modules = {{0x7f, 'E', 'L', 'F'}};
  auto executor = Executor::create(plan, **device, image);
  ASSERT_TRUE(executor) << executor.status().toString();
  auto w = (*device)->allocate(1024, 256), y = (*device)->allocate(24, 256);
  ASSERT_TRUE(w);
  ASSERT_TRUE(y);
  ASSERT_TRUE((*executor)->bind(
      "y", {(*y)->data(), DType::F32, {kExperts * kRows}, {}}));
  for (int64_t row : {8, 16}) {
    ASSERT_TRUE((*executor)->bind("w", {(*w)->data(),
                                        DType::F32,
                                        {kExperts, kRows, kColumns},
                                        {6 * row, row, 1}}));
    EXPECT_EQ(fake.maps.back().strides,
              (std::vector<uint64_t>{static_cast<uint64_t>(4 * row),
                                     static_cast<uint64_t>(24 * row)}));
    ASSERT_TRUE((*executor)->run(7));
    EXPECT_EQ(found[1], static_cast<uint64_t>(6 * row));
    EXPECT_EQ(found[2], static_cast<uint64_t>(row));
    EXPECT_EQ(found[4], 7u);
  }
  EXPECT_EQ(fake.maps.size(), 2u);
  EXPECT_EQ(fake.mapsOfLaunches.back(), "sum_rows 2");
}
