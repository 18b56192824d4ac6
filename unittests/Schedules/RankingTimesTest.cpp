//===- RankingTimesTest.cpp - times of counting and ranking -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Against the records of benchmarks/counters.py, which have launches of all
// layers of the benchmark, and against what must be true of any such model.

#include "../Compiler/ParsedModule.h"
#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Device.h"
#include "moec/Schedules/Rewrites/CountIds.h"
#include "moec/Support/Json.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace moec;

namespace {

struct Layer {
  int64_t experts, topK;
  /// Those of this rank.
  int64_t groups;
};

class RankingTimesTest : public testing::Test {
protected:
  /// A sort by expert, with counts of chunks of this number of tokens if given.
  Operation *makeRank(Layer layer, int64_t chunkTokens = 0) {
    return parse(
        layer,
        "tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?xKxi32>, "
        "memref<?xKxf32>) " +
            std::string(chunkTokens ? "counts(%c : memref<128xGxi32>) " : "") +
            "outs(%o, %p, %s, %r : memref<Oxi32>, memref<?xKxi32>, "
            "memref<?xi32>, memref<?x1xf32>)",
        chunkTokens);
  }
  Operation *makeCount(Layer layer, int64_t chunkTokens) {
    return parse(layer,
                 "tile.count_slots tokens(%t) ids(%i : memref<?xKxi32>) "
                 "outs(%c : memref<128xGxi32>)",
                 chunkTokens);
  }

  /// Microseconds of a launch.
  double predict(Operation *op, int64_t tokens) {
    const auto &predicts =
        *getSchedulesFor(target, op).front()->as<PredictsTime>();
    return predicts.getLaunchTime(device) +
           predicts.predict(op, /*load=*/{}, tokens, Routing::Uniform, device);
  }

  /// Tokens of a chunk of about 1024 slots.
  static int64_t getChunkTokens(Layer layer) {
    return std::max<int64_t>(1024 / layer.topK, 1);
  }

  const Target target = *Target::find("sm_90a");
  const DeviceRates &device = *getDeviceRates(target);
  const std::map<std::string, Layer> layers = {
      {"dsv3", {256, 8, 256}},           {"dsv3_ep8", {256, 8, 32}},
      {"qwen3_235b", {128, 8, 128}},     {"qwen3_30b", {128, 8, 128}},
      {"qwen3_next", {512, 10, 512}},    {"mixtral8x7b", {8, 2, 8}},
      {"llama4_maverick", {128, 1, 128}}};

private:
  Operation *parse(Layer layer, std::string body, int64_t chunkTokens) {
    std::string attributes =
        llvm::formatv("{{num_experts = {0} : i64", layer.experts);
    if (chunkTokens)
      attributes += llvm::formatv(", chunk_tokens = {0} : i64", chunkTokens);
    if (layer.groups < layer.experts) {
      attributes += ", local_experts = array<i64: 0";
      for (int64_t i = 1; i < layer.groups; ++i)
        attributes += ", " + std::to_string(i);
      attributes += ">";
    }
    std::string text =
        "tile.kernel @k(%i: memref<?xKxi32>, %w: memref<?xKxf32>, "
        "%c: memref<128xGxi32>, %o: memref<Oxi32>, %p: memref<?xKxi32>, "
        "%s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {\n" +
        body + attributes + "}\ntile.return\n}";
    for (auto [name, value] :
         {std::pair<StringRef, int64_t>{"?xKx", layer.topK},
          {"128xGx", layer.groups},
          {"<Ox", layer.groups + 1}})
      for (size_t at; (at = text.find(name)) != std::string::npos;)
        text.replace(at + name.size() - 2, 1, std::to_string(value));
    modules.push_back(std::make_unique<ParsedModule>(text));
    Operation *found = nullptr;
    modules.back()->module->walk([&](tile::KernelOp kernel) {
      found = &kernel.getBody().front().front();
    });
    found->setAttr(
        "config",
        getSchedulesFor(target, found).front()->choose(found, target));
    return found;
  }

  std::vector<std::unique_ptr<ParsedModule>> modules;
};

/// Launches as ncu times them, equal to their times in a graph of dependent
/// launches.
TEST_F(RankingTimesTest, PredictedTimesAreThoseOfTheRecords) {
  double sum = 0;
  int64_t count = 0;
  for (StringRef name : {"counters_h200.json", "counters_h200_8622d5e.json",
                         "counters_router_h200.json"}) {
    Diagnostics diagnostics(llvm::errs());
    FailureOr<SourceText> text = readTextFile((SM90_RESULTS "/" + name).str(),
                                              json::kMaxBytes, diagnostics);
    ASSERT_TRUE(succeeded(text));
    FailureOr<json::Value> record = json::parse(*text, diagnostics);
    ASSERT_TRUE(succeeded(record));
    for (const json::Value &row : record->find("rows")->value.elements) {
      const Layer &layer = layers.at(row.find("layer")->value.text);
      int64_t tokens = *row.find("tokens")->value.getInteger();
      for (const json::Value &kernel : row.find("kernels")->value.elements) {
        StringRef launched = kernel.find("kernel")->value.text;
        constexpr int64_t routedTokens = 16;
        Operation *op = nullptr;
        if (launched == "permute")
          op = makeRank(layer);
        else if (launched == "permute_counts")
          op = makeCount(layer, getChunkTokens(layer));
        else if (launched == "permute_by_counts")
          op = makeRank(layer, getChunkTokens(layer));
        else if (launched == "route_1_by_counts")
          op = makeRank(layer, routedTokens);
        else
          continue;
        double us = *kernel.find("us")->value.getDouble();
        double off = std::log(predict(op, tokens) / us);
        EXPECT_LT(std::abs(off), 0.2)
            << row.find("row")->value.text << " " << launched.str();
        sum += off * off;
        ++count;
      }
    }
  }
  EXPECT_EQ(count, 33);
  EXPECT_LT(std::sqrt(sum / double(count)), 0.09);
}

/// More slots take longer to count, and to sort in one launch, except that few
/// slots need no counters. With counts, the time depends on the slots of a
/// chunk.
TEST_F(RankingTimesTest, MoreSlotsTakeLonger) {
  for (const auto &entry : layers) {
    const std::string &name = entry.first;
    const Layer &layer = entry.second;
    Operation *alone = makeRank(layer),
              *counted = makeRank(layer, getChunkTokens(layer)),
              *counting = makeCount(layer, getChunkTokens(layer));
    for (Operation *op : {alone, counted, counting}) {
      double last = 0;
      for (int64_t tokens = 1; tokens <= 1 << 20; tokens *= 2) {
        double us = predict(op, tokens);
        EXPECT_GE(us, last) << name << " " << tokens;
        last = us;
      }
    }
    // Few slots are sorted in one launch, very many in two.
    auto getSaved = [&](int64_t slots) {
      int64_t tokens = slots / layer.topK;
      return predict(alone, tokens) - predict(counting, tokens) -
             predict(counted, tokens);
    };
    EXPECT_LT(getSaved(8192), 0) << name;
    EXPECT_GT(getSaved(65536), 0) << name;
    EXPECT_GT(getSaved(131072), getSaved(65536)) << name;
  }
}

/// Experts beyond the counters of a CTA are counted in another pass over all
/// slots.
TEST_F(RankingTimesTest, RoundsCountAllSlotsAgain) {
  Operation *one = makeRank({4096, 8, 4096}), *five = makeRank({4100, 8, 4100});
  ASSERT_LT(cast<tile::GpuSortByExpertAttr>(
                cast<tile::SortByExpertOp>(five).getConfigAttr())
                .getExpertsAtOnce(),
            4100);
  EXPECT_GT(predict(five, 16384), 3 * predict(one, 16384));
}

/// Few ids are counted before a launch would have begun to copy weights.
TEST_F(RankingTimesTest, FewIdsAreCountedMeanwhile) {
  const auto &counts = *findSchedule(target, "sm90.gemm")->as<CountsIds>();
  EXPECT_LE(counts.predictSaved(1, device),
            device.getLaunchTime() - device.launchUs - device.drainUs);
  EXPECT_GT(counts.predictSaved(8192, device), 0);
  EXPECT_LT(counts.predictSaved(32768, device), 0);
}

} // namespace
