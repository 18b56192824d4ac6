//===- CudaGraphTest.cpp - tests of captured runs ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaRun.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

using namespace moert;
using namespace moert::test;

namespace {

/// A run of few tokens uses one stream, a run of many two.
constexpr int64_t kFew = 3, kMany = 20;

class CudaGraphTest : public ::testing::Test {
protected:
  void SetUp() override {
    fake = &resetFakeCuda();
    loaded = std::make_unique<Loaded>(makeGpuPlan());
    ASSERT_TRUE(executor().prepareWeights());
    for (std::unique_ptr<Stream> *stream : {&first, &second}) {
      auto made = device().createStream();
      ASSERT_TRUE(made);
      *stream = std::move(*made);
    }
    // Kernels access their memory, to detect freed memory.
    fake->kernel = [this, run = fake->kernel](const std::string &name,
                                              const uint64_t *args,
                                              int64_t grid) {
      for (int i = 0; i < fake->numArgs(name); ++i)
        if (args[i] > 4096)
          EXPECT_TRUE(isAllocated(args[i])) << name << " argument " << i;
      workspace = name == "spread" ? args[2] : workspace;
      run(name, args, grid);
    };
  }
  void TearDown() override {
    graphs.clear();
    first.reset();
    second.reset();
    loaded.reset();
    EXPECT_EQ(fake->leaks(), "");
    fake->reset();
  }

  Device &device() { return **loaded->device; }
  Executor &executor() { return **loaded->executor; }

  bool isAllocated(uint64_t address) const {
    auto after = fake->allocations.upper_bound(address);
    return after != fake->allocations.begin() &&
           address < (--after)->first + after->second.size;
  }

  /// The calls that `body` makes on streams "a" and "b"; others are omitted.
  template <typename Body>
  std::string listGiven(Body body) {
    fake->given.clear();
    body();
    const std::vector<FakeCuda::Given> given = fake->given;
    std::string text;
    void *recorded = nullptr;
    for (const FakeCuda::Given &each : given) {
      char name = each.stream == handleOf(*first)    ? 'a'
                  : each.stream == handleOf(*second) ? 'b'
                                                     : 0;
      if (!name)
        continue;
      std::string step = each.call + "@" + name;
      if (each.call == "record")
        recorded = each.event;
      // A wait is expected to be for the latest recorded event.
      if (each.call == "wait" && recorded && each.event != recorded)
        step += "?";
      if (each.call == "launch" && text.size() >= step.size() &&
          text.compare(text.size() - step.size(), step.size(), step) == 0)
        continue;
      text += (text.empty() ? "" : " ") + step;
    }
    return text;
  }

  /// The driver's handle of a stream, taken from a record on it.
  void *handleOf(Stream &stream) {
    void *&known = handles[&stream];
    if (!known) {
      auto event = device().createEvent();
      EXPECT_TRUE(device().record(stream, **event));
      known = fake->given.back().stream;
    }
    return known;
  }

  Graph &capture(int64_t tokens) {
    auto graph = captureGraph(
        device(), *first, [&] { return executor().run(tokens, first.get()); });
    EXPECT_TRUE(graph) << graph.status().message();
    graphs.push_back(std::move(*graph));
    return *graphs.back();
  }

  /// Checks y after `body`: rows are -1 before, and leading rows with another
  /// value must have `expected`.
  template <typename Body>
  void expectRows(int64_t tokens, float expected, Body body) {
    Tensors &tensors = loaded->tensors;
    std::vector<float> before(kMany * kWidth, -1.0f);
    ASSERT_TRUE(device().copyIn(tensors.views.back().second.data, before.data(),
                                before.size() * 4));
    ASSERT_TRUE(body());
    auto y = tensors.readY();
    ASSERT_TRUE(y);
    for (int64_t i = 0; i < kMany * kWidth; ++i)
      ASSERT_EQ((*y)[i], i < tokens * kWidth ? expected : -1.0f) << i;
  }
  void expectReplay(Graph &graph, int64_t tokens, float expected) {
    expectRows(tokens, expected,
               [&] { return device().launchGraph(*first, graph); });
  }
  void expectRun(int64_t tokens, float expected) {
    expectRows(tokens, expected, [&] { return executor().run(tokens); });
  }

  /// y if each element of the weight is `scale`.
  static float expectedOf(float scale, int64_t tokens) {
    std::vector<float> x(tokens * kWidth, 1.5f), weight(kWidth, scale);
    return expectedY(x, weight, 1, 0, 0, tokens);
  }
  void writeScale(void *memory, float value) {
    std::vector<float> scale(kWidth, value);
    ASSERT_TRUE(device().copyIn(memory, scale.data(), kWidth * 4));
  }
  void *boundScale() { return executor().bound("scale")->data; }

  FakeCuda *fake = nullptr;
  std::unique_ptr<Loaded> loaded;
  std::unique_ptr<Stream> first, second;
  std::vector<std::unique_ptr<Graph>> graphs;
  std::map<Stream *, void *> handles;
  /// The workspace of the latest run.
  uint64_t workspace = 0;
};

} // namespace

TEST_F(CudaGraphTest, RunsOnAnotherStreamWaitForTheLatestOne) {
  auto runOn = [&](Stream &stream) {
    EXPECT_TRUE(executor().run(kFew, &stream));
  };
  EXPECT_EQ(listGiven([&] {
              runOn(*first);
              runOn(*first);
              runOn(*second);
              runOn(*first);
            }),
            "launch@a record@a launch@a record@a wait@b launch@b record@b "
            "wait@a launch@a record@a");
  // A driver without stream ids.
  fake->hasStreamIds = false;
  EXPECT_EQ(listGiven([&] { runOn(*first); }), "wait@a launch@a record@a");
}

TEST_F(CudaGraphTest, WhoeverWaitsForTheExecutorWaitsForRunsOfCallers) {
  ASSERT_TRUE(executor().run(kFew, first.get()));
  fake->given.clear();
  ASSERT_TRUE(executor().synchronize());
  ASSERT_EQ(fake->given.size(), 1u);
  EXPECT_EQ(fake->given[0].call, "wait");
}

TEST_F(CudaGraphTest, ClonesRunSideBySide) {
  auto clone = executor().clone();
  ASSERT_TRUE(clone);
  ASSERT_TRUE(loaded->tensors.bind(**clone));
  ASSERT_TRUE((*clone)->prepareWeights());
  EXPECT_EQ(listGiven([&] {
              EXPECT_TRUE(executor().run(kFew, first.get()));
              EXPECT_TRUE((*clone)->run(kFew, second.get()));
            }),
            "launch@a record@a launch@b record@b");
}

TEST_F(CudaGraphTest, RunsInOneSlotWaitForEachOther) {
  auto clone = executor().clone();
  ASSERT_TRUE(clone);
  ASSERT_TRUE(loaded->tensors.bind(**clone));
  ASSERT_TRUE((*clone)->prepareWeights());
  auto bytes = executor().workspaceBytes(kMany);
  ASSERT_TRUE(bytes);
  auto shared = SharedWorkspace::create(device(), *bytes);
  ASSERT_TRUE(shared);
  auto runBoth = [&](int slotOfClone) {
    EXPECT_TRUE(executor().useWorkspace(*shared, 0));
    EXPECT_TRUE((*clone)->useWorkspace(*shared, slotOfClone));
    return listGiven([&] {
      EXPECT_TRUE(executor().run(kFew, first.get()));
      EXPECT_TRUE((*clone)->run(kFew, second.get()));
    });
  };
  EXPECT_EQ(runBoth(1), "launch@a record@a launch@b record@b");
  EXPECT_EQ(runBoth(0), "launch@a record@a wait@b launch@b record@b");
}

TEST_F(CudaGraphTest, ThreadsTakeTurnsInASlot) {
  auto bytes = executor().workspaceBytes(kMany);
  ASSERT_TRUE(bytes);
  auto shared = SharedWorkspace::create(device(), *bytes);
  ASSERT_TRUE(shared);
  std::vector<std::unique_ptr<Executor>> clones;
  for (int i = 0; i < 3; ++i) {
    auto clone = executor().clone();
    ASSERT_TRUE(clone);
    ASSERT_TRUE(loaded->tensors.bind(**clone));
    ASSERT_TRUE((*clone)->prepareWeights());
    ASSERT_TRUE((*clone)->useWorkspace(*shared, 0));
    clones.push_back(std::move(*clone));
  }
  fake->given.clear();
  std::vector<std::thread> threads;
  for (std::unique_ptr<Executor> &clone : clones)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i)
        EXPECT_TRUE(clone->run(kFew));
    });
  for (std::thread &thread : threads)
    thread.join();
  // Between two records all launches are on one stream, which has waited for
  // the previous record if that was on another one.
  void *latest = nullptr, *waited = nullptr;
  for (const FakeCuda::Given &each : fake->given) {
    if (each.call == "wait")
      waited = each.stream;
    else if (each.call == "launch")
      ASSERT_TRUE(!latest || each.stream == latest || each.stream == waited);
    else
      latest = each.stream, waited = nullptr;
  }
}

TEST_F(CudaGraphTest, CapturedRunsAreOrderedWithinTheirCapture) {
  ASSERT_TRUE(executor().run(kFew, second.get()));
  auto fork = device().createEvent();
  ASSERT_TRUE(fork);
  auto captureTwo = [&] {
    auto graph = captureGraph(device(), *first, [&]() -> Status {
      CHECK_OK(executor().run(kFew, first.get()));
      CHECK_OK(device().record(*first, **fork));
      CHECK_OK(device().wait(*second, **fork));
      return executor().run(kFew, second.get());
    });
    EXPECT_TRUE(graph) << graph.status().message();
  };
  // The run within the capture is waited for, the one before it is not.
  const char *expected = "launch@a record@a record@a wait@b wait@b? launch@b "
                         "record@b";
  EXPECT_EQ(listGiven(captureTwo), expected);
  EXPECT_TRUE(executor().isCaptured());
  EXPECT_EQ(listGiven(captureTwo), expected);
  // A later run does not wait for captured ones.
  EXPECT_EQ(listGiven([&] { EXPECT_TRUE(executor().run(kFew, second.get())); }),
            "launch@b record@b");
  EXPECT_FALSE(executor().isCaptured());
}

// field-bug: TensorRT-LLM#18022, TensorRT-LLM#17403, flashinfer#4553,
// vllm#50386
TEST_F(CudaGraphTest, GraphsOwnWhatTheyUse) {
  expectRun(kFew, expectedAt(kFew));
  // Also one larger than all runs before.
  Graph &small = capture(kFew), &large = capture(kMany);
  expectReplay(small, kFew, expectedAt(kFew));
  uint64_t captured = workspace;
  expectRun(kMany, expectedAt(kMany));
  EXPECT_NE(workspace, captured);
  expectReplay(small, kFew, expectedAt(kFew));
  EXPECT_EQ(workspace, captured);
  expectReplay(large, kMany, expectedAt(kMany));

  loaded->executor->reset();
  EXPECT_EQ(fake->modules.size(), 2u);
  expectReplay(small, kFew, expectedAt(kFew));
  expectReplay(large, kMany, expectedAt(kMany));
  graphs.clear();
  EXPECT_EQ(fake->modules.size(), 0u);
  EXPECT_EQ(fake->allocations.size(), loaded->tensors.buffers.size());
}

TEST_F(CudaGraphTest, GraphsShareAWorkspaceThatIsLargeEnough) {
  expectRun(kMany, expectedAt(kMany));
  size_t before = fake->allocations.size();
  capture(kFew);
  EXPECT_EQ(fake->allocations.size(), before + 1);
  capture(kMany);
  capture(kFew);
  EXPECT_EQ(fake->allocations.size(), before + 1);
}

TEST_F(CudaGraphTest, GraphsOwnASharedWorkspaceAndNotTheCallers) {
  auto bytes = executor().workspaceBytes(kMany);
  ASSERT_TRUE(bytes);
  {
    auto shared = SharedWorkspace::create(device(), *bytes);
    ASSERT_TRUE(shared);
    ASSERT_TRUE(executor().useWorkspace(*shared, 1));
  }
  Graph &graph = capture(kMany);
  ASSERT_TRUE(executor().useWorkspace(nullptr, 0));
  expectReplay(graph, kMany, expectedAt(kMany));
  graphs.clear();
  size_t before = fake->allocations.size();
  auto own = device().allocate(static_cast<size_t>(*bytes), 256);
  ASSERT_TRUE(own);
  auto captured = captureGraph(device(), *first, [&] {
    return executor().run(kMany, {(*own)->data(), *bytes}, first.get());
  });
  ASSERT_TRUE(captured);
  EXPECT_EQ(fake->allocations.size(), before + 1);
}

TEST_F(CudaGraphTest, WeightsPreparedAgainKeepTheirMemory) {
  Graph &graph = capture(kFew);
  auto clone = executor().clone();
  ASSERT_TRUE(clone);
  ASSERT_TRUE(loaded->tensors.bind(**clone));
  writeScale(boundScale(), 2.0f);
  expectRun(kFew, expectedOf(0.5f, kFew));
  auto report = executor().prepareAgain();
  ASSERT_TRUE(report) << report.status().message();
  EXPECT_EQ(report->bytes, kWidth * 4);
  expectRun(kFew, expectedOf(2.0f, kFew));
  expectReplay(graph, kFew, expectedOf(2.0f, kFew));
  expectRows(kFew, expectedOf(2.0f, kFew), [&]() -> Status {
    CHECK_OK((*clone)->prepareWeights().status());
    return (*clone)->run(kFew);
  });

  // Bind the same memory anew.
  writeScale(boundScale(), 3.0f);
  ASSERT_TRUE(executor().bind("scale", *executor().bound("scale")));
  ASSERT_TRUE(executor().prepareWeights());
  expectReplay(graph, kFew, expectedOf(3.0f, kFew));

  // In other memory weights are prepared separately, and graphs keep the old
  // ones.
  auto other = device().allocate(kWidth * 4, 256);
  ASSERT_TRUE(other);
  writeScale((*other)->data(), 4.0f);
  ASSERT_TRUE(
      executor().bind("scale", {(*other)->data(), DType::F32, {kWidth}, {}}));
  ASSERT_TRUE(executor().prepareWeights());
  expectRun(kFew, expectedOf(4.0f, kFew));
  expectReplay(graph, kFew, expectedOf(3.0f, kFew));
}
