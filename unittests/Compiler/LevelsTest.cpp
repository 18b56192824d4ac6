//===- LevelsTest.cpp - the level of a module, and the way down -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/Levels.h"

#include "ParsedModule.h"
#include "moec/Transforms/LaunchRewrites.h"

using namespace mlir;
using namespace moec;

namespace {

constexpr llvm::StringLiteral kLayer = R"(
func.func @layer(
    %x: tensor<?x8xf32> {moe.name = "hidden_states", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %wt: tensor<?x2xf32> {moe.name = "topk_weights", moe.role = "input"},
    %w13: tensor<2x16x8xf32> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<2x8x16xf32> {moe.name = "experts.w2", moe.role = "weight"})
    -> (tensor<?x8xf32> {moe.name = "output"}) {
  %0 = moe.layer %x : tensor<?x8xf32> ids(%ids : tensor<?x2xi32>)
      weights(%wt : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<2x16x8xf32>, tensor<2x8x16xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
)";

TEST(LevelsTest, EachPipelineReachesTheNextLevel) {
  ParsedModule parsed(kLayer);
  FailureOr<Level> level = detectLevel(*parsed.module);
  ASSERT_TRUE(succeeded(level));
  EXPECT_EQ(*level, Level::Moe);

  PassManager toPlan(&parsed.context);
  buildMoeToPlanPipeline(toPlan, "cpu");
  ASSERT_TRUE(succeeded(toPlan.run(*parsed.module))) << parsed.messages;
  level = detectLevel(*parsed.module);
  ASSERT_TRUE(succeeded(level));
  EXPECT_EQ(*level, Level::Plan);

  PassManager toTile(&parsed.context);
  TileOptions options;
  options.lanes = 8;
  buildPlanToTilePipeline(toTile, options);
  ASSERT_TRUE(succeeded(toTile.run(*parsed.module))) << parsed.messages;
  level = detectLevel(*parsed.module);
  ASSERT_TRUE(succeeded(level));
  EXPECT_EQ(*level, Level::Tile);
}

static std::vector<llvm::StringRef> getRewritesOff(const LaunchFacts &facts) {
  std::vector<llvm::StringRef> off;
  for (llvm::StringRef name : getLaunchRewriteNames())
    if (!whyOff(name, facts, {}).empty())
      off.push_back(name);
  return off;
}

TEST(LevelsTest, FactsRuleOutRewrites) {
  using Names = std::vector<llvm::StringRef>;
  LaunchFacts facts;
  EXPECT_EQ(getRewritesOff(facts), Names());
  facts.dependentLaunches = false;
  EXPECT_EQ(getRewritesOff(facts), Names{"count-ids"});
  facts = {/*dependentLaunches=*/true, /*keepsBuffers=*/true};
  EXPECT_EQ(getRewritesOff(facts),
            (Names{"append-adapters", "expand-adapters", "quantize-rows",
                   "quantize-results", "permute-rows", "await-rows",
                   "join-routing", "split-columns"}));
  EXPECT_EQ(whyOff("dynamic-scheduler", facts, {"dynamic-scheduler"}),
            "disabled");
}

TEST(LevelsTest, NamesOfLevels) {
  EXPECT_EQ(stringifyLevel(Level::Moe), "moe");
  EXPECT_EQ(stringifyLevel(Level::Plan), "plan");
  EXPECT_EQ(stringifyLevel(Level::Tile), "tile");
}

TEST(LevelsTest, NothingToCompile) {
  ParsedModule parsed("func.func @f() { return }");
  EXPECT_TRUE(failed(detectLevel(*parsed.module)));
  EXPECT_NE(parsed.messages.find("has nothing to compile"), std::string::npos);
}

TEST(LevelsTest, TwoLevelsInOneModule) {
  ParsedModule parsed((kLayer + R"(
plan.kernel @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = moe.row_map %x : tensor<?x8xf32> {
  ^bb0(%a: f32):
    moe.yield %a : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}
)")
                          .str());
  EXPECT_TRUE(failed(detectLevel(*parsed.module)));
  EXPECT_NE(parsed.messages.find("is at a different level than the rest"),
            std::string::npos);
}

} // namespace
