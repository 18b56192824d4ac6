//===- CopiedResultsTest.cpp - which gathers may be copied ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/src/plan/CopiedResults.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace moert;

namespace {

enum TensorIndex { X, All, Small, AllSmall, Sums, Y, Other };
enum StepIndex : size_t { Gather = 4, Read, Scatter };

/// A dispatch of two pairs beside a launch, a launch that reads both, a
/// combine: of two ranks with 256 bytes of `x` and 4 of `small` for each token
/// of a rank.
Plan makeGatherPlan() {
  Plan plan;
  plan.target = "sm_90a";
  plan.mesh = {2, 2};
  plan.maxTokens = 32;
  plan.numSlots = 4;
  plan.numStreams = plan.numEvents = 2;
  Expr own = Expr::ceilDiv(Expr::tokens(), 2);
  plan.tensors = {
      {"x", DType::F32, {own, 64}, TensorRole::Input},
      {"all", DType::F32, {Expr::tokens(), 64}, TensorRole::Workspace, 0},
      {"small", DType::F32, {own, 1}, TensorRole::Input},
      {"all_small", DType::F32, {Expr::tokens(), 1}, TensorRole::Workspace, 1},
      {"sums", DType::F32, {Expr::tokens(), 64}, TensorRole::Workspace, 2},
      {"y", DType::F32, {own, 64}, TensorRole::Output},
      {"other", DType::F32, {own, 64}, TensorRole::Workspace, 3},
  };
  plan.kernels = {{"gather", Expr::min(Expr::tokens(), 1), 64},
                  {"read", 1, 64},
                  {"scatter", Expr::min(Expr::tokens(), 1), 64}};
  auto tensors = [](std::vector<int64_t> indices) {
    std::vector<Argument> args;
    for (int64_t index : indices)
      args.push_back(Argument::ofTensor(index));
    return args;
  };
  plan.variants = {
      {0,
       plan.maxTokens,
       {Step::record(0, 0), Step::wait(0, 1),
        Step::launch(1, tensors({X, Other}), /*stream=*/1), Step::record(1, 1),
        Step::collective(CollectiveKind::AllGather, MeshAxis::Data,
                         tensors({X, All, Small, AllSmall})),
        Step::launch(1, tensors({All, AllSmall, Sums})),
        Step::collective(CollectiveKind::ReduceScatter, MeshAxis::Data,
                         tensors({Sums, Y})),
        Step::wait(1, 0)}}};
  plan.variants[0].steps[Gather].kernel = 0;
  plan.variants[0].steps[Scatter].kernel = 2;
  return plan;
}

std::vector<CopiedResult> find(const Plan &plan, int64_t leastBytes = 1) {
  EXPECT_TRUE(verifyPlan(plan)) << verifyPlan(plan).message();
  return *findCopiedResults(plan, plan.variants[0], leastBytes);
}

std::vector<Step> &steps(Plan &plan) { return plan.variants[0].steps; }

} // namespace

TEST(CopiedResults, LieBehindEachOther) {
  Plan plan = makeGatherPlan();
  std::vector<CopiedResult> found = find(plan);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].tensor, All);
  EXPECT_EQ(found[0].release, Scatter);
  EXPECT_EQ(found[0].offset, 0);
  EXPECT_EQ(found[0].bytes, 32 * 256);
  EXPECT_EQ(found[1].tensor, AllSmall);
  EXPECT_EQ(found[1].pair, 1U);
  EXPECT_EQ(found[1].offset, 32 * 256);
  EXPECT_EQ(found[1].bytes, 256);
}

TEST(CopiedResults, AreThoseOfManyBytes) {
  Plan plan = makeGatherPlan();
  EXPECT_EQ(find(plan, 16 * 256).size(), 1U);
  EXPECT_EQ(find(plan, 16 * 256 + 1).size(), 0U);
  CopiedResult all = find(plan)[0];
  auto isLarge = [&](int64_t tokens) {
    return *isLargeEnough(plan, plan.variants[0], all, tokens, 1024);
  };
  EXPECT_FALSE(isLarge(0));
  EXPECT_FALSE(isLarge(6));
  EXPECT_TRUE(isLarge(8));
  // Nobody is met where nothing is launched.
  plan.kernels[2].grid = 0;
  EXPECT_FALSE(isLarge(8));
}

TEST(CopiedResults, HaveLaunchesBesideTheirGather) {
  Plan plan = makeGatherPlan();
  std::vector<size_t> beside =
      findLaunchesBeside(plan, plan.variants[0], Gather);
  ASSERT_EQ(beside.size(), 1U);
  EXPECT_EQ(steps(plan)[beside[0]].kind, Step::Kind::Launch);
  EXPECT_NE(steps(plan)[beside[0]].stream, steps(plan)[Gather].stream);
  // On one stream all is in order.
  for (Step &step : steps(plan))
    step.stream = 0;
  EXPECT_TRUE(findLaunchesBeside(plan, plan.variants[0], Gather).empty());
}

TEST(CopiedResults, AreReadAheadOfALaterCollectiveOfTheAxis) {
  // By nobody but the gather's readers; all of them before it.
  Plan plan = makeGatherPlan();
  std::swap(steps(plan)[Read], steps(plan)[Scatter]);
  EXPECT_TRUE(find(plan).empty());

  plan = makeGatherPlan();
  steps(plan).push_back(Step(steps(plan)[Read]));
  EXPECT_TRUE(find(plan).empty());
  steps(plan).push_back(Step(steps(plan)[Scatter]));
  ASSERT_EQ(find(plan).size(), 2U);
  EXPECT_EQ(find(plan)[0].release, Scatter + 3U);

  // Other ranks are met.
  plan = makeGatherPlan();
  steps(plan)[2] =
      Step::collective(CollectiveKind::AllReduce, MeshAxis::Tensor,
                       {Argument::ofTensor(X), Argument::ofTensor(Y)});
  steps(plan)[Scatter].kernel = 2;
  EXPECT_TRUE(find(plan).empty());

  // Without a kernel nobody has flags.
  plan = makeGatherPlan();
  steps(plan)[Scatter].kernel = -1;
  EXPECT_TRUE(find(plan).empty());

  // Beside it is not before it.
  plan = makeGatherPlan();
  plan.numEvents = 4;
  plan.kernels.push_back({"beside", 1, 64});
  steps(plan).insert(steps(plan).begin() + Scatter,
                     {Step::record(2, 0), Step::wait(2, 1),
                      Step::launch(3, {Argument::ofTensor(All)}, /*stream=*/1),
                      Step::record(3, 1)});
  steps(plan).push_back(Step::wait(3, 0));
  std::vector<CopiedResult> found = find(plan);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tensor, AllSmall);
}

TEST(CopiedResults, AreUsedByNobodyBefore) {
  Plan plan = makeGatherPlan();
  plan.kernels.push_back({"before", 1, 64});
  steps(plan).insert(steps(plan).begin(),
                     Step::launch(3, {Argument::ofTensor(All)}));
  std::vector<CopiedResult> found = find(plan);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tensor, AllSmall);
  // What is the caller's stays there.
  plan = makeGatherPlan();
  plan.tensors[All].role = TensorRole::Output;
  plan.tensors[All].slot = -1;
  found = find(plan);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tensor, AllSmall);
}

/// With nothing beside it a gather gains nothing by leaving multiprocessors.
TEST(CopiedResults, AreGatheredBesideLaunches) {
  Plan plan = makeGatherPlan();
  std::rotate(steps(plan).begin() + Gather, steps(plan).end() - 1,
              steps(plan).end());
  EXPECT_TRUE(find(plan).empty());
}
