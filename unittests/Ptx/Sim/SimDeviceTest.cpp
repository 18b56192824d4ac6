//===- SimDeviceTest.cpp - tests of the simulator as a device ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxSim/SimDevice.h"

#include "SimulatorTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::test;
using moert::Result;
using moert::Status;

namespace {

#define EXPECT_MESSAGE(text, part)                                             \
  EXPECT_NE((text).find(part), std::string::npos) << (text)

/// Tests with a kernel that adds one to a word.
class SimDeviceTest : public ::testing::Test {
protected:
  void open(uint64_t seed) {
    SimDeviceOptions options;
    options.simulator.seed = seed;
    Result<std::unique_ptr<moert::Device>> made = createSimDevice(options);
    ASSERT_TRUE(made);
    device = std::move(*made);
    moert::ModuleImage image;
    image.kind = moert::ModuleImage::Kind::Ptx;
    std::string text = kernelText("ld.global.b32 %r1, [%rd0];\n"
                                  "add.s32 %r1, %r1, 1;\n"
                                  "st.global.b32 [%rd0], %r1;",
                                  1, 1);
    image.modules.push_back({text.begin(), text.end()});
    image.modules[0].push_back(0);
    Result<std::unique_ptr<moert::Module>> loaded = device->loadModule(image);
    ASSERT_TRUE(loaded) << loaded.status().message();
    module = std::move(*loaded);
    kernel = *module->kernel("k");
    buffer = std::move(*device->allocate(4, 256));
    first = std::move(*device->createStream());
    second = std::move(*device->createStream());
    event = std::move(*device->createEvent());
    uint32_t zero = 0;
    ASSERT_TRUE(device->copyIn(buffer->data(), &zero, 4));
  }
  void TearDown() override {
    // Objects of a device must be destroyed before it.
    event.reset();
    first.reset();
    second.reset();
    buffer.reset();
    module.reset();
    device.reset();
  }

  Status addOne(moert::Stream &stream) {
    uint64_t slot = reinterpret_cast<uintptr_t>(buffer->data());
    moert::LaunchDims dims;
    dims.grid = dims.block = 1;
    moert::LaunchArgs args;
    args.slots = &slot;
    args.numSlots = 1;
    return device->launch(stream, *kernel, dims, args);
  }
  uint32_t read() {
    uint32_t value = 0;
    Status status = device->copyOut(&value, buffer->data(), 4);
    EXPECT_TRUE(status) << status.message();
    return value;
  }

  std::unique_ptr<moert::Device> device;
  std::unique_ptr<moert::Module> module;
  moert::Kernel *kernel = nullptr;
  std::unique_ptr<moert::Buffer> buffer;
  std::unique_ptr<moert::Stream> first, second;
  std::unique_ptr<moert::Event> event;
};

TEST_F(SimDeviceTest, StreamsKeepTheirOrder) {
  open(1);
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(addOne(*first));
  EXPECT_EQ(read(), 5u);
}

TEST_F(SimDeviceTest, EventsOrderStreams) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    open(seed);
    ASSERT_TRUE(addOne(*first));
    ASSERT_TRUE(device->record(*first, *event));
    ASSERT_TRUE(device->wait(*second, *event));
    ASSERT_TRUE(addOne(*second));
    EXPECT_EQ(read(), 2u);
    TearDown();
  }
}

TEST_F(SimDeviceTest, StreamsWithoutEventsRace) {
  open(1);
  ASSERT_TRUE(addOne(*first));
  ASSERT_TRUE(addOne(*second));
  EXPECT_MESSAGE(device->synchronize(*first).message(), "race");
}

TEST_F(SimDeviceTest, FillsAreInTheStream) {
  open(1);
  ASSERT_TRUE(addOne(*first));
  ASSERT_TRUE(device->fill(*first, buffer->data(), 1, 4));
  ASSERT_TRUE(addOne(*first));
  EXPECT_EQ(read(), 0x01010102u);
}

TEST_F(SimDeviceTest, GraphsAreCallsMadeAgain) {
  open(1);
  Result<std::unique_ptr<moert::Graph>> graph =
      moert::captureGraph(*device, *first, [&] { return addOne(*first); });
  ASSERT_TRUE(graph);
  EXPECT_EQ(read(), 0u);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(device->launchGraph(*first, **graph));
  EXPECT_EQ(read(), 3u);
}

TEST_F(SimDeviceTest, MayBeAnotherGpu) {
  SimDeviceOptions options;
  options.architecture = "sm_100";
  auto made = createSimDevice(options);
  ASSERT_TRUE(made);
  EXPECT_TRUE((*made)->checkTarget("sm_80"));
  EXPECT_TRUE((*made)->checkTarget("sm_100a"));
  EXPECT_FALSE((*made)->checkTarget("sm_90a"));
}

TEST_F(SimDeviceTest, SaysWhatItTakes) {
  open(0);
  EXPECT_EQ(device->architecture(), "sm_90");
  EXPECT_FALSE(device->takesMachineCode());
  EXPECT_TRUE(device->checkTarget("sm_80"));
  EXPECT_TRUE(device->checkTarget("sm_90a"));
  EXPECT_FALSE(device->checkTarget("sm_100a"));
  EXPECT_FALSE(device->checkTarget("cpu"));
  moert::ModuleImage cubin;
  cubin.kind = moert::ModuleImage::Kind::Cubin;
  EXPECT_FALSE(device->loadModule(cubin));
  EXPECT_FALSE(device->checkAddress(&cubin));
  EXPECT_TRUE(device->checkAddress(buffer->data()));
  moert::LaunchDims dims = {132, 128, 0};
  dims.resident = true;
  EXPECT_TRUE(device->checkResident(*kernel, dims));
  dims.grid = 133;
  EXPECT_EQ(
      device->checkResident(*kernel, dims).message(),
      "kernel 'k' needs 133 CTAs at once, but the simulated GPU runs at most "
      "132; compile the layer by moe-compile with "
      "--disable=join-products,quantize-inputs");
}

} // namespace
