//===- LoraTimesTest.cpp - times of the products of adapters --------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The layer has the sizes of Qwen3-30B-A3B, and adapters of rank 16.

#include "../Compiler/ParsedModule.h"
#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Device.h"
#include "moec/Schedules/Schedules.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

namespace {

class LoraTimesTest : public testing::Test {
protected:
  /// Microseconds of a launch of the first products: of gate and up for rows
  /// of 2048, or of those of the second gemm for rows of 768.
  double predict(StringRef schedule, bool isFirst, int64_t adapters,
                 int64_t tokens, Routing routing = Routing::Uniform) {
    std::string matrix = llvm::formatv("memref<{0}x128x16x{1}xbf16>", adapters,
                                       isFirst ? 2048 : 768);
    std::string text = llvm::formatv(
        "tile.kernel @k(%x: memref<?x{0}xbf16>, %a: {1}, %b: {1}, %o: "
        "memref<129xi32>, %s: memref<?xi32>, %i: memref<?xi32>, %y: "
        "memref<?x{2}xbf16>, %z: memref<?x1xi32>, %t: i64) {{\n"
        "tile.lora_shrink {3} tokens(%t) ins(%x : memref<?x{0}xbf16>) a({4}) "
        "offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) "
        "adapter_ids(%i : memref<?xi32>) outs(%y, %z : memref<?x{2}xbf16>, "
        "memref<?x1xi32>) {{top_k = 8 : i64}\ntile.return\n}",
        isFirst ? 2048 : 768, matrix, isFirst ? 32 : 16,
        isFirst ? "gather" : "",
        isFirst ? "%a, %b : " + matrix + ", " + matrix : "%a : " + matrix);
    ParsedModule parsed(text);
    Operation *op = nullptr;
    parsed.module->walk([&](tile::LoraShrinkOp shrink) { op = shrink; });
    const Schedule &own = *findSchedule(target, schedule);
    op->setAttr("config", own.choose(op, target));
    const auto &predicts = *own.as<PredictsTime>();
    auto load = tile::LoadAttr::get(op->getContext(), 1, 1024, /*topK=*/8,
                                    /*experts=*/128);
    return predicts.getLaunchTime(device) +
           predicts.predict(op, load, tokens, routing, device);
  }

  const Target target = *Target::find("sm_90a");
  const DeviceRates &device = *getDeviceRates(target);
};

/// ncu, a token with caches cold, on an H200 (benchmarks/journal/kernels.md,
/// LoRA adapters): replays find more of their data near.
TEST_F(LoraTimesTest, TimesOfOneTokenAreThoseOfTheRecord) {
  for (auto [isFirst, us] : {std::pair(true, 6.3), {false, 4.5}}) {
    double expected = predict("gpu.lora_tile", isFirst, 4, 1);
    EXPECT_LT(expected, us);
    EXPECT_GT(expected, us / 2);
  }
}

TEST_F(LoraTimesTest, RowsOfFewPositionsWaitForFewerLoads) {
  for (bool isFirst : {true, false})
    for (int64_t tokens : {1, 8, 16})
      EXPECT_LT(predict("gpu.lora_parts", isFirst, 4, tokens),
                predict("gpu.lora_tile", isFirst, 4, tokens))
          << tokens;
}

TEST_F(LoraTimesTest, PartsShareMatrices) {
  for (int64_t adapters : {1, 4, 16})
    for (int64_t tokens : {256, 1024})
      EXPECT_LT(predict("gpu.lora_parts", true, adapters, tokens),
                predict("gpu.lora_tile", true, adapters, tokens))
          << adapters << " adapters, " << tokens;
}

TEST_F(LoraTimesTest, MatricesAreRead) {
  // All pairs of 16 adapters and 128 experts have 32 of the rows.
  double bytes = 16.0 * 128 * 2 * 16 * 2048 * 2;
  double least = 1e6 * bytes / device.readBytes;
  double expected = predict("gpu.lora_parts", true, 16, 8192);
  EXPECT_GT(expected, least);
  EXPECT_LT(expected, 2 * least);
}

/// CTAs of one expert share the device as those of many do.
TEST_F(LoraTimesTest, SkewedRowsTakeNoLonger) {
  EXPECT_LT(predict("gpu.lora_parts", true, 4, 1024, Routing::Same),
            predict("gpu.lora_parts", true, 4, 1024));
}

} // namespace
