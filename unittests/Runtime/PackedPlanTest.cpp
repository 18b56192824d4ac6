//===- PackedPlanTest.cpp - plans with all-to-alls ------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The rules of verifyPlan for an all-to-all, and its form in a package.

#include "moert/Package.h"
#include "moert/Plan.h"
#include "moert/PlanText.h"

#include <gtest/gtest.h>

#include <functional>

using namespace moert;

namespace {

enum TensorIndex {
  Ids,
  X,
  AllIds,
  All,
  Sums,
  Y,
  Destinations,
  Valid,
  AllValid,
  Z
};
enum KernelIndex { Read, Route, Pack, Sum };
enum StepIndex : size_t { Gather, Launch, Scatter };

std::vector<Argument> tensors(const std::vector<int64_t> &indices) {
  std::vector<Argument> args;
  for (int64_t index : indices)
    args.push_back(Argument::ofTensor(index));
  return args;
}

/// For four ranks: a gather of ids, rows and a count of valid tokens, a launch,
/// and the sum of its rows.
Plan makePackedPlan() {
  Plan plan;
  plan.target = "sm_90a";
  plan.mesh = {4, 2};
  plan.maxTokens = 32;
  plan.numSlots = 4;
  Expr own = Expr::ceilDiv(Expr::tokens(), 4), all = Expr::tokens();
  plan.tensors = {
      {"ids", DType::I32, {own, 2}, TensorRole::Input},
      {"x", DType::F32, {own, 64}, TensorRole::Input},
      {"all_ids", DType::I32, {all, 2}, TensorRole::Workspace, 0},
      {"all", DType::F32, {all, 64}, TensorRole::Workspace, 1},
      {"sums", DType::F32, {all, 64}, TensorRole::Workspace, 2},
      {"y", DType::F32, {own, 64}, TensorRole::Output},
      {"destinations", DType::I32, {16}, TensorRole::Weight},
      {"valid", DType::I32, {1}, TensorRole::Input},
      {"all_valid", DType::I32, {4}, TensorRole::Workspace, 3},
      {"z", DType::F32, {all, 64}, TensorRole::Output},
  };
  plan.kernels = {{"read", 1, 64},
                  {"route", 4, 64},
                  {"pack", Expr::tokens(), 64},
                  {"sum", Expr::tokens(), 64}};
  Step gather = Step::collective(
      CollectiveKind::AllGather, MeshAxis::Data,
      tensors({Ids, AllIds, X, All, Valid, AllValid, Ids, Destinations}));
  gather.numKernelArgs = 2;
  gather.routeKernel = Route;
  gather.packKernel = Pack;
  gather.routedPairs = {1};
  Step scatter =
      Step::collective(CollectiveKind::ReduceScatter, MeshAxis::Data,
                       tensors({Sums, Y, Ids, AllIds, Destinations}));
  scatter.numKernelArgs = 3;
  scatter.routeKernel = Route;
  scatter.packKernel = Sum;
  plan.variants = {
      {0,
       plan.maxTokens,
       {gather, Step::launch(Read, tensors({All, AllIds, AllValid, Sums, Z})),
        scatter}}};
  return plan;
}

Step &step(Plan &plan, size_t index) { return plan.variants[0].steps[index]; }

/// The message about a plan changed by `change`.
std::string say(const std::function<void(Plan &)> &change) {
  Plan plan = makePackedPlan();
  change(plan);
  return verifyPlan(plan).message();
}

} // namespace

TEST(PackedPlan, IsRight) {
  Plan plan = makePackedPlan();
  EXPECT_TRUE(verifyPlan(plan)) << verifyPlan(plan).message();
  EXPECT_EQ(countDestinationsOfRow(plan, step(plan, Gather)), 2);
  EXPECT_EQ(step(plan, Scatter).packedIds(), Ids);
  EXPECT_EQ(step(plan, Scatter).packedDestinations(), Destinations);
  std::string text = printPlan(plan);
  EXPECT_NE(text.find("\"pack_kernel\":\"pack\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"routed_pairs\":[1]"), std::string::npos) << text;
}

TEST(PackedPlan, HasBothKernels) {
  EXPECT_EQ(say([](Plan &plan) { step(plan, Gather).routeKernel = -1; }),
            "plan: variants[0].steps[0].route_kernel is -1; an index into "
            "kernels, of which there are 4, is accepted");
  EXPECT_EQ(say([](Plan &plan) { step(plan, Gather).packKernel = -1; }),
            "plan: variants[0].steps[0].pack_kernel is -1; an index into "
            "kernels, of which there are 4, is accepted");
  EXPECT_EQ(say([](Plan &plan) { step(plan, Scatter).packKernel = 9; }),
            "plan: variants[0].steps[2].pack_kernel is 9; an index into "
            "kernels, of which there are 4, is accepted");
}

TEST(PackedPlan, HasIdsAndDestinations) {
  const std::string gathers = "plan: variants[0].steps[0].kernel_args is ";
  const std::string accepted = "; an all-to-all's: ids, i32 of two dimensions, "
                               "and destinations, i32 of one, is accepted";
  EXPECT_EQ(say([](Plan &plan) {
              step(plan, Gather).args.pop_back();
              step(plan, Gather).args.pop_back();
              step(plan, Gather).numKernelArgs = 0;
            }),
            gathers + "0" + accepted);
  EXPECT_EQ(say([](Plan &plan) {
              step(plan, Gather).args.back() = Argument::ofTensor(Ids);
            }),
            gathers + "2" + accepted);
  EXPECT_EQ(
      say([](Plan &plan) {
        step(plan, Scatter).args.back() = Argument::ofTensor(Ids);
      }),
      "plan: variants[0].steps[2].kernel_args is 3; an all-to-all's: ids of "
      "the rank's rows and of all, i32 of two dimensions, and destinations, "
      "i32 of "
      "one, is accepted");
}

TEST(PackedPlan, RowsGoBackAsTheyCame) {
  const std::string scatter = "plan: variants[0].steps[2].pack_kernel is 3; -1 "
                              "(of a sum of one pair, whose rows have come by "
                              "an all_gather with one, or the last chunk of "
                              "it, another number) is accepted";
  EXPECT_EQ(say([](Plan &plan) {
              step(plan, Gather).routeKernel = -1;
              step(plan, Gather).packKernel = -1;
              step(plan, Gather).routedPairs = {};
              step(plan, Gather).args.resize(6);
              step(plan, Gather).numKernelArgs = 0;
            }),
            scatter);
  EXPECT_EQ(say([](Plan &plan) {
              step(plan, Scatter).packKernel = -1;
              step(plan, Scatter).routeKernel = -1;
              step(plan, Scatter).args.resize(2);
              step(plan, Scatter).numKernelArgs = 0;
            }),
            "plan: variants[0].steps[0].pack_kernel is 2; -1 (of an all_gather "
            "whose rows go back by a reduce_scatter with one, another number) "
            "is accepted");
}

/// Another collective would move rows in another order.
TEST(PackedPlan, NobodyElseMovesWhatWasGathered) {
  EXPECT_EQ(
      say([](Plan &plan) {
        std::vector<Step> &steps = plan.variants[0].steps;
        step(plan, Launch).args.pop_back();
        steps.insert(steps.begin() + Scatter,
                     Step::collective(CollectiveKind::AllReduce,
                                      MeshAxis::Tensor, tensors({All, Z})));
      }),
      "plan: variants[0].steps[0].pack_kernel is 2; -1 (steps[2] moves what it "
      "gathers, whose rows would be in another order) is accepted");
  EXPECT_EQ(say([](Plan &plan) {
              plan.tensors[Valid].dtype = DType::F32;
              plan.tensors[AllValid].dtype = DType::F32;
            }),
            "plan: variants[0].steps[0].pack_kernel is 2; -1 ('valid' has no "
            "row per token, and is not how many rows of the rank count) is "
            "accepted");
}

TEST(PackedPlan, RoutedPairsAreAscending) {
  EXPECT_EQ(say([](Plan &plan) { step(plan, Gather).routedPairs = {1, 1}; }),
            "plan: variants[0].steps[0].routed_pairs[1] is 1; 2 to 2 is "
            "accepted");
  EXPECT_EQ(say([](Plan &plan) { step(plan, Gather).routedPairs = {3}; }),
            "plan: variants[0].steps[0].routed_pairs[0] is 3; 0 to 2 is "
            "accepted");
}
