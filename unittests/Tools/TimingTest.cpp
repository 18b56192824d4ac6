//===- TimingTest.cpp - tests of how runs are timed -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "lib/Tools/Run/Timing.h"
#include "ClockedDevice.h"

#include "moert/Executor.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

using namespace moec;
using moert::Result;
using moert::Status;

namespace {

/// Counts what is given to it between one wait and the next.
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

} // namespace

/// A GPU's queue has an end, and who gives it more waits there without a limit.
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
