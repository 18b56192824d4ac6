//===- TimingTest.cpp - tests of timed runs ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Run/Timing.h"
#include "ClockedDevice.h"
#include "Tools/Run/PartTimes.h"

#include "moert/Executor.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

using namespace moec;
using moert::Result;
using moert::Status;

namespace {

/// Counts the launches between two waits.
class QueueingDevice : public moec::testing::ClockedDevice {
public:
  using ClockedDevice::ClockedDevice;
  int64_t numQueued = 0, mostQueued = 0;

  void queue() {
    ++tick;
    mostQueued = std::max(mostQueued, ++numQueued);
  }
  Status synchronize(moert::Stream &stream) override {
    numQueued = 0;
    return ClockedDevice::synchronize(stream);
  }
};

/// One of two ranks; records what they agree on.
class AgreeingRank : public moert::Communicator {
public:
  explicit AgreeingRank(std::vector<std::string> &agreed) : agreed(agreed) {}

  const moert::Mesh &mesh() const override { return theMesh; }
  int64_t rank() const override { return 0; }
  Status agree(const std::string &, const std::string &what) override {
    agreed.push_back(what);
    return Status::ok();
  }
  Status run(moert::Stream &, const moert::Collective &) override {
    return Status::ok();
  }
  Status transfer(moert::Stream &, const moert::Transfer &) override {
    return Status::ok();
  }
  Status synchronize(moert::Stream &) override { return Status::ok(); }
  Status check() override { return Status::ok(); }
  void abort(const std::string &) override {}

private:
  const moert::Mesh theMesh{2, 1};
  std::vector<std::string> &agreed;
};

} // namespace

/// Memory that a rank frees at the end of a part must be free before another
/// rank's kernels wait for it: a GPU that both share frees memory only once all
/// kernels have ended.
TEST(Timing, RanksMeetBeforeEachNumberOfTokens) {
  auto host = moert::createHostDevice();
  ASSERT_TRUE(host) << host.status().toString();
  moert::Plan plan;
  plan.target = "cpu";
  plan.maxTokens = 8;
  plan.variants = {{0, 8, {}}};
  moert::ModuleImage image;
  image.lookup = [](const std::string &name) -> Result<moert::HostKernelFn> {
    return moert::notFound(name);
  };
  auto executor = moert::Executor::create(plan, **host, image);
  ASSERT_TRUE(executor) << executor.status().toString();
  auto stream = (*host)->createStream();
  ASSERT_TRUE(stream) << stream.status().toString();
  std::vector<std::string> agreed;
  RunOptions options;
  options.device = host->get();
  options.repeat = 2;
  options.timesAt = {1, 4};
  options.recorder = std::make_shared<RecordingCommunicator>(
      std::unique_ptr<moert::Communicator>(
          std::make_unique<AgreeingRank>(agreed)));
  auto times = PartTimer(**host, **executor, **stream, options).run();
  ASSERT_TRUE(times) << times.status().toString();
  EXPECT_EQ(agreed, (std::vector<std::string>{"1", "layer", "compute", "4",
                                              "layer", "compute"}));
}

/// A GPU's launch queue is finite, and a launch into a full queue blocks
/// without a time limit.
TEST(Timing, WaitsBeforeAQueueIsFull) {
  auto host = moert::createHostDevice();
  ASSERT_TRUE(host) << host.status().toString();
  QueueingDevice device(**host);
  moert::Plan plan;
  plan.target = "cpu";
  plan.maxTokens = 1;
  plan.variants = {{0, 1, {}}};
  moert::ModuleImage image;
  image.lookup = [](const std::string &name) -> Result<moert::HostKernelFn> {
    return moert::notFound(name);
  };
  auto executor = moert::Executor::create(plan, device, image);
  ASSERT_TRUE(executor) << executor.status().toString();
  auto stream = device.createStream();
  ASSERT_TRUE(stream) << stream.status().toString();
  for (int64_t repeat : {1, 16, 17, 200}) {
    Result<std::vector<double>> seconds =
        timeOnGpu(device, **executor, **stream, repeat, [&] {
          device.queue();
          return Status::ok();
        });
    ASSERT_TRUE(seconds) << seconds.status().toString();
    EXPECT_EQ(*seconds, std::vector<double>(repeat, moec::testing::kTick));
    EXPECT_LE(device.mostQueued, 32);
  }
}
