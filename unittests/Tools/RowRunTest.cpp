//===- RowRunTest.cpp - tests of timed runs of a row ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ClockedDevice.h"
#include "Tools/Bench/Run/Profile.h"
#include "moec/Compiler/Registry.h"
#include "moec/PtxSim/SimDevice.h"

#include <gtest/gtest.h>

using namespace moec;
using namespace moec::bench;
using namespace moec::testing;
using moert::Result;

namespace {

class RowRunTest : public ::testing::Test {
protected:
  void SetUp() override {
    layer.name = "tiny";
    layer.numExperts = layer.localExperts = 4;
    layer.topK = 2;
    layer.hiddenSize = layer.intermediateSize = 64;
    auto opened = ptx::createSimDevice({});
    ASSERT_TRUE(opened);
    simulator = std::move(*opened);
    clocked = std::make_unique<ClockedDevice>(*simulator);
    mlir::DialectRegistry registry;
    registerDialects(registry);
    mlir::MLIRContext context(registry);
    auto made = DeviceGenerator::create(context, *simulator, "sm_90a");
    ASSERT_TRUE(made) << made.status().message();
    generator = std::make_unique<DeviceGenerator>(std::move(*made));
    JitOptions options;
    options.compile.target = "sm_90a";
    options.useCache = false;
    timed =
        std::make_unique<TimedDevice>(static_cast<moert::Device &>(*clocked));
    session.reset(new Session{*timed, *generator, options, 16, 1, true});
    auto compiled = compileLayer(*session, layer, /*withRouter=*/false);
    ASSERT_TRUE(compiled) << compiled.status().message();
    auto placed = LayerOnDevice::create(*session, layer, std::move(*compiled));
    ASSERT_TRUE(placed) << placed.status().message();
    loaded = std::move(*placed);
    auto created = RowRun::create(*session, *loaded, row, 2,
                                  drawRoutings(layer, row, 2, nullptr));
    ASSERT_TRUE(created) << created.status().message();
    run = std::move(*created);
  }

  /// Launches of a run.
  int64_t countLaunches() const {
    const moert::Plan &plan = loaded->getPlan();
    return static_cast<int64_t>(
        plan.variants[plan.findVariant(row.tokens)].steps.size());
  }

  BenchLayer layer;
  Row row = {0, 5, 0, "tiny"};
  std::unique_ptr<moert::Device> simulator;
  std::unique_ptr<ClockedDevice> clocked;
  std::unique_ptr<TimedDevice> timed;
  std::unique_ptr<DeviceGenerator> generator;
  std::unique_ptr<Session> session;
  std::unique_ptr<LayerOnDevice> loaded;
  std::unique_ptr<RowRun> run;
};

} // namespace

TEST_F(RowRunTest, ChecksAndTimes) {
  // Before the first run the outputs are wrong.
  EXPECT_FALSE(run->check());
  ASSERT_TRUE(run->runAll());
  Result<RowCheck> check = run->check();
  ASSERT_TRUE(check) << check.status().message();
  EXPECT_EQ(check->rows, 10);
  EXPECT_LT(check->error, 0.01);

  EXPECT_FALSE(run->observe(1e-5));
  ASSERT_TRUE(run->capture());
  Result<Observation> observation = run->observe(1e-5);
  ASSERT_TRUE(observation) << observation.status().message();
  // A tick per launch, of one run of the two in the graph.
  EXPECT_NEAR(observation->seconds,
              kTick * static_cast<double>(countLaunches()), kTick / 100);
  EXPECT_EQ(clocked->numReplays, observation->replays + 2);
  EXPECT_TRUE(run->checkAgain());

  int called = 0;
  int64_t replays = clocked->numReplays;
  Result<Observation> sustained = run->sustain(
      8 * kTick * static_cast<double>(2 * countLaunches()), [&] { ++called; });
  ASSERT_TRUE(sustained) << sustained.status().message();
  EXPECT_EQ(called, 1);
  EXPECT_EQ(clocked->numReplays - replays, 8 + 2);
  EXPECT_NEAR(sustained->seconds, observation->seconds, kTick / 100);
}

TEST_F(RowRunTest, ProfilesEachLaunch) {
  Result<RowProfile> profile = profileRow(*session, *loaded, *run, row, 2);
  ASSERT_TRUE(profile) << profile.status().message();
  ASSERT_EQ(static_cast<int64_t>(profile->kernels.size()), countLaunches());
  double sum = 0;
  for (const KernelProfile &kernel : profile->kernels)
    sum += kernel.seconds;
  EXPECT_NEAR(sum, profile->graphSeconds, kTick / 100);
  EXPECT_EQ(profile->emptySeconds, 0);

  std::string text;
  llvm::raw_string_ostream os(text);
  printProfile(*profile, row.getName(), layer,
               getWork(layer, row, run->getRoutings()),
               {4e12, 8e14, 1.5e15, "assumed"}, os);
  for (const KernelProfile &kernel : profile->kernels)
    EXPECT_NE(text.find(kernel.name), std::string::npos) << text;
  EXPECT_NE(text.find("sum of kernels"), std::string::npos) << text;
}

TEST_F(RowRunTest, RunsOnceMoreForAProfiler) {
  ASSERT_TRUE(run->runAll());
  EXPECT_GT(clocked->numDependent, 0);
  int64_t ticks = clocked->tick, dependent = clocked->numDependent;
  Result<RowProfile> profile = profileRow(*session, *loaded, *run, row, 0);
  ASSERT_TRUE(profile) << profile.status().message();
  EXPECT_EQ(clocked->tick - ticks, countLaunches());
  EXPECT_EQ(clocked->numDependent, dependent);
  EXPECT_EQ(clocked->numReplays, 0);
  llvm::json::Array launches = describeLaunches(*profile);
  ASSERT_EQ(static_cast<int64_t>(launches.size()), countLaunches());
  for (const llvm::json::Value &value : launches) {
    const llvm::json::Object &launch = *value.getAsObject();
    EXPECT_FALSE(launch.getString("kernel")->empty());
    EXPECT_GT(*launch.getNumber("bytes"), 0);
    EXPECT_GT(*launch.getInteger("ctas"), 0);
    EXPECT_FALSE(launch.get("us"));
  }
  // The next run is unchanged.
  ASSERT_TRUE(run->start(0));
  EXPECT_GT(clocked->numDependent, dependent);
  ASSERT_TRUE(timed->synchronize(run->getStream()));
}
