//===- TensorMapTest.cpp - tests of a plan's tensor maps --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaTesting.h"
#include "TestPlan.h"
#include "moert/CudaDevice.h"
#include "moert/Executor.h"

#include <gtest/gtest.h>

using namespace moert;
using namespace moert::test;

namespace {

uint64_t addressOf(const void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

class TensorMapTest : public ::testing::Test {
protected:
  void SetUp() override {
    fake = &resetFakeCuda();
    Result<std::unique_ptr<Device>> made = createCudaDevice(0, kFakeDriver);
    ASSERT_TRUE(made);
    device = std::move(*made);
    for (size_t bytes : {20 * kWidth * 4, kWidth * 4, int64_t(4),
                         20 * kWidth * 4, kWidth * 4}) {
      auto buffer = device->allocate(static_cast<size_t>(bytes), 256);
      ASSERT_TRUE(buffer);
      buffers.push_back(std::move(*buffer));
    }
    auto created = Executor::create(makeGpuPlan(), *device, makePtxImage());
    ASSERT_TRUE(created) << created.status().toString();
    executor = std::move(*created);
  }

  void bindBatch(Executor &to) {
    ASSERT_TRUE(to.bind("x", {at(0), DType::F32, {20, kWidth}, {}}));
    ASSERT_TRUE(to.bind("offset", {at(2), DType::I32, {1}, {}}));
    ASSERT_TRUE(to.bind("y", {at(3), DType::F32, {20, kWidth}, {}}));
  }

  Status bindScale(int buffer) {
    return executor->bind("scale", {at(buffer), DType::F32, {kWidth}, {}});
  }

  void *at(int index) { return buffers[index]->data(); }

  FakeCuda *fake = nullptr;
  std::unique_ptr<Device> device;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::unique_ptr<Executor> executor;
};

struct Refusal {
  void (*change)(Plan &);
  const char *message;
};

} // namespace

// field-bug: sglang#28676
TEST_F(TensorMapTest, ThoseOfWeightsAreEncodedAtBind) {
  ASSERT_TRUE(bindScale(1));
  ASSERT_EQ(fake->maps.size(), 1u);
  EXPECT_EQ(fake->maps[0].address, addressOf(at(1)));
  EXPECT_EQ(fake->maps[0].sizes, (std::vector<uint64_t>{kWidth}));
  ASSERT_TRUE(executor->prepareWeights());
  EXPECT_EQ(fake->maps.size(), 1u);
  EXPECT_EQ(fake->mapsOfLaunches[0], "prepare_scale 1");
  // Unchanged memory needs no new map, other memory does.
  ASSERT_TRUE(bindScale(1));
  EXPECT_EQ(fake->maps.size(), 1u);
  ASSERT_TRUE(bindScale(4));
  ASSERT_EQ(fake->maps.size(), 2u);
  EXPECT_EQ(fake->maps[1].address, addressOf(at(4)));
}

TEST_F(TensorMapTest, ThoseOfBuffersFollowTheWorkspace) {
  ASSERT_TRUE(bindScale(1));
  ASSERT_TRUE(executor->prepareWeights());
  bindBatch(*executor);
  ASSERT_TRUE(executor->run(20));
  ASSERT_EQ(fake->maps.size(), 3u);
  EXPECT_EQ(fake->mapsOfLaunches.back(), "spread 2 3");
  EXPECT_EQ(fake->maps[1].address, addressOf(at(0)));
  EXPECT_EQ(fake->maps[1].sizes, (std::vector<uint64_t>{kWidth, 20}));
  EXPECT_EQ(fake->maps[1].swizzle, cuda::CU_TENSOR_MAP_SWIZZLE_32B);
  EXPECT_EQ(fake->maps[2].address, addressOf(executor->view("h")->data));
  EXPECT_EQ(fake->maps[2].sizes, (std::vector<uint64_t>{kWidth, 40}));
  EXPECT_EQ(fake->maps[2].strides, (std::vector<uint64_t>{kWidth * 4}));

  // Unchanged runs encode nothing.
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(executor->run(20));
  EXPECT_EQ(fake->maps.size(), 3u);
  EXPECT_EQ(fake->mapsOfLaunches.back(), "spread 2 3");

  // With another workspace only h moves.
  auto workspace = device->allocate(1 << 16, 256);
  ASSERT_TRUE(workspace);
  ASSERT_TRUE(executor->run(20, {(*workspace)->data(), 1 << 16}));
  ASSERT_EQ(fake->maps.size(), 4u);
  EXPECT_EQ(fake->mapsOfLaunches.back(), "spread 2 4");
  EXPECT_EQ(fake->maps[3].address, addressOf(executor->view("h")->data));

  // A clone has its own batch and workspace, and shares the weights' maps.
  auto clone = executor->clone();
  ASSERT_TRUE(clone);
  bindBatch(**clone);
  ASSERT_TRUE((*clone)->run(20));
  EXPECT_EQ(fake->mapsOfLaunches.back(), "spread 2 5");

  // A call without tokens needs no maps.
  ASSERT_TRUE(executor->run(0));
  EXPECT_EQ(fake->maps.size(), 5u);
}

/// An input with a map is not only moved as an argument.
TEST_F(TensorMapTest, ThoseOfInputsFollowThem) {
  ASSERT_TRUE(bindScale(1));
  ASSERT_TRUE(executor->prepareWeights());
  bindBatch(*executor);
  ASSERT_TRUE(executor->run(20));
  EXPECT_EQ(fake->mapsOfLaunches.back(), "spread 2 3");
  auto other = device->allocate(20 * kWidth * 4, 256);
  ASSERT_TRUE(other);
  ASSERT_TRUE(
      executor->bind("x", {(*other)->data(), DType::F32, {20, kWidth}, {}}));
  ASSERT_TRUE(executor->run(20));
  ASSERT_EQ(fake->maps.size(), 4u);
  EXPECT_EQ(fake->maps[3].address, addressOf((*other)->data()));
  EXPECT_EQ(fake->mapsOfLaunches.back(), "spread 4 3");
}

TEST_F(TensorMapTest, DriversWithoutThemAreNamed) {
  fake->failCode = cuda::CUDA_ERROR_NOT_SUPPORTED;
  fake->failAt = static_cast<int>(fake->calls.size()) + 7;
  Status status = bindScale(1);
  EXPECT_EQ(fake->calls[fake->failAt - 1], "cuTensorMapEncodeTiled");
  EXPECT_NE(status.message().find("bind 'scale': kernels[0].tensor_maps[0] of "
                                  "'scale': cuTensorMapEncodeTiled: "),
            std::string::npos)
      << status.message();
  // A failed encoding is not cached.
  fake->failAt = 0;
  EXPECT_TRUE(bindScale(1));
  EXPECT_EQ(fake->maps.size(), 1u);
}

// field-bug: vllm#51661
TEST(TensorMapPlanTest, RefusesWhatTheDriverWould) {
  const Refusal cases[] = {
      {[](Plan &p) { p.kernels[1].tensorMaps[0].argument = 4; },
       "kernels[1].tensor_maps[0].argument is 4; an index into "
       "variants[0].steps[0].args, of which there are 4,"},
      {[](Plan &p) { p.kernels[1].tensorMaps[0].argument = 3; },
       "argument is 3, a scalar in variants[0].steps[0]; the index of a "
       "tensor"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].sizes.clear(); },
       "kernels[1].tensor_maps[1].sizes is of rank 0; a rank from 1 to 5"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].sizes.assign(6, 1); },
       "sizes is of rank 6"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].steps.pop_back(); },
       "steps is [1], of 1 dimensions; one entry per dimension, 2,"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].sizes[1] = 0; },
       "sizes[1] is 0; 1 to 2^32, or -1 for the tensor's own rows,"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].sizes[1] = -1; },
       "sizes[1] is the tensor's own rows, in steps of 1 along dimension 1"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].sizes[0] = 5; },
       "sizes[0] is 5; -1, the tensor's own rows, (those of 'h' depend on the "
       "tokens)"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].sizes[1] = 5; },
       "sizes[1] is 5, in steps of 1; what stays within the 4 indices of 'h' "
       "in "
       "dimension 1"},
      {[](Plan &p) { p.kernels[0].tensorMaps[0].steps[0] = 2; },
       "sizes[0] is 4, in steps of 2; what stays within"},
      {[](Plan &p) {
         p.kernels[0].tensorMaps[0].sizes[0] = int64_t(1) << 32;
         p.kernels[0].tensorMaps[0].steps[0] = int64_t(1) << 32;
       },
       "sizes[0] is 4294967296, in steps of 4294967296; what stays within"},
      {[](Plan &p) { p.kernels[0].tensorMaps[0].steps[0] = 0; },
       "steps[0] is 0; 1 to 2^32"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].along[1] = 2; },
       "along[1] is 2; a dimension of 'h', which has 2,"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].along[1] = -1; },
       "along[1] is -1;"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].box[0] = 257; },
       "box[0] is 257; 1 to 256"},
      {[](Plan &p) { p.kernels[1].tensorMaps[1].box[1] = 3; },
       "box[1] is 3, or 12 bytes; a multiple of 16 bytes is"},
      {[](Plan &p) { p.kernels[1].tensorMaps[0].box[1] = 12; },
       "box[1] is 12, or 48 bytes; a multiple of 16 bytes up to the swizzle, "
       "32,"},
      {[](Plan &p) { p.kernels[1].tensorMaps[0].swizzleBytes = 16; },
       "swizzle is 16; 0, 32, 64 or 128"},
      {[](Plan &p) { p.tensors[X].alignment = 8; },
       "kernels[1].tensor_maps[0].argument is 'x' on multiples of 8 bytes; a "
       "tensor whose alignment is a multiple of 16"},
      {[](Plan &p) { p.tensors[X].dtype = DType::BF16; },
       "steps[0] is 1, or 8 bytes of 'x'; a multiple of 16 bytes below 2^40"},
      {[](Plan &p) { p.tensors[X].dtype = DType::F4E2M1; },
       "argument is 'x' of f4e2m1; a tensor whose elements are whole bytes"},
      {[](Plan &p) {
         p.kernels[1].tensorMaps[0].sizes = {-1};
         p.kernels[1].tensorMaps[0].along = {0};
         p.kernels[1].tensorMaps[0].steps = {1};
         p.kernels[1].tensorMaps[0].box = {4};
       },
       "along[0] is 0; a step of 1 along the last dimension of 'x'"},
      {[](Plan &p) {
         p.kernels[1].tensorMaps.assign(32, p.kernels[1].tensorMaps[0]);
       },
       "variants[0].steps[0].args is with the kernel's tensor maps of 4128 "
       "bytes; up to 4096 bytes"},
  };
  ASSERT_TRUE(verifyPlan(makeGpuPlan()));
  for (const Refusal &c : cases) {
    Plan plan = makeGpuPlan();
    c.change(plan);
    Status status = verifyPlan(plan);
    EXPECT_NE(status.message().find(c.message), std::string::npos)
        << c.message << "\n  found: " << status.message();
  }
}
