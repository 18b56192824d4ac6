//===- GatheredResultsTest.cpp - results that other ranks write -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/plan/GatheredResults.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace moert;

namespace {

enum TensorIndex { X, All, Small, AllSmall, Sums, Y, Other };
enum StepIndex : size_t { Gather = 4, Read, Scatter };

/// A dispatch of two pairs beside a launch, a launch that reads both, and a
/// combine, for two ranks, with 256 bytes of `x` and 4 of `small` per token of
/// a rank.
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
  plan.variants[0].steps[Gather].toResults = true;
  plan.variants[0].steps[Scatter].kernel = 2;
  return plan;
}

std::vector<GatheredResult> find(const Plan &plan) {
  EXPECT_TRUE(verifyPlan(plan)) << verifyPlan(plan).message();
  return findResults(plan, plan.variants[0]);
}

std::vector<Step> &steps(Plan &plan) { return plan.variants[0].steps; }

} // namespace

TEST(GatheredResults, LieBehindEachOther) {
  Plan plan = makeGatherPlan();
  std::vector<GatheredResult> found = find(plan);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].tensor, All);
  EXPECT_EQ(*countResultBytes(plan, found[0], 32), 32 * 256);
  EXPECT_EQ(found[1].tensor, AllSmall);
  EXPECT_EQ(found[1].pair, 1U);
  EXPECT_EQ(*countResultBytes(plan, found[1], 32), 256);
  // Without the plan's flag they are in the workspace.
  steps(plan)[Gather].toResults = false;
  EXPECT_TRUE(find(plan).empty());
}

TEST(GatheredResults, AreCopiedIfThereAreManyBytes) {
  Plan plan = makeGatherPlan();
  GatheredResult all = find(plan)[0];
  auto areCopied = [&](int64_t tokens) {
    return *isCopied(plan, plan.variants[0], all, tokens, 1024);
  };
  EXPECT_FALSE(areCopied(0));
  EXPECT_FALSE(areCopied(6));
  EXPECT_TRUE(areCopied(8));
}

/// Outputs that the kernel itself computes are not copied.
TEST(GatheredResults, AreNotCopiedOfWhatTheKernelMakes) {
  Plan plan = makeGatherPlan();
  Step &gather = steps(plan)[Gather];
  plan.tensors.push_back({"values",
                          DType::F32,
                          {Expr::ceilDiv(Expr::tokens(), 2), 64},
                          TensorRole::Workspace,
                          4});
  plan.numSlots = 5;
  auto values = Argument::ofTensor(int64_t(plan.tensors.size()) - 1);
  gather.args[0] = values;
  gather.args.push_back(Argument::ofTensor(X));
  gather.numKernelArgs = 1;
  gather.replacedStep = 0;
  steps(plan).insert(steps(plan).begin(),
                     Step::launch(1, {Argument::ofTensor(X), values}));
  std::vector<GatheredResult> found = find(plan);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_FALSE(found[0].hasCompany);
  EXPECT_FALSE(*isCopied(plan, plan.variants[0], found[0], 32, 0));
  EXPECT_TRUE(found[1].hasCompany);
}

TEST(GatheredResults, HaveLaunchesBesideTheirGather) {
  Plan plan = makeGatherPlan();
  std::vector<size_t> beside =
      findLaunchesBeside(plan, plan.variants[0], Gather);
  ASSERT_EQ(beside.size(), 1U);
  EXPECT_EQ(steps(plan)[beside[0]].kind, Step::Kind::Launch);
  EXPECT_NE(steps(plan)[beside[0]].stream, steps(plan)[Gather].stream);
  // On one stream everything is ordered.
  for (Step &step : steps(plan))
    step.stream = 0;
  EXPECT_TRUE(findLaunchesBeside(plan, plan.variants[0], Gather).empty());
}

/// The message of verifyPlan().
std::string explain(const Plan &plan) { return verifyPlan(plan).message(); }

TEST(GatheredResults, AreReadAheadOfALaterCollectiveOfTheAxis) {
  // Otherwise all readers precede it.
  Plan plan = makeGatherPlan();
  std::swap(steps(plan)[Read], steps(plan)[Scatter]);
  EXPECT_EQ(explain(plan),
            "plan: variants[0].steps[4].to_results is true; false (no later "
            "collective over dp is behind all that use 'all') is accepted");

  plan = makeGatherPlan();
  steps(plan).push_back(Step(steps(plan)[Read]));
  EXPECT_NE(explain(plan), "");
  steps(plan).push_back(Step(steps(plan)[Scatter]));
  EXPECT_EQ(explain(plan), "");

  // The collective must meet other ranks.
  plan = makeGatherPlan();
  steps(plan)[Scatter].kernel = -1;
  EXPECT_NE(explain(plan), "");
  plan = makeGatherPlan();
  plan.kernels[2].grid = 0;
  EXPECT_NE(explain(plan), "");

  // Also without tokens, if a launch reads rows that exist then.
  plan = makeGatherPlan();
  plan.tensors[Small].shape = {1, 1};
  plan.tensors[AllSmall].shape = {2, 1};
  plan.kernels[0].grid = 1;
  EXPECT_NE(explain(plan).find("use 'all_small')"), std::string::npos)
      << explain(plan);
  for (auto [kernel, grid] : {std::pair(0, Expr::min(Expr::tokens(), 1)),
                              {1, Expr::min(Expr::tokens(), 1)},
                              {2, Expr(1)}}) {
    Plan right = plan;
    right.kernels[size_t(kernel)].grid = grid;
    EXPECT_EQ(explain(right), "");
  }

  // A concurrent step is not ordered before it.
  plan = makeGatherPlan();
  plan.numEvents = 4;
  plan.kernels.push_back({"beside", 1, 64});
  steps(plan).insert(steps(plan).begin() + Scatter,
                     {Step::record(2, 0), Step::wait(2, 1),
                      Step::launch(3, {Argument::ofTensor(All)}, /*stream=*/1),
                      Step::record(3, 1)});
  steps(plan).push_back(Step::wait(3, 0));
  EXPECT_NE(explain(plan).find("use 'all')"), std::string::npos)
      << explain(plan);
}

/// A summing kernel reads its kernel-only arguments, except the first, before
/// it signals its arrival.
TEST(GatheredResults, AreReadByTheKernelOfThatCollective) {
  Plan plan = makeGatherPlan();
  Step &scatter = steps(plan)[Scatter];
  scatter.args.push_back(Argument::ofTensor(Small));
  scatter.args.push_back(Argument::ofTensor(AllSmall));
  scatter.numKernelArgs = 2;
  EXPECT_EQ(explain(plan), "");
  std::swap(scatter.args[2], scatter.args[3]);
  EXPECT_NE(explain(plan).find("use 'all_small')"), std::string::npos)
      << explain(plan);
}

TEST(GatheredResults, AreUsedByNobodyBefore) {
  Plan plan = makeGatherPlan();
  plan.kernels.push_back({"before", 1, 64});
  steps(plan).insert(steps(plan).begin(),
                     Step::launch(3, {Argument::ofTensor(All)}));
  EXPECT_EQ(explain(plan),
            "plan: variants[0].steps[5].to_results is true; false (steps[0] "
            "uses 'all' before, when other ranks may write it) is accepted");
  // Memory of the caller's cannot be in the results.
  plan = makeGatherPlan();
  plan.tensors[All].role = TensorRole::Output;
  plan.tensors[All].slot = -1;
  EXPECT_EQ(explain(plan),
            "plan: variants[0].steps[4].to_results is true; false ('all' is no "
            "workspace) is accepted");
  // Each rank computes its own sums.
  plan = makeGatherPlan();
  steps(plan)[Scatter].toResults = true;
  EXPECT_EQ(explain(plan),
            "plan: variants[0].steps[6].to_results is true; false (of no "
            "all_gather with a kernel) is accepted");
  // Arguments of a launch are not pairs.
  plan = makeGatherPlan();
  steps(plan)[Read].toResults = true;
  steps(plan)[Read].args.push_back(Argument::ofTokens());
  EXPECT_EQ(explain(plan),
            "plan: variants[0].steps[5].to_results is true; false (of no "
            "all_gather with a kernel) is accepted");
}

/// Without concurrent launches a gather gains nothing by freeing
/// multiprocessors.
TEST(GatheredResults, AreCopiedBesideLaunches) {
  Plan plan = makeGatherPlan();
  std::rotate(steps(plan).begin() + Gather, steps(plan).end() - 1,
              steps(plan).end());
  for (const GatheredResult &result : findResults(plan, plan.variants[0]))
    EXPECT_FALSE(result.hasCompany);
}
