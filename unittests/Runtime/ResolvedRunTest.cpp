//===- ResolvedRunTest.cpp - tests of resolved runs as values ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/src/executor/ResolvedRun.h"
#include "unittests/Runtime/LoadedTestLayer.h"

#include <gtest/gtest.h>

using namespace moert;
using namespace moert::test;

namespace {

class ResolvedRunTest : public LoadedTestLayer {
protected:
  void SetUp() override {
    LoadedTestLayer::SetUp();
    streams = std::move(*RunStreams::create(*device, layer->plan));
    memory = std::move(*device->allocate(1 << 12, kWorkspaceAlignment));
    Result<PrepareReport> report = bindings->beginPrepare();
    ASSERT_TRUE(report);
    Result<ResolvedRun> prepare = resolvePrepare(layer, *bindings, maps);
    ASSERT_TRUE(prepare);
    EXPECT_EQ(prepare->nameStep(0), "prepare[0]");
    ASSERT_TRUE(prepare->enqueue(streams, streams.first()));
    bindings->endPrepare(*report);
  }

  RunRequest makeRequest(int64_t tokens) {
    RunRequest request;
    request.tokens = tokens;
    request.workspace = {memory->data(), 1 << 12};
    request.addresses = bindings->findAddresses();
    return request;
  }

  ResolvedRun resolve(const RunRequest &request) {
    const Plan &plan = layer->plan;
    auto layout = layoutWorkspace(
        plan, plan.variants[plan.findVariant(request.tokens)], request.tokens);
    return std::move(*resolveRun(layer, *bindings, *layout, request, maps));
  }

  uint64_t addressIn(int64_t offset) const {
    return reinterpret_cast<uintptr_t>(memory->data()) +
           static_cast<uint64_t>(offset);
  }

  /// Row `row` of a batch that runs as one of `tokens` tokens.
  void expectRow(const std::vector<float> &data, int64_t row, int64_t tokens) {
    for (int64_t c = 0; c < kWidth; ++c)
      EXPECT_EQ(data[row * kWidth + c],
                expectedY(x, scale, offset, row, c, tokens))
          << row;
  }

  RunStreams streams;
  TensorMapCache maps;
  std::unique_ptr<Buffer> memory;
};

uint64_t slotOf(const void *address) {
  return reinterpret_cast<uintptr_t>(address);
}

} // namespace

TEST_F(ResolvedRunTest, HasOffsetsGridsAndScalars) {
  ResolvedRun run = resolve(makeRequest(5));
  // Three slots, each of at most 160 bytes.
  EXPECT_EQ(run.workspace.bytes, 3 * 256);
  ASSERT_EQ(run.steps.size(), 9U);
  EXPECT_EQ(run.nameStep(2), "variants[1].steps[2]");
  EXPECT_EQ(run.steps[2].kind, Step::Kind::WaitEvent);
  EXPECT_EQ(run.steps[2].event, 0);
  EXPECT_EQ(run.steps[2].stream, 1);

  const ResolvedStep &spread = run.steps[1];
  EXPECT_EQ(spread.kernel->name(), "spread");
  // 5 * 2 rows of 4 elements, 4 elements a CTA.
  EXPECT_EQ(spread.dims.grid, 10);
  ASSERT_EQ(spread.numArgs, 4U);
  const uint64_t *args = &run.args[spread.firstArg];
  EXPECT_EQ(args[0], slotOf(x.data()));
  EXPECT_EQ(args[1], slotOf(bindings->addressOf(Twice)));
  EXPECT_EQ(args[2], addressIn(0));
  EXPECT_EQ(args[3], 5U);

  const ResolvedStep &reduce = run.steps[8];
  args = &run.args[reduce.firstArg];
  EXPECT_EQ(args[0], addressIn(0));
  EXPECT_EQ(args[2], slotOf(y.data()));
  EXPECT_EQ(args[4], addressIn(512));
}

TEST_F(ResolvedRunTest, IsReplayedOnNewValues) {
  ResolvedRun run = resolve(makeRequest(kRows));
  for (float value : {1.0f, -3.0f}) {
    x.assign(x.size(), value);
    ASSERT_TRUE(run.enqueue(streams, streams.first()));
    for (int64_t row = 0; row < kRows; ++row)
      expectRow(y, row, kRows);
  }
}

TEST_F(ResolvedRunTest, CopiesMoveIndependently) {
  ResolvedRun run = resolve(makeRequest(2)), copy = run;
  std::vector<float> other(y.size());
  RunRequest moved = makeRequest(2);
  moved.addresses[Y] = other.data();
  EXPECT_TRUE(run.serves(moved));
  ASSERT_TRUE(copy.moveArguments(moved.addresses));
  ASSERT_TRUE(copy.enqueue(streams, streams.first()));
  expectRow(other, 1, 2);
  EXPECT_EQ(y[0], -1);
  ASSERT_TRUE(run.enqueue(streams, streams.first()));
  expectRow(y, 1, 2);
}

TEST_F(ResolvedRunTest, EncodedAddressesDoNotMove) {
  ResolvedRun run = resolve(makeRequest(2));
  run.isEncoded[X] = true;
  std::vector<uint64_t> args = run.args;
  std::vector<void *> moved = run.addresses;
  moved[X] = moved[Y] = memory->data();
  EXPECT_FALSE(run.moveArguments(moved));
  EXPECT_EQ(run.args, args);
  moved[X] = x.data();
  EXPECT_TRUE(run.moveArguments(moved));
  EXPECT_NE(run.args, args);
}

TEST_F(ResolvedRunTest, ServesWhatItWasResolvedFor) {
  ResolvedRun run = resolve(makeRequest(5));
  RunRequest request = makeRequest(5);
  request.workspace.bytes = run.workspace.bytes;
  EXPECT_TRUE(run.serves(request));
  --request.workspace.bytes;
  EXPECT_FALSE(run.serves(request));
  EXPECT_FALSE(run.serves(makeRequest(4)));
  request = makeRequest(5);
  request.half = 0;
  EXPECT_FALSE(run.serves(request));
}

TEST_F(ResolvedRunTest, HalvesWriteRowsOfTheirOwn) {
  RunRequest request = makeRequest(3);
  request.half = 0;
  ResolvedRun first = resolve(request);
  request.half = 1;
  request.addresses[X] = x.data() + 3 * kWidth;
  request.addresses[Y] = y.data() + 3 * kWidth;
  ResolvedRun second = resolve(request);
  EXPECT_EQ(second.nameStep(1), "b: variants[0].steps[1]");
  EXPECT_EQ(first.describe(0).name, "a: spread");
  EXPECT_EQ(second.describe(0).stream, 2);
  ASSERT_TRUE(second.enqueue(streams, streams.first()));
  EXPECT_EQ(y[0], -1);
  ASSERT_TRUE(first.enqueue(streams, streams.first()));
  for (int64_t row = 0; row < kRows; ++row)
    expectRow(y, row, /*tokens=*/3);
}
