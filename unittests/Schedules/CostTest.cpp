//===- CostTest.cpp - predicted times and the choice by them ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Rewrites/PermuteRows.h"
#include "moec/Schedules/Rewrites/SplitLargeGroups.h"

#include "../Compiler/ParsedModule.h"
#include "Schedules/Sm90Gemm/Cost.h"
#include "Schedules/Sm90Gemm/GroupTiling.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Schedules/Device.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace moec;

namespace {

/// The two gemms of a layer's experts.
struct Products {
  int64_t experts, topK, hidden, intermediate;
};

constexpr Products kQwen30 = {128, 8, 2048, 768};
constexpr Products kQwen235 = {128, 8, 4096, 1536};
constexpr Products kMixtral = {8, 2, 4096, 14336};
constexpr Products kLlama4 = {128, 1, 5120, 8192};

/// SiLU of gate, times up.
const char *const kGatedEpilogue = R"(epilogue {
             ^bb0(%g: f32, %u: f32):
               %one = arith.constant 1.0 : f32
               %n = arith.negf %g : f32
               %e = math.exp %n : f32
               %d = arith.addf %one, %e : f32
               %q = arith.divf %g, %d : f32
               %1 = arith.mulf %q, %u : f32
               tile.yield %1 : f32
             } {layout = #moe.weight_layout<order = gate_up>})";

tile::Sm90GemmAttr asGemm(tile::ConfigAttr config) {
  return cast<tile::Sm90GemmAttr>(config);
}

TEST(MeanCeilTest, IsASumOverProbabilities) {
  constexpr double width = 132;
  for (double spread : {0.01, 0.3, 0.49, 0.51, 0.8, 1.5, 20.0})
    for (double means : {0.4, 1.0, 3.0, 5.9, 6.5, 40.0}) {
      double deviation = spread * width, mean = means * deviation;
      double sum = 0;
      for (int64_t n = 0; double(n) * width < mean + 9 * deviation + 1; ++n)
        sum += 0.5 * std::erfc((double(n) * width + 0.5 - mean) /
                               (deviation * std::sqrt(2.0)));
      EXPECT_NEAR(sm90::meanCeil(mean, deviation * deviation, width), sum,
                  1e-8 * std::max(1.0, sum))
          << spread << " " << means;
    }
  // Without a deviation x is one number.
  EXPECT_EQ(sm90::meanCeil(133, 0, width), 2);
}

class CostTest : public testing::Test {
protected:
  /// Gate and up of gathered rows.
  tile::GemmOp makeFirst(Products p) {
    return parse(llvm::formatv(
        R"(tile.kernel @k(%x: memref<?x{2}xbf16>, %w: memref<{0}x{4}x{2}xbf16>,
             %o: memref<{1}xi32>, %s: memref<?xi32>, %y: memref<?x{3}xbf16>, %t: i64) {{
           tile.gemm tokens(%t) ins(%x, %w : memref<?x{2}xbf16>, memref<{0}x{4}x{2}xbf16>)
             offsets(%o : memref<{1}xi32>) source(%s : memref<?xi32>)
             outs(%y : memref<?x{3}xbf16>) {5}
           tile.return
         })",
        p.experts, p.experts + 1, p.hidden, p.intermediate, 2 * p.intermediate,
        kGatedEpilogue));
  }
  /// The gemm behind a launch that permutes its rows.
  std::pair<tile::GatherRowsOp, tile::GemmOp> makeOrdered(Products p) {
    auto product = parse(llvm::formatv(
        R"(plan.program @p max_tokens 16384 {{
             %x = plan.tensor input "x" rows <"tokens"> : memref<?x{2}xbf16>
             %w = plan.tensor weight "w" : memref<{0}x{4}x{2}xbf16>
             %o = plan.tensor input "o" : memref<{1}xi32>
             %s = plan.tensor input "s" rows <"tokens * {5}"> : memref<?xi32>
             %z = plan.buffer "z" slot 0 rows <"tokens * {5}"> : memref<?x{2}xbf16>
             %y = plan.tensor output "y" rows <"tokens * {5}"> : memref<?x{3}xbf16>
             plan.variant tokens 0 to 16384 {{
               plan.launch @gather ins(%x, %o, %s : memref<?x{2}xbf16>, memref<{1}xi32>, memref<?xi32>)
                 outs(%z : memref<?x{2}xbf16>)
               plan.launch @k ins(%z, %w, %o : memref<?x{2}xbf16>, memref<{0}x{4}x{2}xbf16>, memref<{1}xi32>)
                 outs(%y : memref<?x{3}xbf16>)
             }
           }
           tile.kernel @gather(%x: memref<?x{2}xbf16>, %o: memref<{1}xi32>,
             %s: memref<?xi32>, %z: memref<?x{2}xbf16>, %t: i64) {{
           tile.gather_rows tokens(%t) ins(%x : memref<?x{2}xbf16>)
             offsets(%o : memref<{1}xi32>) source(%s : memref<?xi32>)
             outs(%z : memref<?x{2}xbf16>) {{top_k = {5} : i64}
           tile.return
         }
         tile.kernel @k(%z: memref<?x{2}xbf16>, %w: memref<{0}x{4}x{2}xbf16>,
             %o: memref<{1}xi32>, %y: memref<?x{3}xbf16>, %t: i64) {{
           tile.gemm tokens(%t) ins(%z, %w : memref<?x{2}xbf16>, memref<{0}x{4}x{2}xbf16>)
             offsets(%o : memref<{1}xi32>) outs(%y : memref<?x{3}xbf16>) {6}
           tile.return
         })",
        p.experts, p.experts + 1, p.hidden, p.intermediate, 2 * p.intermediate,
        p.topK, kGatedEpilogue));
    tile::GatherRowsOp gather;
    parsed.back()->module->walk([&](tile::GatherRowsOp op) { gather = op; });
    return {gather, product};
  }
  tile::GemmOp makeSecond(Products p) {
    return parse(llvm::formatv(
        R"(tile.kernel @k(%x: memref<?x{3}xbf16>, %w: memref<{0}x{2}x{3}xbf16>,
             %o: memref<{1}xi32>, %y: memref<?x{2}xbf16>, %t: i64) {{
           tile.gemm tokens(%t) ins(%x, %w : memref<?x{3}xbf16>, memref<{0}x{2}x{3}xbf16>)
             offsets(%o : memref<{1}xi32>) outs(%y : memref<?x{2}xbf16>)
           tile.return
         })",
        p.experts, p.experts + 1, p.hidden, p.intermediate));
  }
  /// Gate and up in block fp8, whose result is quantized, or bf16.
  tile::GemmOp makeScaled(Products p, bool quantizes) {
    std::string text = llvm::formatv(
        R"(tile.kernel @k(%x: memref<?x{2}xf8E4M3FN>, %w: memref<{0}x{4}x{2}xf8E4M3FN>,
             %a: memref<?x{5}xf32>, %b: memref<{0}x{6}x{5}xf32>, %o: memref<{1}xi32>,
             %s: memref<?xi32>, %y: memref<?x{3}xRESULT>, %z: memref<?x{7}xf32>, %t: i64) {{
           tile.gemm tokens(%t) ins(%x, %w : memref<?x{2}xf8E4M3FN>, memref<{0}x{4}x{2}xf8E4M3FN>)
             input_scale(%a : memref<?x{5}xf32>) weight_scale(%b : memref<{0}x{6}x{5}xf32>)
             offsets(%o : memref<{1}xi32>) source(%s : memref<?xi32>)
             outs(%y : memref<?x{3}xRESULT>) SCALE epilogue {{
             ^bb0(%g: f32, %u: f32):
               %1 = arith.mulf %g, %u : f32
               tile.yield %1 : f32
             } {{layout = #moe.weight_layout<order = gate_up>,
                input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>,
                weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]> ROUNDED}
           tile.return
         })",
        p.experts, p.experts + 1, p.hidden, p.intermediate, 2 * p.intermediate,
        p.hidden / 128, 2 * p.intermediate / 128, p.intermediate / 128);
    std::string scale = llvm::formatv("result_scale(%z : memref<?x{0}xf32>)",
                                      p.intermediate / 128);
    for (auto [name, value] :
         {std::pair<StringRef, std::string>{"RESULT",
                                            quantizes ? "f8E4M3FN" : "bf16"},
          {"SCALE", quantizes ? scale : ""},
          {"ROUNDED", quantizes
                          ? ", result_quant = #moe.quant<storage = f8E4M3FN, "
                            "scale = f32, granularity = group, block = [1, "
                            "128], dynamic = true>, rounded_to = bf16"
                          : ""}})
      for (size_t at; (at = text.find(name)) != std::string::npos;)
        text.replace(at, name.size(), value);
    return parse(text);
  }
  /// Logits, one column per expert.
  tile::GemmOp makeRouter(Products p) {
    return parse(llvm::formatv(
        R"(tile.kernel @k(%x: memref<?x{1}xbf16>, %w: memref<{0}x{1}xbf16>,
             %y: memref<?x{0}xf32>, %t: i64) {{
           tile.gemm tokens(%t) ins(%x, %w : memref<?x{1}xbf16>, memref<{0}x{1}xbf16>)
             outs(%y : memref<?x{0}xf32>)
           tile.return
         })",
        p.experts, p.hidden));
  }
  /// Permuted rows, with weights dequantized in registers; bytes of scales per
  /// 64 elements.
  tile::GemmOp makeDecoded(Products p, StringRef quant, int64_t scaleBytes,
                           StringRef input = "bf16") {
    return parse(llvm::formatv(
        R"(tile.kernel @k(%x: memref<?x{3}x{7}>, %w: memref<{0}x{2}x{4}xi8>,
             %s: memref<{0}x{2}x{5}xi8>, %r: memref<{0}x{2}xf32>,
             %o: memref<{1}xi32>, %y: memref<?x{2}x{7}>, %t: i64) {{
           tile.gemm tokens(%t) ins(%x, %w : memref<?x{3}x{7}>, memref<{0}x{2}x{4}xi8>)
             weight_scale(%s : memref<{0}x{2}x{5}xi8>) weight_global_scale(%r : memref<{0}x{2}xf32>)
             offsets(%o : memref<{1}xi32>) outs(%y : memref<?x{2}x{7}>)
             {{weight_quant = #moe.quant<{6}, packing = {8}, second_scale = f32>, strategy = #moe.strategy<prepack>}
           tile.return
         })",
        p.experts, p.experts + 1, p.hidden, p.intermediate, p.intermediate / 2,
        p.intermediate / 64 * scaleBytes, quant, input,
        input == "f16" ? "prepacked_f16" : "prepacked"));
  }
  tile::GemmOp parse(const std::string &text) {
    parsed.push_back(std::make_unique<ParsedModule>(text));
    tile::GemmOp found;
    parsed.back()->module->walk([&](tile::GemmOp op) { found = op; });
    return found;
  }
  static tile::LoadAttr makeLoad(tile::GemmOp op, Products p, int64_t minTokens,
                                 int64_t maxTokens) {
    return tile::LoadAttr::get(op.getContext(), minTokens, maxTokens, p.topK,
                               p.experts);
  }
  std::vector<Candidate> enumerate(tile::GemmOp op, Products p,
                                   int64_t minTokens, int64_t maxTokens) {
    return enumerateCandidates(op, *schedule->as<ModelsTime>(), target,
                               makeLoad(op, p, minTokens, maxTokens));
  }
  Prediction predict(tile::GemmOp op, Products p, tile::ConfigAttr config,
                     int64_t tokens, Routing routing = Routing::Uniform) {
    return schedule->as<ModelsTime>()
        ->costModel(op, makeLoad(op, p, 0, 1 << 20), target)
        ->predict(config, tokens, routing);
  }

  const Target target = *Target::find("sm_90a");
  const Schedule *schedule = findSchedule(target, "sm90.gemm");
  std::vector<std::unique_ptr<ParsedModule>> parsed;
};

/// Values of BLOCK_M are searched for step by step, for one number of tokens
/// better than for the next.
TEST_F(CostTest, MoreTokensAreNeverFasterAtBest) {
  constexpr double found = 0.99;
  for (Products p : {kQwen30, kMixtral})
    for (tile::GemmOp op : {makeFirst(p), makeSecond(p)}) {
      double last = 0;
      for (int64_t tokens = 1; tokens <= 16384; tokens *= 2) {
        double us = std::numeric_limits<double>::infinity();
        for (const Candidate &candidate : enumerate(op, p, tokens, tokens))
          if (candidate.whyNot.empty())
            us = std::min(us, candidate.us.back());
        EXPECT_GE(us, found * last) << tokens;
        last = us;
      }
    }
}

TEST_F(CostTest, NothingBeatsTheFloor) {
  for (Products p : {kQwen30, kMixtral})
    for (tile::GemmOp op : {makeFirst(p), makeSecond(p)})
      for (int64_t tokens : {1, 64, 1024, 16384})
        for (const Candidate &candidate : enumerate(op, p, tokens, tokens)) {
          if (!candidate.whyNot.empty())
            continue;
          Prediction time = predict(op, p, candidate.config, tokens);
          EXPECT_GT(time.us, time.floorUs);
          EXPECT_GE(time.padding, 1);
          EXPECT_NEAR(time.us, candidate.us.back(), 1e-9);
        }
}

/// 16 bits per weight, 2 operations per weight and row.
TEST_F(CostTest, TheFloorIsBytesOrOperations) {
  tile::GemmOp op = makeFirst(kQwen30);
  tile::ConfigAttr config = enumerate(op, kQwen30, 1, 16384).front().config;
  const DeviceRates &device = *getDeviceRates(target);
  double weights = 2.0 * 768 * 2048;
  EXPECT_NEAR(predict(op, kQwen30, config, 1).floorUs,
              8 * weights * 2 / device.readBytes * 1e6, 1e-6);
  EXPECT_NEAR(predict(op, kQwen30, config, 16384).floorUs,
              2 * weights * 16384 * 8 / device.bf16Operations * 1e6, 1e-6);
}

/// One token: enough items to saturate the memory bus.
TEST_F(CostTest, OneTokenFillsTheBus) {
  tile::GemmOp op = makeFirst(kQwen30);
  tile::ConfigAttr config = enumerate(op, kQwen30, 0, 1).front().config;
  const DeviceRates &device = *getDeviceRates(target);
  auto ctas = double(std::max<int64_t>(asGemm(config).getSplitK(), 1));
  EXPECT_GE(predict(op, kQwen30, config, 1).items * ctas * device.smReadBytes,
            device.readBytes);
  EXPECT_LE(asGemm(config).getBlockM().back(), 16);
}

/// Where few CTAs would multiply many k tiles one after another, clusters share
/// them, as long as all run at once.
TEST_F(CostTest, FewTilesSplitK) {
  constexpr Products narrow = {256, 8, 7168, 256}, deep = {384, 6, 7168, 192};
  // CTAs that quantize results have 128 columns, so that few have tiles; others
  // may have 32 (H200, dsr1_tp8_fp8: 23.7 us apart, 25.9 split).
  for (bool quantizes : {false, true}) {
    tile::GemmOp op = makeScaled(narrow, quantizes);
    double apart = std::numeric_limits<double>::infinity(), split = apart;
    for (const Candidate &candidate : enumerate(op, narrow, 1, 1)) {
      if (!candidate.whyNot.empty()) {
        EXPECT_EQ(asGemm(candidate.config).getSplitK(), 0);
        continue;
      }
      Prediction time = predict(op, narrow, candidate.config, 1);
      int64_t ctas = asGemm(candidate.config).getSplitK();
      (ctas ? split : apart) = std::min(ctas ? split : apart, time.us);
      EXPECT_GE(time.us, time.floorUs);
      if (ctas) {
        EXPECT_LE(time.items * double(ctas),
                  double(target.getMultiprocessors()));
      }
    }
    bool isSplit =
        asGemm(enumerate(op, narrow, 1, 1).front().config).getSplitK() > 0;
    EXPECT_EQ(split < 0.8 * apart, quantizes);
    EXPECT_EQ(isSplit, quantizes);
  }
  // More CTAs than multiprocessors have tiles.
  for (tile::GemmOp op : {makeFirst(kQwen235), makeFirst(deep)})
    for (const Candidate &candidate : enumerate(op, kQwen235, 256, 256))
      EXPECT_EQ(asGemm(candidate.config).getSplitK(), 0);
  EXPECT_GT(
      asGemm(enumerate(makeFirst(deep), deep, 1, 1).front().config).getSplitK(),
      0);
  // Dense gemms run beside others.
  constexpr Products router = {512, 10, 7168, 512};
  for (const Candidate &candidate : enumerate(makeRouter(router), router, 1, 1))
    if (auto config = dyn_cast<tile::Sm90GemmAttr>(candidate.config))
      EXPECT_EQ(config.getSplitK(), 0);
}

/// A little more than two waves of long items would take three.
TEST_F(CostTest, FewLongItemsFillTheirWaves) {
  tile::GemmOp op = makeSecond(kMixtral);
  tile::ConfigAttr config = enumerate(op, kMixtral, 1024, 1024).front().config;
  Prediction time = predict(op, kMixtral, config, 1024);
  EXPECT_LT(time.waves * double(target.getMultiprocessors()) / time.items,
            1.15);
}

/// If two adjacent ranges have the same choice, it is also that of the merged
/// range.
// field-bug: sglang#24281
TEST_F(CostTest, ChoicesOfNeighboursAgree) {
  tile::GemmOp op = makeFirst(kQwen30);
  for (int64_t first = 1; first <= 8192; first *= 2)
    for (int64_t cut = first; cut <= 8192; cut *= 2) {
      auto left = enumerate(op, kQwen30, first, cut).front().config;
      auto right = enumerate(op, kQwen30, cut + 1, 16384).front().config;
      if (left == right) {
        EXPECT_EQ(enumerate(op, kQwen30, first, 16384).front().config, left)
            << first << " to " << cut;
      }
    }
}

/// If all tokens pick the same experts, tiles with few rows read the weights
/// many times.
TEST_F(CostTest, UnevenRoutingIsNoDisaster) {
  for (tile::GemmOp op : {makeFirst(kQwen30), makeSecond(kQwen30)})
    for (int64_t tokens : {64, 256, 1024}) {
      std::vector<Candidate> all = enumerate(op, kQwen30, tokens, tokens);
      auto model = schedule->as<ModelsTime>()->costModel(
          op, makeLoad(op, kQwen30, 0, 1 << 20), target);
      double best = std::numeric_limits<double>::infinity();
      for (const Candidate &candidate : all)
        if (candidate.whyNot.empty())
          best = std::min(
              best, model->predict(candidate.config, tokens, Routing::Same).us);
      EXPECT_LT(model->predict(all.front().config, tokens, Routing::Same).us,
                1.5 * best)
          << tokens;
    }
}

/// Low values of BLOCK_M beside those for a uniform load, which takes hardly
/// longer with them.
TEST_F(CostTest, SkewedLoadsHaveLowTilesToo) {
  for (Products p : {kQwen30, kQwen235})
    for (tile::GemmOp op : {makeFirst(p), makeSecond(p)}) {
      constexpr int64_t minTokens = 1025, maxTokens = 16384;
      tile::Sm90GemmAttr best =
          asGemm(enumerate(op, p, minTokens, maxTokens).front().config);
      tile::Sm90GemmAttr chosen = asGemm(
          chooseForLoad(op, target, makeLoad(op, p, minTokens, maxTokens)));
      auto predictBoth = [&](int64_t tokens, Routing routing) {
        return std::pair(predict(op, p, best, tokens, routing).us,
                         predict(op, p, chosen, tokens, routing).us);
      };
      for (int64_t tokens : getTokenPoints(minTokens, maxTokens)) {
        auto [before, after] = predictBoth(tokens, Routing::Uniform);
        EXPECT_LE(after, 1.005 * before) << tokens;
      }
      auto [before, after] = predictBoth(4096, Routing::Zipf);
      EXPECT_LE(after, before);
      // The search has found a low value for one gemm of Qwen3-30B anyway.
      if (p.hidden == kQwen235.hidden)
        EXPECT_LT(after, 0.99 * before);
      EXPECT_LT(after, 1.05 * predict(op, p, chosen, 4096).us);
      EXPECT_EQ(chosen.getBlockM().back(), best.getBlockM().back());
      EXPECT_EQ(chosen.getBlockN(), best.getBlockN());
      EXPECT_EQ(chosen.getStages(), best.getStages());
    }
}

TEST_F(CostTest, PointsOfNeighboursMakeThoseOfBoth) {
  SmallVector<int64_t> left = getTokenPoints(0, 64);
  llvm::append_range(left, getTokenPoints(65, 1000));
  EXPECT_EQ(left, getTokenPoints(0, 1000));
  EXPECT_EQ(getTokenPoints(0, 1), SmallVector<int64_t>{1});
  EXPECT_EQ(getTokenPoints(65, 70), SmallVector<int64_t>{70});
}

/// The best first, then slower ones, then illegal ones with reasons.
TEST_F(CostTest, CandidatesAreSortedAndExplained) {
  std::vector<Candidate> candidates =
      enumerate(makeFirst(kQwen30), kQwen30, 9, 64);
  ASSERT_GT(candidates.size(), 20u);
  EXPECT_GE(candidates.front().relative, 1);
  bool isLegal = true;
  for (size_t i = 1; i < candidates.size(); ++i) {
    isLegal &= candidates[i].whyNot.empty();
    EXPECT_EQ(candidates[i].whyNot.empty(), isLegal);
    if (isLegal) {
      EXPECT_GE(candidates[i].relative, candidates[i - 1].relative);
      EXPECT_EQ(candidates[i].us.size(), 3u);
    }
  }
  EXPECT_FALSE(isLegal);
}

/// With a dynamic tile scheduler no CTA is late because of tiles with many
/// rows.
TEST_F(CostTest, DynamicSchedulersEvenOutTiles) {
  tile::GemmOp op = makeFirst(kQwen235);
  auto getTensorUs = [&](ArrayRef<int64_t> tileRows, bool dynamicScheduler) {
    auto config = tile::Sm90GemmAttr::get(
        op.getContext(), tileRows, /*block_n=*/128, /*block_k=*/64,
        /*stages=*/4, /*l2_rows=*/0, /*map_rows=*/false, /*no_swap_ab=*/false,
        dynamicScheduler, /*multicast_weights=*/false, /*split_k=*/0);
    return predict(op, kQwen235, config, 4096, Routing::Zipf).tensorUs;
  };
  // Tiles of one BLOCK_M, and of several.
  EXPECT_EQ(getTensorUs({152}, true), getTensorUs({152}, false));
  EXPECT_LT(getTensorUs({88, 152}, true), 0.95 * getTensorUs({88, 152}, false));
}

/// Each tile copies all weights: for 264 rows three small tiles are no better
/// than two of 136, with which the layer took 1.6 % less on H200s.
TEST_F(CostTest, MoreTilesCopyMoreWeights) {
  tile::GemmOp op = makeFirst(kQwen235);
  for (const Candidate &candidate : enumerate(op, kQwen235, 4096, 4096)) {
    sm90::GemmShape shape(op, candidate.config);
    EXPECT_GT(3 * sm90::getTileCost(shape, 88),
              2 * sm90::getTileCost(shape, 136));
    // Small last tiles cost less.
    EXPECT_LT(sm90::getTileCost(shape, 88), sm90::getTileCost(shape, 136));
  }
}

int64_t getGemvStep(tile::ConfigAttr config) {
  return cast<tile::GpuGemvAttr>(config).getBlockK();
}

/// For few rows of a router, all multiprocessors share the gemm. For many rows,
/// tiles read less.
TEST_F(CostTest, RoutersOfFewTokensSplitK) {
  for (Products p : {kQwen30, kMixtral}) {
    tile::GemmOp op = makeRouter(p);
    for (int64_t tokens : {1, 8, 16384}) {
      std::vector<Candidate> all = enumerate(op, p, tokens, tokens);
      EXPECT_EQ(all.front().config.getSchedule(),
                tokens == 16384 ? "sm90.gemm" : "gpu.gemv");
      for (const Candidate &candidate : all)
        if (candidate.whyNot.empty()) {
          EXPECT_GT(candidate.us.back(),
                    predict(op, p, candidate.config, tokens).floorUs);
        }
    }
    Prediction time = predict(op, p, enumerate(op, p, 1, 1).front().config, 1);
    EXPECT_GE(time.items, double(p.experts) / 2);
    // With one row, FMAs are faster than tensor cores.
    EXPECT_EQ(getGemvStep(enumerate(op, p, 1, 1).front().config), 0);
  }
  // Hundreds of rows are too many for FMAs.
  EXPECT_EQ(
      getGemvStep(
          enumerate(makeRouter(kQwen30), kQwen30, 256, 256).front().config),
      32);
  // Grouped gemms and those with many columns do not qualify.
  tile::GemmOp grouped = makeSecond(kQwen30);
  for (const Candidate &candidate : enumerate(grouped, kQwen30, 1, 1))
    EXPECT_EQ(candidate.config.getSchedule(), "sm90.gemm");
}

/// A router's weights stay in the L2 cache, rows of many tokens do not:
/// adjacent CTAs take all columns of a tile of rows.
TEST_F(CostTest, RoutersOfManyTokensReadRowsOnce) {
  constexpr Products next = {512, 10, 2048, 512};
  tile::GemmOp op = makeRouter(next);
  for (int64_t tokens : {4096, 16384})
    for (const Candidate &candidate : enumerate(op, next, tokens, tokens)) {
      auto config = dyn_cast<tile::Sm90GemmAttr>(candidate.config);
      if (!config)
        continue;
      // 17 MB of rows stay.
      EXPECT_EQ(config.getL2Rows(),
                tokens == 16384 ? config.getBlockM().back() : 0);
    }
  // One CTA has all columns.
  tile::GemmOp narrow = makeRouter(kMixtral);
  for (const Candidate &candidate : enumerate(narrow, kMixtral, 16384, 16384))
    if (auto config = dyn_cast<tile::Sm90GemmAttr>(candidate.config))
      EXPECT_EQ(config.getL2Rows(), 0);
}

/// Quantized values halve the written bytes, but a CTA needs a whole group of
/// columns.
TEST_F(CostTest, QuantizedResultsNeedAGroupOfColumns) {
  for (int64_t tokens : {1, 64, 4096}) {
    tile::GemmOp op = makeScaled(kQwen30, /*quantizes=*/true);
    tile::GemmOp apart = makeScaled(kQwen30, /*quantizes=*/false);
    for (const Candidate &candidate : enumerate(op, kQwen30, tokens, tokens)) {
      if (!candidate.whyNot.empty())
        continue;
      EXPECT_EQ(asGemm(candidate.config).getBlockN(), 128);
      Prediction own = predict(op, kQwen30, candidate.config, tokens);
      Prediction other = predict(apart, kQwen30, candidate.config, tokens);
      EXPECT_LE(own.floorUs, other.floorUs);
      EXPECT_GT(own.epilogueUs, other.epilogueUs);
      // Where warps share rows, all rows of a tile fit.
      sm90::GemmShape shape(op, candidate.config);
      for (int64_t blockM : shape.tile().blockM)
        EXPECT_TRUE(shape.tile().splitsRows(blockM) ||
                    shape.shared().getSharedRows() >= blockM);
    }
    EXPECT_TRUE(enumerate(op, kQwen30, tokens, tokens).front().whyNot.empty());
  }
}

/// A copy of rows is cheap beside a gemm with many columns.
TEST_F(CostTest, RowsInOrderPayForWideProducts) {
  const auto &permutes = *schedule->as<PermutesRows>();
  const auto &copies =
      *findSchedule(target, "gpu.gather_rows")->as<PredictsTime>();
  const DeviceRates &device = *getDeviceRates(target);
  auto getSaved = [&](Products p, int64_t tokens) {
    tile::GemmOp product = makeFirst(p);
    auto [gather, ordered] = makeOrdered(p);
    tile::LoadAttr load = makeLoad(product, p, tokens, tokens);
    tile::ConfigAttr own = enumerate(product, p, tokens, tokens).front().config;
    tile::ConfigAttr best = chooseForLoad(ordered, target, load);
    EXPECT_FALSE(permutes.hasMaps(own));
    EXPECT_TRUE(permutes.hasMaps(best));
    // A given config stays, except for its tensor maps.
    tile::ConfigAttr mapped = permutes.withMaps(own);
    EXPECT_EQ(schedule->whyIllegal(ordered, mapped, target), "");
    EXPECT_NE(schedule->whyIllegal(product, mapped, target), "");
    return predict(product, p, own, tokens).us -
           predict(ordered, p, best, tokens).us - device.getLaunchTime() -
           copies.predict(gather, load, tokens, Routing::Uniform, device);
  };
  EXPECT_GT(getSaved(kMixtral, 8192), 0);
  EXPECT_LT(getSaved(kQwen30, 8192), 0);
  // Few tokens take little longer than one more launch.
  EXPECT_LT(getSaved(kMixtral, 8), 0);
}

/// Raster groups have about 20 MB of rows if all tokens could have more than
/// twice as many bytes.
TEST_F(CostTest, ManyWideRowsHaveRasterGroups) {
  struct RasterGroups {
    tile::GemmOp op;
    Products products;
    int64_t tokens, rows;
  };
  for (RasterGroups expected :
       {RasterGroups{makeFirst(kMixtral), kMixtral, 16384, 2440},
        RasterGroups{makeFirst(kMixtral), kMixtral, 4096, 0},
        RasterGroups{makeSecond(kMixtral), kMixtral, 16384, 696},
        RasterGroups{makeSecond(kMixtral), kMixtral, 4096, 696},
        // So few that there is no dynamic scheduler.
        RasterGroups{makeSecond(kMixtral), kMixtral, 64, 0},
        RasterGroups{makeFirst(kQwen30), kQwen30, 16384, 4880},
        RasterGroups{makeFirst(kQwen30), kQwen30, 4096, 0},
        RasterGroups{makeSecond(kQwen30), kQwen30, 16384, 0}})
    for (const Candidate &candidate : enumerate(
             expected.op, expected.products, expected.tokens, expected.tokens))
      EXPECT_EQ(asGemm(candidate.config).getL2Rows(), expected.rows)
          << expected.tokens
          << " tokens, block_n = " << asGemm(candidate.config).getBlockN();
}

/// A launch for groups with many rows finds none if experts are equally likely,
/// and has all work if all tokens pick the same experts.
TEST_F(CostTest, GroupsShareTheWork) {
  tile::GemmOp all = makeFirst(kLlama4), few = makeFirst(kLlama4),
               many = makeFirst(kLlama4);
  few.setMaxGroupRows(352);
  many.setMinGroupRows(353);
  tile::ConfigAttr config = enumerate(all, kLlama4, 513, 8192).front().config;
  const DeviceRates &device = *getDeviceRates(target);
  auto getTime = [&](tile::GemmOp op, int64_t tokens, Routing routing) {
    return predict(op, kLlama4, config, tokens, routing).us;
  };
  for (int64_t tokens : {513, 4096, 8192}) {
    EXPECT_EQ(getTime(few, tokens, Routing::Uniform),
              getTime(all, tokens, Routing::Uniform));
    EXPECT_EQ(getTime(many, tokens, Routing::Uniform), device.getIdleTime());
    EXPECT_EQ(getTime(few, tokens, Routing::Same), device.getIdleTime());
    EXPECT_EQ(getTime(many, tokens, Routing::Same),
              getTime(all, tokens, Routing::Same));
  }
  EXPECT_LT(getTime(few, 8192, Routing::Zipf),
            getTime(all, 8192, Routing::Zipf));
  EXPECT_LT(getTime(many, 8192, Routing::Zipf),
            getTime(all, 8192, Routing::Zipf));
  EXPECT_LT(device.getIdleTime(), device.getLaunchTime());
}

/// Large tiles save time.
TEST_F(CostTest, LargeGroupsHaveHighTiles) {
  const auto &splits = *schedule->as<SplitsLargeGroups>();
  auto choose = [&](Products p, int64_t minTokens, int64_t maxTokens) {
    tile::GemmOp product = makeFirst(p), large = makeFirst(p);
    product.setConfigAttr(
        enumerate(product, p, minTokens, maxTokens).front().config);
    tile::LoadAttr load = makeLoad(product, p, minTokens, maxTokens);
    large.setMinGroupRows(splits.getLargeGroupRows(product, load));
    EXPECT_GE(*large.getMinGroupRows(), uint64_t(maxTokens / 4));
    tile::ConfigAttr config =
        splits.chooseLargeGroups(product, large, load, target);
    EXPECT_EQ(schedule->whyIllegal(large, config, target), "");
    EXPECT_LE(
        predict(large, p, config, maxTokens, Routing::Same).us,
        predict(large, p, product.getConfigAttr(), maxTokens, Routing::Same)
            .us);
    return std::pair(product.getConfigAttr(), config);
  };
  auto [own, config] = choose(kLlama4, 513, 8192);
  EXPECT_GT(asGemm(config).getBlockM().back(), asGemm(own).getBlockM().back());
  // No group of uneven routing has so many rows.
  tile::GemmOp large = makeFirst(kLlama4);
  large.setMinGroupRows(8192 / 4);
  EXPECT_EQ(predict(large, kLlama4, config, 8192, Routing::Zipf).us,
            getDeviceRates(target)->getIdleTime());
  for (Products p : {kQwen30, kMixtral})
    choose(p, 513, 8192);
}

/// As much as they have code.
TEST_F(CostTest, KernelsHaveAPenalty) {
  auto getPenalty = [](mlir::Operation *phase) {
    return getKernelPenalty(phase->getParentOfType<tile::KernelOp>());
  };
  auto [gather, ordered] = makeOrdered(kQwen30);
  EXPECT_EQ(getPenalty(makeFirst(kQwen30)), getPenalty(ordered));
  EXPECT_LT(getPenalty(gather), getPenalty(ordered) / 10);
}

/// A BLOCK_M is the dearer the longer weights are decoded.
TEST_F(CostTest, BlockMsHaveAPenalty) {
  auto getPenalty = [&](tile::GemmOp op) {
    std::vector<double> penalties;
    for (const Candidate &candidate : enumerate(op, kQwen30, 1025, 4096)) {
      if (!candidate.whyNot.empty() ||
          !isa<tile::Sm90GemmAttr>(candidate.config))
        continue;
      auto blockMs = asGemm(candidate.config).getBlockM().size();
      penalties.push_back(candidate.penalty / double(blockMs));
    }
    EXPECT_GT(penalties.size(), 10u);
    for (double penalty : penalties)
      EXPECT_DOUBLE_EQ(penalty, penalties.front());
    return penalties.front();
  };
  double plain = getPenalty(makeFirst(kQwen30));
  double int4 = getPenalty(makeDecoded(
      kQwen30,
      "storage = i4, scale = bf16, granularity = group, block = [1, 128]", 1));
  double nvfp4 = getPenalty(makeDecoded(
      kQwen30,
      "storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = "
      "[1, 16]",
      4));
  EXPECT_GT(int4, 2 * plain);
  EXPECT_GT(nvfp4, 1.2 * int4);
  // For f16 a minimum takes one multiplication less, and a scale is not a sum;
  // e2m1 takes two operations more.
  auto getDecoded = [&](StringRef quant, int64_t scaleBytes, StringRef input) {
    return getPenalty(makeDecoded(kQwen30, quant, scaleBytes, input));
  };
  StringRef minima = "storage = i4, scale = f32, granularity = group, block = "
                     "[1, 64], minimum = true";
  EXPECT_LT(getDecoded(minima, 6, "f16"), getDecoded(minima, 8, "bf16"));
  StringRef points = "storage = i4, scale = f32, granularity = group, block = "
                     "[1, 64], zero_point = true";
  EXPECT_LT(getDecoded(points, 4, "f16"), getDecoded(points, 6, "bf16"));
  StringRef mxfp4 = "storage = f4E2M1FN, scale = f8E8M0FNU, granularity = "
                    "group, block = [1, 32]";
  EXPECT_GT(getDecoded(mxfp4, 2, "f16"), getDecoded(mxfp4, 2, "bf16"));
}

TEST_F(CostTest, OnlyMeasuredDevicesHaveRates) {
  EXPECT_EQ(getDeviceRates(*Target::find("cpu", 8)), nullptr);
  EXPECT_EQ(getDeviceRates(*Target::find("sm_80")), nullptr);
  EXPECT_EQ(getDeviceRates(target)->multiprocessors,
            target.getMultiprocessors());
}

} // namespace
