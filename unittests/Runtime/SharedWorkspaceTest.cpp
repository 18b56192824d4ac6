//===- SharedWorkspaceTest.cpp - workspace that layers share ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Uses moert.hpp, to test the C++ wrapper too.
//
//===----------------------------------------------------------------------===//

#include "CudaTesting.h"
#include "TestPlan.h"
#include "moert/moert.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include <dlfcn.h>

using namespace moert::test;
namespace capi = moert::capi;

namespace {

constexpr int64_t kTokens = 20;

#define ASSERT_DONE(call)                                                      \
  do {                                                                         \
    capi::Error error = (call);                                                \
    ASSERT_FALSE(error) << error.message();                                    \
  } while (false)

class SharedWorkspaceTest : public ::testing::Test {
protected:
  void SetUp() override {
    fake = &resetFakeCuda();
    setenv("MOERT_CUDA_LIBRARY", kFakeDriver, 1);
    ASSERT_DONE(package.open(PACKAGE_FIXTURE));
    ASSERT_DONE(device.createCuda(0));
  }
  void TearDown() override {
    package.reset();
    device.reset();
    unsetenv("MOERT_CUDA_LIBRARY");
    EXPECT_EQ(fake->leaks(), "");
  }

  void allocate(void *&memory, const std::vector<float> &values) {
    ASSERT_DONE(device.allocate(values.size() * 4, &memory));
    ASSERT_DONE(device.copyIn(memory, values.data(), values.size() * 4));
  }

  /// A layer with its weight.
  void load(capi::Layer &layer) {
    ASSERT_DONE(layer.create(package, device));
    void *scale = nullptr;
    allocate(scale, std::vector<float>(kWidth, 0.5f));
    ASSERT_DONE(layer.bind("scale", "f32", scale, {kWidth}));
    ASSERT_DONE(layer.prepareWeights());
  }

  /// Binds a batch of the value `x`; sets `y` to the address of the result.
  void bindBatch(capi::Layer &layer, float x, void *&y) {
    void *in = nullptr, *offset = nullptr;
    allocate(in, std::vector<float>(kTokens * kWidth, x));
    allocate(y, std::vector<float>(kTokens * kWidth));
    int32_t one = 1;
    ASSERT_DONE(device.allocate(4, &offset));
    ASSERT_DONE(device.copyIn(offset, &one, 4));
    ASSERT_DONE(layer.bind("x", "f32", in, {kTokens, kWidth}));
    ASSERT_DONE(layer.bind("offset", "i32", offset, {1}));
    ASSERT_DONE(layer.bind("y", "f32", y, {kTokens, kWidth}, {kWidth, 1}));
  }

  void expectResult(void *y, float x) {
    std::vector<float> found(kTokens * kWidth);
    ASSERT_DONE(device.copyOut(found.data(), y, found.size() * 4));
    std::vector<float> in(kTokens * kWidth, x), scale(kWidth, 0.5f);
    for (float value : found)
      ASSERT_EQ(value, expectedY(in, scale, 1, 0, 0, kTokens));
  }

  FakeCuda *fake = nullptr;
  capi::Package package;
  capi::Device device;
};

} // namespace

TEST_F(SharedWorkspaceTest, TheSizeIsKnownBeforeAnythingIsAllocated) {
  capi::Layer layer;
  ASSERT_DONE(layer.create(package, device));
  int64_t bytes = 0;
  ASSERT_DONE(layer.workspaceBytes(kTokens, bytes));
  // h and z, g, s; multiples of 256.
  EXPECT_EQ(bytes, 768 + 768 + 512);
  EXPECT_TRUE(fake->allocations.empty());
  capi::Error error = layer.workspaceBytes(101, bytes);
  EXPECT_EQ(error.code(), MOERT_OUT_OF_RANGE);
}

TEST_F(SharedWorkspaceTest, LayersOfTwoMicroBatchesShareTwoSlots) {
  capi::Layer layers[2], clones[2];
  capi::Workspace workspace;
  int64_t bytes = 0;
  void *y[4];
  for (int i = 0; i < 2; ++i) {
    load(layers[i]);
    ASSERT_DONE(clones[i].cloneFrom(layers[i]));
    bindBatch(layers[i], 1.5f + static_cast<float>(i), y[i]);
    bindBatch(clones[i], -3.0f * static_cast<float>(i + 1), y[2 + i]);
  }
  ASSERT_DONE(layers[0].workspaceBytes(kTokens, bytes));
  ASSERT_DONE(workspace.create(device, bytes));
  for (int i = 0; i < 2; ++i) {
    ASSERT_DONE(layers[i].useWorkspace(workspace, 0));
    ASSERT_DONE(clones[i].useWorkspace(workspace, 1));
  }
  // Layers keep the memory alive.
  workspace.reset();
  size_t before = fake->allocations.size();
  auto runBatch = [](capi::Layer *batch) {
    for (int i = 0; i < 50; ++i)
      for (int layer = 0; layer < 2; ++layer) {
        ASSERT_DONE(batch[layer].run(kTokens));
        ASSERT_DONE(batch[layer].synchronize());
      }
  };
  std::thread other([&] { runBatch(clones); });
  runBatch(layers);
  other.join();
  EXPECT_EQ(fake->allocations.size(), before);
  expectResult(y[0], 1.5f);
  expectResult(y[1], 2.5f);
  expectResult(y[2], -3.0f);
  expectResult(y[3], -6.0f);
  // Back to the layer's own memory.
  ASSERT_DONE(layers[0].useWorkspace({}, 0));
  ASSERT_DONE(layers[0].run(kTokens));
  EXPECT_EQ(fake->allocations.size(), before + 1);
}

/// A stream of the caller's, captured by the caller.
TEST_F(SharedWorkspaceTest, GraphsOwnWhatTheyAreGiven) {
  using namespace moert::cuda;
  void *driver = dlopen(kFakeDriver, RTLD_NOW | RTLD_NOLOAD);
  auto find = [&](const char *name, auto type) {
    return reinterpret_cast<decltype(type)>(dlsym(driver, name));
  };
  using Create = CUresult (*)(CUstream *, unsigned);
  using OfStream = CUresult (*)(CUstream, int);
  using EndCapture = CUresult (*)(CUstream, CUgraph *);
  using OfGraph = CUresult (*)(CUgraph);
  using Destroy = CUresult (*)(CUstream);
  auto begin = find("cuStreamBeginCapture_v2", OfStream());
  auto end = find("cuStreamEndCapture", EndCapture());

  capi::Layer layer;
  load(layer);
  void *y = nullptr;
  bindBatch(layer, 1.5f, y);
  auto &current = fake->current[std::this_thread::get_id()];
  current = {reinterpret_cast<CUcontext>(uintptr_t(0x1000))};
  CUstream stream = nullptr;
  ASSERT_EQ(find("cuStreamCreate", Create())(&stream, 1), CUDA_SUCCESS);

  int released = 0;
  auto release = [](void *object) { ++*static_cast<int *>(object); };
  capi::Error outside =
      moert_device_retain(device.get(), stream, &released, release);
  EXPECT_EQ(outside.code(), MOERT_INTERNAL);
  EXPECT_EQ(released, 1);

  ASSERT_DONE(layer.run(kTokens));
  EXPECT_EQ(moert_layer_is_captured(layer.get()), 0);
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  // Nothing is launched if the graph cannot own the workspace.
  fake->launches.clear();
  for (const char *call : {"cuUserObjectCreate", "cuGraphRetainUserObject"}) {
    fake->calls.clear();
    fake->failCall = call;
    fake->failAt = 1;
    capi::Error failed = layer.run(kTokens, stream);
    EXPECT_NE(std::string(failed.message()).find(call), std::string::npos);
  }
  fake->failAt = 0;
  EXPECT_TRUE(fake->launches.empty());
  EXPECT_TRUE(fake->userObjects.empty());
  ASSERT_DONE(layer.run(kTokens, stream));
  EXPECT_NE(moert_layer_is_captured(layer.get()), 0);
  ASSERT_DONE(moert_device_retain(device.get(), stream, &released, release));
  CUgraph graph = nullptr;
  ASSERT_EQ(end(stream, &graph), CUDA_SUCCESS);
  layer.reset();
  EXPECT_FALSE(fake->modules.empty());
  ASSERT_EQ(find("cuGraphDestroy", OfGraph())(graph), CUDA_SUCCESS);
  EXPECT_EQ(released, 1);
  void *memory = nullptr;
  ASSERT_DONE(device.allocate(16, &memory));
  EXPECT_EQ(released, 2);
  EXPECT_TRUE(fake->modules.empty());
  ASSERT_EQ(find("cuStreamDestroy_v2", Destroy())(stream), CUDA_SUCCESS);
  current.clear();
  dlclose(driver);
}

TEST_F(SharedWorkspaceTest, SaysWhatIsWrong) {
  capi::Layer layer;
  capi::Workspace workspace;
  load(layer);
  void *y = nullptr;
  bindBatch(layer, 1, y);
  ASSERT_DONE(workspace.create(device, 512));
  capi::Error slot = layer.useWorkspace(workspace, 2);
  EXPECT_STREQ(slot.message(), "useWorkspace: slot 2; 0 and 1 are accepted");
  EXPECT_EQ(slot.code(), MOERT_OUT_OF_RANGE);
  ASSERT_DONE(layer.useWorkspace(workspace, 1));
  EXPECT_STREQ(capi::Error(layer.run(kTokens)).message(),
               "run: the workspace has 512 bytes, 20 tokens need 2048; "
               "allocate what workspaceBytes() returns");
  EXPECT_EQ(workspace.create(device, -1).code(), MOERT_INVALID_ARGUMENT);
  EXPECT_FALSE(workspace);
  fake->memory = 1 << 10;
  EXPECT_EQ(workspace.create(device, 1 << 20).code(), MOERT_RESOURCE_EXHAUSTED);
}
