//===- ShardsTest.cpp - tests of weight shards ----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/Shards.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace moec;

namespace {

LayerSpec makeSpec(ParallelSpec parallel) {
  LayerSpec spec;
  spec.hiddenSize = 2;
  spec.numExperts = 4;
  spec.topK = 1;
  spec.intermediateSize = 4;
  spec.expertBias = true;
  spec.sharedExperts = SharedExpertsSpec();
  spec.sharedExperts->intermediateSize = 2;
  spec.activation = getDefaultActivation(Activation::Silu);
  spec.parallel = std::move(parallel);
  return spec;
}

/// The shard on a rank of an f32 tensor with elements 0, 1, 2, ...
std::vector<float> cut(const LayerSpec &spec, int64_t rank,
                       const std::string &name) {
  for (const TensorShard &shard : shardWeights(spec, rank)) {
    if (shard.local.name != name)
      continue;
    auto count = [](const TensorInfo &info) {
      return std::accumulate(info.shape.begin(), info.shape.end(), int64_t(1),
                             std::multiplies<>());
    };
    std::vector<float> whole(count(shard.whole)), local(count(shard.local), -1);
    std::iota(whole.begin(), whole.end(), 0.0f);
    copyShard(shard, reinterpret_cast<const uint8_t *>(whole.data()),
              reinterpret_cast<uint8_t *>(local.data()));
    return local;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

using Floats = std::vector<float>;

} // namespace

TEST(ShardsTest, EachRankHasAPartOfEveryExpert) {
  LayerSpec spec = makeSpec(
      {1, 1, 2, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Split, {}});
  spec.numExperts = 1;
  // Gate rows 0 to 3 and up rows 4 to 7, of two elements each.
  EXPECT_EQ(cut(spec, 0, "experts.w13"), (Floats{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(cut(spec, 1, "experts.w13"), (Floats{4, 5, 6, 7, 12, 13, 14, 15}));
  EXPECT_EQ(cut(spec, 1, "experts.w13_bias"), (Floats{2, 3, 6, 7}));
  EXPECT_EQ(cut(spec, 0, "experts.w2"), (Floats{0, 1, 4, 5}));
  EXPECT_EQ(cut(spec, 1, "experts.w2"), (Floats{2, 3, 6, 7}));
  // Partial sums of ranks are added, so only one rank has the bias.
  EXPECT_EQ(cut(spec, 0, "experts.w2_bias"), (Floats{0, 1}));
  EXPECT_EQ(cut(spec, 1, "experts.w2_bias"), (Floats{0, 0}));
  spec.gateUpOrder = GateUpOrder::Interleaved;
  EXPECT_EQ(cut(spec, 1, "experts.w13"),
            (Floats{8, 9, 10, 11, 12, 13, 14, 15}));
}

TEST(ShardsTest, EachRankHasWholeExperts) {
  LayerSpec spec = makeSpec({2,
                             1,
                             1,
                             /*sp=*/false,
                             /*reduce=*/true,
                             ExpertPlacement::RoundRobin,
                             {}});
  EXPECT_EQ(cut(spec, 1, "experts.w2_bias"), (Floats{2, 3, 6, 7}));
  EXPECT_EQ(getLocalIds(spec, 1), (std::vector<int32_t>{-1, 0, -1, 1}));
  spec.parallel->placement = ExpertPlacement::Linear;
  EXPECT_EQ(getLocalIds(spec, 1), (std::vector<int32_t>{-1, -1, 0, 1}));
  spec.parallel->placement = ExpertPlacement::Listed;
  spec.parallel->lists = {{3, 0}, {2, 1}};
  EXPECT_EQ(cut(spec, 0, "experts.w2_bias"), (Floats{6, 7, 0, 1}));
  EXPECT_EQ(getLocalIds(spec, 0), (std::vector<int32_t>{1, -1, -1, 0}));
}

/// Physical experts are numbered rank by rank; the lists give their logical
/// experts.
TEST(ShardsTest, OrdersOfColumnsAreWhole) {
  LayerSpec spec = makeSpec(
      {1, 1, 2, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Split, {}});
  spec.expertColumns = true;
  EXPECT_EQ(cut(spec, 1, "experts.w13_columns"),
            (Floats{0, 1, 2, 3, 4, 5, 6, 7}));
  spec.parallel->placement = ExpertPlacement::RoundRobin;
  EXPECT_EQ(cut(spec, 1, "experts.w13_columns"), (Floats{2, 3, 6, 7}));
}

TEST(ShardsTest, EachRankHasPhysicalExperts) {
  LayerSpec spec = makeSpec(
      {2, 1, 1, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Linear, {}});
  spec.replicas = {/*numPhysicalExperts=*/6, /*maxReplicas=*/2};
  EXPECT_EQ(cut(spec, 1, "experts.w2_bias"), (Floats{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(getLocalIds(spec, 1), (std::vector<int32_t>{-1, -1, -1, 0, 1, 2}));
  EXPECT_EQ(cut(spec, 1, "gate.weight").size(), 8u);
  EXPECT_EQ(spec.getLogicalIds(), (std::vector<int64_t>{0, 1, 2, 3, 0, 1}));
  spec.parallel->placement = ExpertPlacement::Listed;
  spec.parallel->lists = {{3, 0, 1}, {2, 1, 3}};
  EXPECT_EQ(cut(spec, 1, "experts.w2_bias"), (Floats{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(getLocalIds(spec, 0), (std::vector<int32_t>{0, 1, 2, -1, -1, -1}));
  EXPECT_EQ(spec.getLogicalIds(), (std::vector<int64_t>{3, 0, 1, 2, 1, 3}));
  spec.replicas.reset();
  EXPECT_EQ(spec.getLogicalIds(), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(ShardsTest, FirstRanksHaveOneExpertMore) {
  LayerSpec spec = makeSpec(
      {3, 1, 1, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Linear, {}});
  spec.numExperts = 5;
  EXPECT_EQ(spec.getNumLocalExperts(), 2);
  EXPECT_EQ(cut(spec, 1, "experts.w2_bias"), (Floats{4, 5, 6, 7}));
  EXPECT_EQ(cut(spec, 2, "experts.w2_bias"), (Floats{8, 9, 0, 0}));
  EXPECT_EQ(getLocalIds(spec, 2), (std::vector<int32_t>{-1, -1, -1, -1, 0}));
  EXPECT_EQ(getDestinations(spec, 0), (std::vector<int32_t>{0, 0, 1, 1, 2}));
  spec.parallel->placement = ExpertPlacement::RoundRobin;
  EXPECT_EQ(getLocalIds(spec, 1), (std::vector<int32_t>{-1, 0, -1, -1, 1}));
  EXPECT_EQ(getLocalIds(spec, 2), (std::vector<int32_t>{-1, -1, 0, -1, -1}));
  spec.parallel->placement = ExpertPlacement::Listed;
  spec.parallel->lists = {{4}, {3, 0, 1}, {2}};
  EXPECT_EQ(spec.getNumLocalExperts(), 3);
  EXPECT_EQ(cut(spec, 0, "experts.w2_bias"), (Floats{8, 9, 0, 0, 0, 0}));
  EXPECT_EQ(cut(spec, 1, "experts.w2_bias"), (Floats{6, 7, 0, 1, 2, 3}));
}

/// Blocks of 32 rows and columns, of which 3 are split over 2 ranks.
TEST(ShardsTest, ZerosPadBlocksThatRanksDoNotDivide) {
  LayerSpec spec = makeSpec(
      {1, 1, 2, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Split, {}});
  spec.numExperts = 1;
  spec.intermediateSize = 96;
  spec.quantization = QuantizationSpec{
      {StorageType::Fp8E4M3, ScaleType::F32, Granularity::Block, 32, 32},
      std::nullopt};
  EXPECT_EQ(spec.getLocalIntermediateSize(), 64);
  EXPECT_EQ(cut(spec, 0, "experts.w13_scale"), (Floats{0, 1, 3, 4}));
  EXPECT_EQ(cut(spec, 1, "experts.w13_scale"), (Floats{2, 0, 5, 0}));
  Floats bias = cut(spec, 1, "experts.w13_bias");
  EXPECT_EQ(bias.size(), 128u);
  for (size_t i = 0; i < 32; ++i)
    EXPECT_EQ((Floats{bias[i], bias[i + 32], bias[i + 64], bias[i + 96]}),
              (Floats{float(64 + i), 0, float(160 + i), 0}));
  EXPECT_EQ(cut(spec, 1, "experts.w2_scale"), (Floats{2, 0}));
}

/// The shared expert is split only over the ranks with the same tokens.
TEST(ShardsTest, RanksOfAGroupShareTheSharedExpert) {
  LayerSpec spec = makeSpec(
      {2, 1, 2, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Linear, {}});
  for (int64_t rank : {1, 3})
    EXPECT_EQ(cut(spec, rank, "shared_experts.w2"), (Floats{1, 3}));
  EXPECT_EQ(cut(spec, 2, "shared_experts.w13"), (Floats{0, 1, 4, 5}));
  EXPECT_EQ(cut(spec, 3, "gate.weight").size(), 8u);
}

/// Ranks that share a prompt are separate groups: rank r is number `r / tp %
/// pcp` among them.
TEST(ShardsTest, RanksOfAPromptHaveExpertsOfTheirOwn) {
  LayerSpec spec = makeSpec(
      {1, 2, 2, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Linear, {}});
  LayerSpec same = makeSpec(
      {2, 1, 2, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Linear, {}});
  EXPECT_EQ(spec.parallel->getNumRanks(), 4);
  EXPECT_EQ(spec.parallel->describeRanks(), "dp 1 x pcp 2 x tp 2");
  EXPECT_EQ(same.parallel->describeRanks(), "dp 2 x tp 2");
  EXPECT_TRUE(hasDestinations(spec));
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(getDestinations(spec, rank), getDestinations(same, rank));
    EXPECT_EQ(getLocalIds(spec, rank), getLocalIds(same, rank));
    for (const char *name : {"experts.w13", "shared_experts.w2"})
      EXPECT_EQ(cut(spec, rank, name), cut(same, rank, name));
  }
}

TEST(ShardsTest, BytesThatHoldTwoElementsAreNotParted) {
  LayerSpec spec = makeSpec(
      {1, 1, 2, /*sp=*/false, /*reduce=*/true, ExpertPlacement::Split, {}});
  OperandQuantization int4;
  int4.storage = StorageType::Int4;
  int4.granularity = Granularity::Group;
  int4.blockRows = 1;
  int4.blockColumns = 2;
  QuantizationSpec quantization;
  quantization.weight = int4;
  spec.quantization.w13 = spec.quantization.w2 = quantization;
  for (const TensorShard &shard : shardWeights(spec, 1)) {
    if (shard.local.name == "experts.w2") {
      EXPECT_EQ(shard.local.shape, (std::vector<int64_t>{4, 2, 1}));
      std::vector<uint8_t> whole = {0, 1, 2, 3}, local(2, 9);
      TensorShard one = shard;
      one.whole.shape[0] = one.local.shape[0] = 1;
      copyShard(one, whole.data(), local.data());
      EXPECT_EQ(local, (std::vector<uint8_t>{1, 3}));
    }
    if (shard.local.name == "experts.w2_scale")
      EXPECT_EQ(std::pair(shard.first, shard.count), std::pair(1L, 1L));
  }
}
