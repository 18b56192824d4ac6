//===- HostTimesTest.cpp - expected times on a CPU ------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Device.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;
using namespace moec;

namespace {

/// Two cores with AMX (benchmarks/journal/cpu.md).
HostRates makeRates() {
  HostRates rates;
  rates.name = "a CPU, 2 threads";
  rates.threads = 2;
  rates.reads = {{67e6, 48e9}, {134e6, 35.3e9}, {268e6, 30e9}, {537e6, 26.3e9}};
  rates.fmas = 436e9;
  rates.pairs = 223e9;
  rates.tiles = 6900e9;
  rates.quads = 1800e9;
  rates.byteTiles = 13500e9;
  rates.launchUs = 2;
  return rates;
}

constexpr int64_t kExperts = 64, kTopK = 8;

class HostTimesTest : public ::testing::Test {
protected:
  HostTimesTest() {
    context
        .loadDialect<moe::MoeDialect, plan::PlanDialect, tile::TileDialect>();
  }

  /// A gemm of the experts of the journal's layer, with its weight rows.
  tile::GemmOp makeGemm(int64_t columns, int64_t k, const std::string &config,
                        const std::string &type = "bf16") {
    std::string x = "memref<?x" + std::to_string(k) + "x" + type + ">",
                y = "memref<?x" + std::to_string(columns) + "x" + type + ">",
                w = "memref<64x" + std::to_string(columns) + "x" +
                    std::to_string(k) + "x" + type + ">";
    module = parseSourceString<ModuleOp>(
        "tile.kernel @k(%x: " + x + ", %w: " + w +
            ", %off: memref<65xi32>, %y: " + y +
            ", %t: i64) { tile.gemm tokens(%t) ins(%x, %w : " + x + ", " + w +
            ") offsets(%off : memref<65xi32>) outs(%y : " + y +
            ") {config = #tile.cpu_gemm<" + config + ">}\n tile.return }",
        &context);
    tile::GemmOp found;
    module->walk([&](tile::GemmOp op) { found = op; });
    return found;
  }

  /// The prediction for both gemms of the layer, in milliseconds.
  double predictMs(int64_t tokens, const std::string &config,
                   const std::string &type = "bf16") {
    const auto *schedule =
        findSchedule(Target::cpu(16, CpuProducts::Amx), "cpu.gemm")
            ->as<PredictsHostTime>();
    HostRates rates = makeRates();
    double active =
        kExperts * (1 - std::pow(1 - double(kTopK) / kExperts, tokens));
    double rows = double(tokens) * kTopK, ms = 0;
    double elementBytes = type == "f32" ? 4 : 2;
    double all = active * 3 * 1024 * 2048 * elementBytes;
    for (auto [columns, k] : {std::pair(2048, 2048), {2048, 1024}}) {
      double weights = double(columns) * k;
      Prediction prediction = schedule->predict(
          makeGemm(columns, k, config, type), active * weights * elementBytes,
          2 * rows * weights, rates.getReadBytes(all), tokens, kTopK, rates);
      EXPECT_GT(prediction.us, prediction.floorUs);
      ms += prediction.us / 1e3;
    }
    return ms;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_F(HostTimesTest, BandwidthIsInterpolated) {
  HostRates rates = makeRates();
  rates.reads = {{96e6, 41.3e9}, {805e6, 25.8e9}};
  EXPECT_EQ(rates.getReadBytes(1e3), 41.3e9);
  EXPECT_EQ(rates.getReadBytes(96e6), 41.3e9);
  EXPECT_EQ(rates.getReadBytes(1e12), 25.8e9);
  EXPECT_NEAR(rates.getReadBytes(std::sqrt(96e6 * 805e6)), 33.55e9, 1e6);
}

// Times of benchmarks/journal/cpu.md.
TEST_F(HostTimesTest, TimesAreNearMeasuredOnes) {
  const std::string fmas = "register_rows = 4, register_columns = 4, block_k = "
                           "32, columns_per_cta = 64, lanes = 16",
                    tiles = "register_rows = 32, register_columns = 32, "
                            "block_k = 32, columns_per_cta = 256, lanes = 16, "
                            "instruction_k = 32";
  struct Row {
    int64_t tokens;
    double fmas, tiles;
  };
  for (auto [tokens, measured] :
       {std::pair(1, 6.5), {16, 63.8}, {256, 204.0}}) {
    double ratio = predictMs(tokens, fmas, "f32") / measured;
    EXPECT_GT(ratio, 0.85) << "f32 at " << tokens;
    EXPECT_LT(ratio, 1.2) << "f32 at " << tokens;
  }
  double before = 0;
  for (Row row : {Row{1, 2.2, 2.2},
                  {4, 14.2, 15.5},
                  {16, 34.0, 32.4},
                  {64, 51.6, 39.1},
                  {256, 135.9, 50.1}}) {
    for (auto [config, measured] :
         {std::pair(fmas, row.fmas), {tiles, row.tiles}}) {
      double ratio = predictMs(row.tokens, config) / measured;
      EXPECT_GT(ratio, 0.75) << config << " at " << row.tokens;
      EXPECT_LT(ratio, 1.45) << config << " at " << row.tokens;
    }
    double tiled = predictMs(row.tokens, tiles);
    EXPECT_GT(tiled, before);
    before = tiled;
  }
}

// More threads than CTAs wait for the last one.
TEST_F(HostTimesTest, FewCtasAreUneven) {
  const auto *schedule =
      findSchedule(Target::cpu(16), "cpu.gemm")->as<PredictsHostTime>();
  tile::GemmOp op = makeGemm(64, 2048,
                             "register_rows = 4, register_columns = 4, block_k "
                             "= 32, columns_per_cta = 64, lanes = 16");
  HostRates few = makeRates(), many = makeRates();
  few.threads = 1;
  many.threads = 64;
  auto predict = [&](const HostRates &rates) {
    return schedule->predict(op, 1e6, 1e6, 20e9, 1, kTopK, rates).us;
  };
  EXPECT_GT(predict(many), 4 * predict(few));
}

} // namespace
