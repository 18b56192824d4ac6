//===- DeviceFailureTest.cpp - failures of devices are reported -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"
#include "moert/Executor.h"
#include "moert/HostDevice.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace moert;
using namespace moert::test;

namespace {

/// Counts live objects.
template <typename Base>
class Counted : public Base {
public:
  explicit Counted(int &alive) : alive(alive) { ++alive; }
  ~Counted() override { --alive; }

private:
  int &alive;
};

class CountedBuffer : public Counted<Buffer> {
public:
  CountedBuffer(int &alive, std::unique_ptr<Buffer> inner)
      : Counted(alive), inner(std::move(inner)) {}
  void *data() const override { return inner->data(); }
  size_t size() const override { return inner->size(); }

private:
  std::unique_ptr<Buffer> inner;
};

/// The host device, with failing call number `failAt`.
class FailingDevice : public DeviceWithoutGraphs {
public:
  FailingDevice(std::unique_ptr<Device> host, int failAt)
      : failAt(failAt), host(std::move(host)) {}

  int alive = 0;
  int calls = 0;
  const int failAt;

  const std::string &name() const override { return host->name(); }
  Status checkTarget(const std::string &) const override {
    return Status::ok();
  }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes,
                                           size_t alignment) override {
    if (fails())
      return failure();
    Result<std::unique_ptr<Buffer>> inner = host->allocate(bytes, alignment);
    if (!inner)
      return inner;
    return std::unique_ptr<Buffer>(new CountedBuffer(alive, std::move(*inner)));
  }
  Status copyIn(void *dst, const void *src, size_t bytes) override {
    return fails() ? failure() : host->copyIn(dst, src, bytes);
  }
  Status copyOut(void *dst, const void *src, size_t bytes) override {
    return fails() ? failure() : host->copyOut(dst, src, bytes);
  }
  Status fill(Stream &, void *dst, uint8_t value, size_t bytes) override {
    return fails() ? failure() : host->fill(*hostStream(), dst, value, bytes);
  }
  Result<std::unique_ptr<Module>>
  loadModule(const ModuleImage &image) override {
    if (fails())
      return failure();
    ModuleImage failing = image;
    failing.lookup = [this, inner = image.lookup](
                         const std::string &name) -> Result<HostKernelFn> {
      if (fails())
        return failure();
      return inner(name);
    };
    return host->loadModule(failing);
  }
  Result<std::unique_ptr<Stream>> createStream() override {
    if (fails())
      return failure();
    return std::unique_ptr<Stream>(new Counted<Stream>(alive));
  }
  Result<std::unique_ptr<Event>> createEvent() override {
    if (fails())
      return failure();
    return std::unique_ptr<Event>(new Counted<Event>(alive));
  }
  Status launch(Stream &, Kernel &kernel, const LaunchDims &dims,
                const LaunchArgs &args) override {
    if (fails())
      return failure();
    return host->launch(*hostStream(), kernel, dims, args);
  }
  Status record(Stream &, Event &) override {
    return fails() ? failure() : Status::ok();
  }
  Status wait(Stream &, Event &) override {
    return fails() ? failure() : Status::ok();
  }
  Status synchronize(Stream &) override {
    return fails() ? failure() : Status::ok();
  }
  Result<TensorMap> encodeTensorMap(const TensorMapRecipe &recipe) override {
    return host->encodeTensorMap(recipe);
  }

private:
  bool fails() { return ++calls == failAt; }
  static Status failure() { return internalError("injected"); }
  std::unique_ptr<Stream> hostStream() { return *host->createStream(); }

  std::unique_ptr<Device> host;
};

} // namespace

/// Creates, binds, prepares, runs twice and clones; returns the first failure.
static Status useDevice(Device &device, std::vector<float> &y) {
  std::vector<float> x(20 * kWidth, 1.5f), scale(kWidth, 0.5f);
  int32_t offset = 1;
  ExecutorOptions options;
  options.poison = true;
  auto created = Executor::create(makePlan(), device, makeImage(), options);
  if (!created)
    return created.status();
  Executor &executor = **created;
  auto bindBatch = [&](Executor &target) {
    EXPECT_TRUE(target.bind("x", {x.data(), DType::F32, {20, kWidth}, {}}));
    EXPECT_TRUE(target.bind("y", {y.data(), DType::F32, {20, kWidth}, {}}));
    EXPECT_TRUE(target.bind("offset", {&offset, DType::I32, {1}, {}}));
  };
  EXPECT_TRUE(executor.bind("scale", {scale.data(), DType::F32, {kWidth}, {}}));
  bindBatch(executor);
  if (auto report = executor.prepareWeights(); !report) {
    EXPECT_FALSE(executor.run(1)) << "ran on weights that are not prepared";
    return report.status();
  }
  for (int64_t tokens : {2, 20})
    if (Status status = executor.run(tokens); !status) {
      // The executor stays usable after a failed run.
      EXPECT_TRUE(executor.run(tokens));
      return status;
    }
  auto clone = executor.clone();
  if (!clone)
    return clone.status();
  bindBatch(**clone);
  if (Status status = (*clone)->run(20); !status)
    return status;
  return executor.synchronize();
}

TEST(DeviceFailureTest, EveryCallMayFail) {
  int numCalls = 0;
  for (int failAt = 0; failAt <= numCalls; ++failAt) {
    Result<std::unique_ptr<Device>> host = createHostDevice(2);
    ASSERT_TRUE(host);
    FailingDevice device(std::move(*host), failAt);
    std::vector<float> y(20 * kWidth);
    Status status = useDevice(device, y);
    EXPECT_EQ(device.alive, 0)
        << "left behind when call " << failAt << " fails";
    if (failAt == 0) {
      ASSERT_TRUE(status) << status.message();
      EXPECT_EQ(y[0], 2.5f * 2.5f + 3.5f * 3.5f + 1 + 1.5f);
      numCalls = device.calls;
      EXPECT_GT(numCalls, 40);
      continue;
    }
    EXPECT_EQ(status.code(), StatusCode::Internal) << failAt;
    EXPECT_NE(status.message().find("injected"), std::string::npos)
        << status.message();
  }
}

// field-bug: vllm#35566
TEST(DeviceFailureTest, LaunchFailuresNameTheStep) {
  std::vector<std::string> messages;
  for (int failAt = 1; failAt < 60; ++failAt) {
    Result<std::unique_ptr<Device>> host = createHostDevice(1);
    ASSERT_TRUE(host);
    FailingDevice device(std::move(*host), failAt);
    std::vector<float> y(20 * kWidth);
    messages.push_back(useDevice(device, y).message());
  }
  for (const char *expected :
       {"kernel 'spread': injected", "prepare[0]: injected",
        "prepareWeights: tensor 'twice': injected",
        "run: workspace for 2 tokens: injected",
        "variants[0].steps[3]: injected", "variants[1].steps[4]: injected"})
    EXPECT_NE(std::find(messages.begin(), messages.end(), expected),
              messages.end())
        << expected;
}
