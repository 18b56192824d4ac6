//===- MicroBatchesTest.cpp - runs as two halves of a batch -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compares ranks, which are threads on the host device, with the halves run as
// separate batches.
//
//===----------------------------------------------------------------------===//

#include "MicroBatchesTesting.h"

#include "../../runtime/src/plan/BatchHalves.h"
#include "CudaTesting.h"
#include "moert/CudaDevice.h"

using namespace moert;
using namespace moert::halves;

//===----------------------------------------------------------------------===//
// Halves
//===----------------------------------------------------------------------===//

TEST(BatchHalvesTest, FirstRowsOfEachRankAreTheFirstHalf) {
  Plan plan = makePlan({4, 1});
  EXPECT_EQ(splitBatch(plan, 4 * 8), (BatchHalves{16, 16}));
  EXPECT_EQ(splitBatch(plan, 4 * 7), (BatchHalves{16, 12}));
  EXPECT_EQ(splitBatch(plan, 4), (BatchHalves{4, 0}));
  EXPECT_EQ(splitBatch(plan, 0), (BatchHalves{0, 0}));
  // Rows have 80 bytes.
  plan.tensors[Y].alignment = 64;
  EXPECT_EQ(splitBatch(plan, 4 * 8), (BatchHalves{16, 16}));
  EXPECT_EQ(splitBatch(plan, 4 * 9), (BatchHalves{32, 4}));
  EXPECT_EQ(splitBatch(plan, 4 * 3), (BatchHalves{12, 0}));
}

TEST(BatchHalvesTest, WorkspacesOfAllCountsHaveRoomSideBySide) {
  for (int64_t alignment : {1, 64})
    for (const Mesh &mesh : makeMeshes()) {
      Plan plan = makePlan(mesh);
      plan.tensors[Y].alignment = alignment;
      int64_t ranks = mesh.tokenRanks(), most = 0;
      for (int64_t own = 0; own <= kMostOwn; ++own) {
        int64_t both = 0;
        for (int64_t half : splitBatch(plan, own * ranks))
          both +=
              layoutWorkspace(plan, plan.variants[plan.findVariant(half)], half)
                  ->bytes;
        most = std::max(most, both);
        EXPECT_GE(*halvesWorkspaceBytes(plan, own * ranks), most);
        EXPECT_GE(*halvesWorkspaceBytes(plan, own * ranks + ranks - 1), most);
      }
    }
}

TEST(BatchHalvesTest, WhatIsOfABatchIsNoHalfs) {
  Plan plan = makePlan({2, 1});
  EXPECT_TRUE(checkHalves(plan));
  auto device = *createHostDevice(1);
  auto refuse = [&](const Plan &wrong, int64_t fromTokens,
                    const std::string &text) {
    auto made = Executor::create(wrong, *device, makeImage());
    ASSERT_TRUE(made) << made.status().toString();
    Status status = (*made)->useMicroBatches(fromTokens);
    EXPECT_EQ(status.message().find("useMicroBatches: " + text), 0U)
        << status.message();
    if (fromTokens > 0)
      EXPECT_EQ((*made)->plan().mesh.numRanks() > 1,
                (*made)->useMicroBatches(0).isOk());
  };
  refuse(plan, -1, "-1; at least 1 token per rank, or 0");
  Plan counted = plan;
  auto offsets = int64_t(counted.tensors.size());
  counted.tensors.push_back(
      {"expert_offsets", DType::I32, {3}, TensorRole::Output});
  for (Variant &variant : counted.variants)
    variant.steps.back().args.push_back(Argument::ofTensor(offsets));
  refuse(counted, 4,
         "output 'expert_offsets' belongs to the whole batch and has no "
         "dimension of tokens to split; compile the layer without it, or run "
         "without micro-batches");
  counted.tensors.back().role = TensorRole::Input;
  counted.tensors.back().name = "num_valid_tokens";
  refuse(counted, 4,
         "input 'num_valid_tokens' belongs to the whole batch and has no "
         "dimension of tokens to split; compile the layer without it "
         "(is_padding, of padding_mask, has a value for each token)");
  Plan one = plan;
  one.mesh = {1, 1};
  one.kernels = {{"add", 1}};
  one.numSlots = 0;
  one.tensors = {{"y", DType::F32, {Expr::tokens()}, TensorRole::Output}};
  one.variants = {{0, one.maxTokens, {Step::launch(0, tensors({0}, false))}}};
  refuse(one, 4, "the layer has one rank, which exchanges nothing");
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

TEST(MicroBatches, HaveTheBitsOfBatchesOfTheirOwn) {
  for (const Mesh &mesh : makeMeshes()) {
    Group whole(mesh), halved(mesh);
    for (Group *group : {&whole, &halved})
      for (const Status &status :
           group->start(group == &halved ? 1 : 0, /*poison=*/true))
        ASSERT_TRUE(status) << status.toString();
    for (int64_t own : {8, 1, 9, 2, 16, 7, 8}) {
      whole.fillResults();
      halved.fillResults();
      halved.run(own);
      int64_t first = own - own / 2;
      for (auto [begin, rows] :
           {std::pair(int64_t(0), first), std::pair(first, own - first)}) {
        whole.expectOnRanks([&, begin = begin](int64_t, Rank &rank) {
          return rank.bindFrom(begin, kMostOwn - begin);
        });
        whole.run(rows);
      }
      EXPECT_EQ(halved.results(), whole.results()) << mesh.str() << " " << own;
      // Sums over the whole batch must differ from those over a half.
      whole.expectOnRanks(
          [](int64_t, Rank &rank) { return rank.bindFrom(0, kMostOwn); });
      whole.run(own);
      EXPECT_EQ(halved.results() == whole.results(), own == 1) << mesh.str();
    }
  }
}

TEST(MicroBatches, AreRunFromSoManyTokensOn) {
  Group whole({2, 1}), halved({2, 1});
  for (Group *group : {&whole, &halved})
    for (const Status &status : group->start(group == &halved ? 5 : 0))
      ASSERT_TRUE(status) << status.toString();
  for (int64_t own : {4, 5, 4, 0, 6}) {
    whole.fillResults();
    halved.fillResults();
    whole.run(own);
    halved.run(own);
    EXPECT_EQ(halved.results() == whole.results(), own < 5) << own;
  }
}

TEST(MicroBatches, FollowWhatIsBound) {
  Group halved({2, 2}), whole({2, 2});
  for (Group *group : {&whole, &halved})
    for (const Status &status : group->start(group == &halved ? 8 : 0))
      ASSERT_TRUE(status) << status.toString();
  auto expectLike = [&] {
    whole.fillResults();
    halved.fillResults();
    halved.run(8);
    for (int64_t begin : {0, 4}) {
      whole.expectOnRanks([&](int64_t, Rank &rank) {
        std::vector<float> &moved = rank.x;
        Status status = rank.executor->bind(
            "x",
            {moved.data() + begin * kColumns, DType::F32, {4, kColumns}, {}});
        return status
                   ? rank.executor->bind("y", {rank.y.data() + begin * kColumns,
                                               DType::F32,
                                               {4, kColumns},
                                               {}})
                   : status;
      });
      whole.run(4);
    }
    EXPECT_EQ(halved.results(), whole.results());
  };
  expectLike();
  // At other addresses, which arguments and collectives contain.
  for (Group *group : {&whole, &halved})
    for (Rank &rank : group->ranks) {
      std::vector<float> others(rank.x.size());
      for (size_t i = 0; i < others.size(); ++i)
        others[i] = rank.x[i] * 3;
      rank.x.swap(others);
      rank.y = std::vector<float>(rank.y.size() + 2);
      rank.y.resize(rank.x.size());
      ASSERT_TRUE(rank.bindFrom(0, kMostOwn));
    }
  expectLike();
  // With another weight.
  for (Group *group : {&whole, &halved})
    for (Rank &rank : group->ranks) {
      rank.factor = 0.25f;
      ASSERT_TRUE(rank.bindFactor());
      ASSERT_TRUE(rank.executor->prepareWeights());
    }
  expectLike();
  // Clones have their own halves.
  for (Rank &rank : halved.ranks) {
    auto clone = rank.executor->clone();
    ASSERT_TRUE(clone);
    rank.executor = std::move(*clone);
    ASSERT_TRUE(rank.bindFrom(0, kMostOwn));
  }
  expectLike();
}

TEST(MicroBatches, RanksAgreeFromWhereOn) {
  Group group({2, 1});
  for (const Status &status : group.onRanks([&](int64_t number, Rank &rank) {
         Status status = rank.start(makePlan(group.mesh), *group.device, number,
                                    number == 0 ? 0 : 4);
         return status ? rank.executor->useCommunicator(std::move(
                             *group.group->join(number, *group.device)))
                       : status;
       })) {
    EXPECT_FALSE(status);
    EXPECT_NE(
        status.message().find(", two micro-batches from 4 tokens per rank on'"),
        std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("the layer's plan"), std::string::npos);
  }
}

/// On the emulated driver: a graph contains both halves, and capturing
/// allocates nothing.
TEST(MicroBatches, AreCapturedInAGraph) {
  test::FakeCuda &fake = test::resetFakeCuda();
  {
    auto device = std::move(*createCudaDevice(0, test::kFakeDriver));
    // `copy` with rows of four elements.
    Plan plan;
    plan.target = "sm_80";
    plan.mesh = {2, 1};
    plan.maxTokens = 16;
    plan.numSlots = 1;
    Expr own = Expr::ceilDiv(Expr::tokens(), 2);
    plan.tensors = {
        {"x", DType::F32, {own, 4}, TensorRole::Input, -1, 16},
        {"all", DType::F32, {Expr::tokens(), 4}, TensorRole::Workspace, 0},
        {"y", DType::F32, {own, 4}, TensorRole::Output, -1, 16}};
    plan.kernels = {{"copy", own, 128}};
    std::vector<Argument> copied = tensors({0, 2}, false);
    copied.push_back(Argument::ofScalar(own));
    plan.variants = {{0,
                      16,
                      {Step::collective(CollectiveKind::AllGather,
                                        MeshAxis::Data, tensors({0, 1}, false)),
                       Step::launch(0, copied)}}};
    auto made = Executor::create(plan, *device, test::makePtxImage());
    ASSERT_TRUE(made) << made.status().toString();
    Executor &executor = **made;
    ASSERT_TRUE(executor.useMicroBatches(1));
    auto communicator =
        std::make_shared<LoggedCommunicator>(plan.mesh, /*rank=*/0);
    ASSERT_TRUE(executor.useCommunicator(communicator));
    EXPECT_EQ(executor.useMicroBatches(2).message(),
              "useMicroBatches: ranks have already agreed on what they run; "
              "call it before setting a communicator");
    std::vector<float> values(8 * 4);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i);
    auto x = std::move(*device->allocate(values.size() * 4, 256));
    auto y = std::move(*device->allocate(values.size() * 4, 256));
    ASSERT_TRUE(device->copyIn(x->data(), values.data(), values.size() * 4));
    ASSERT_TRUE(executor.bind("x", {x->data(), DType::F32, {8, 4}, {}}));
    ASSERT_TRUE(executor.bind("y", {y->data(), DType::F32, {8, 4}, {}}));
    ASSERT_TRUE(executor.prepareWeights());
    auto stream = std::move(*device->createStream());
    // The first half's output overlaps the second half's input.
    ASSERT_TRUE(executor.bind(
        "y",
        {static_cast<float *>(x->data()) + 4 * 4, DType::F32, {8, 4}, {}}));
    EXPECT_EQ(
        executor.run(2 * 7, stream.get()).message(),
        "run 'y': shares memory with the input 'x'; give it its own memory");
    ASSERT_TRUE(executor.bind("y", {y->data(), DType::F32, {8, 4}, {}}));
    ASSERT_TRUE(executor.run(2 * 7, stream.get()));
    fake.launches.clear();
    size_t allocated = fake.allocations.size(), streams = fake.streams.size();
    auto graph = captureGraph(
        *device, *stream, [&] { return executor.run(2 * 7, stream.get()); });
    ASSERT_TRUE(graph) << graph.status().toString();
    EXPECT_EQ(fake.launches,
              std::vector<std::string>({"copy 4 128 0", "copy 3 128 0"}));
    // Captured runs have their own workspace.
    EXPECT_EQ(fake.allocations.size(), allocated + 1);
    EXPECT_EQ(fake.streams.size(), streams);
    std::vector<float> found(values.size(), -1);
    ASSERT_TRUE(device->copyIn(y->data(), found.data(), found.size() * 4));
    ASSERT_TRUE(device->launchGraph(*stream, **graph));
    ASSERT_TRUE(device->copyOut(found.data(), y->data(), found.size() * 4));
    EXPECT_TRUE(std::equal(values.begin(), values.end() - 4, found.begin()));
    EXPECT_EQ(found.back(), -1);
  }
  EXPECT_EQ(fake.leaks(), "");
}
