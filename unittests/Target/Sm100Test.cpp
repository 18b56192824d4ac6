//===- Sm100Test.cpp - products into tensor memory --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// What fits, and that ptxas takes it. What it computes the simulator runs, in
// test/Numeric; no GPU has.

#include "NvptxTesting.h"

#include "Schedules/Sm100Gemm/Shape.h"
#include "mlir/Parser/Parser.h"
#include "moec/PtxSim/Simulator.h"
#include "moec/Schedules/Schedules.h"
#include "moec/Support/Parts.h"
#include "moec/Target/NVPTX.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace moec;
using namespace moec::test;

namespace {

/// Gemms with both operands in groups of 32, with the chosen or a given config.
std::string product(int64_t sizeK, int64_t columns, bool isGrouped,
                    const std::string &order, const std::string &result,
                    const std::string &config = "",
                    const Format &weight = kMxfp8) {
  return scaled(sizeK, columns, isGrouped, order, result, kMxfp8Rows, weight,
                "bf16", config);
}

//===----------------------------------------------------------------------===//
// What fits
//===----------------------------------------------------------------------===//

/// The shape of a gemm in the chosen config.
sm100::GemmShape choose(const std::string &text) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect>();
  auto module = parseSourceString<ModuleOp>(text, &context);
  tile::GemmOp op;
  module->walk([&](tile::GemmOp found) { op = found; });
  std::optional<Target> target = Target::find("sm_100a");
  const Schedule *schedule = findSchedule(*target, "sm100.gemm");
  tile::ConfigAttr config = schedule->choose(op, *target);
  EXPECT_EQ(schedule->whyIllegal(op, config, *target), "");
  EXPECT_EQ(getSchedulesFor(*target, op).front()->name, "sm100.gemm");
  return {op, config};
}

TEST(Sm100, FitsInSharedAndTensorMemory) {
  for (int64_t columns : {16, 128, 768, 7168})
    for (std::string order : {"", "gate_up", "interleaved"}) {
      sm100::GemmShape shape =
          choose(product(2048, columns, true, order, "bf16"));
      EXPECT_LE(shape.getSharedBytes(), int64_t(227) << 10);
      EXPECT_LE(shape.getUsedColumns(), sm100::GemmShape::kTensorColumns);
      EXPECT_LE(shape.getUsedColumns(), shape.getAllocatedColumns());
      EXPECT_EQ(shape.getAllocatedColumns() & (shape.getAllocatedColumns() - 1),
                0);
      EXPECT_EQ(shape.getSumSets(), 2) << "sums of two tiles";
      // Patterns of the swizzle begin at multiples of 1024 bytes.
      EXPECT_EQ(shape.getStageBytes() % 1024, 0);
      EXPECT_EQ(shape.getWeightBytes() % 1024, 0);
      EXPECT_EQ(shape.getBarrierOffset() % 8, 0);
      EXPECT_GE(shape.stages, 4);
    }
}

TEST(Sm100, TakesWhatTensorCoresScale) {
  auto getFirst = [](const Format &input, const Format &weight, int64_t sizeK) {
    MLIRContext context;
    context.loadDialect<tile::TileDialect>();
    auto module = parseSourceString<ModuleOp>(
        scaled(sizeK, 256, true, "", "bf16", input, weight), &context);
    tile::GemmOp op;
    module->walk([&](tile::GemmOp found) { op = found; });
    return sm100::declineGemm(op).empty();
  };
  EXPECT_TRUE(getFirst(kMxfp8Rows, kMxfp8, 512));
  EXPECT_TRUE(getFirst(kMxfp8Rows, kMxfp4, 512));
  // Partial k tiles, scales that are not powers of two, other groups, and only
  // one quantized operand.
  EXPECT_FALSE(getFirst(kMxfp8Rows, kMxfp8, 544));
  EXPECT_FALSE(getFirst(kMxfp8Rows, kMxfp4, 544));
  EXPECT_FALSE(
      getFirst(kMxfp8Rows, kGroup16.with("f4E2M1FN", "f8E4M3FN"), 512));
  EXPECT_FALSE(getFirst(kGroup32, kMxfp8, 512));
  EXPECT_FALSE(getFirst(kMxfp8Rows, kGroup32, 512));
  EXPECT_FALSE(getFirst(kGroup128.withPowers(), kMxfp8, 512));
  EXPECT_FALSE(getFirst(kPlain, kMxfp8, 512));
  EXPECT_FALSE(getFirst(kGroup128, kBlock, 512));
}

//===----------------------------------------------------------------------===//
// ptxas
//===----------------------------------------------------------------------===//

struct Case {
  std::string name, text;
};

void PrintTo(const Case &test, std::ostream *os) { *os << test.name; }

std::vector<Case> makeCases() {
  std::vector<Case> cases;
  for (std::string order : {"gate_up", "up_gate", "interleaved"})
    cases.push_back({order, product(2048, 768, true, order, "bf16")});
  for (std::string result : {"bf16", "f16", "f32"}) {
    cases.push_back({"down_" + result, product(768, 2048, true, "", result)});
    cases.push_back({"dense_" + result, product(2048, 256, false, "", result)});
  }
  // A single k tile, and partial tiles of columns.
  cases.push_back({"tails", product(128, 40, true, "gate_up", "bf16")});
  cases.push_back({"wide_tails", product(128, 296, false, "", "f16")});
  cases.push_back({"large", product(7168, 2048, true, "gate_up", "bf16")});
  auto config = [](int64_t rows, int64_t columns, int64_t stages) {
    return "sm100_gemm<block_m = " + std::to_string(rows) +
           ", block_n = " + std::to_string(columns) +
           ", stages = " + std::to_string(stages) + ">";
  };
  cases.push_back({"one_set_of_sums",
                   product(512, 512, true, "", "bf16", config(128, 256, 4))});
  cases.push_back(
      {"low", product(512, 512, true, "", "bf16", config(16, 128, 8))});
  cases.push_back({"few_stages", product(512, 512, true, "gate_up", "bf16",
                                         config(64, 128, 2))});
  // Weights of 4 bits.
  for (std::string order : {"gate_up", "interleaved", ""})
    for (int64_t columns : {768, 40})
      cases.push_back(
          {"e2m1_" + (order.empty() ? "down" : order) + "_" +
               std::to_string(columns),
           product(2048, columns, true, order, "bf16", "", kMxfp4)});
  return cases;
}

class Sm100Matrix : public testing::TestWithParam<Case> {};

TEST_P(Sm100Matrix, Assembles) {
  const std::string chip = "sm_100a";
  Compilation compiled(GetParam().text, chip);
  ASSERT_EQ(compiled.errors, "");
  llvm::StringRef ptx(compiled.ptx);
  EXPECT_TRUE(
      ptx.contains("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale"));
  ptx::Simulator simulator;
  auto loaded = simulator.load(compiled.ptx, "kernel.ptx");
  ASSERT_TRUE(loaded) << loaded.status().message();
  auto assembled = assemble(compiled.ptx, chip);
  ASSERT_TRUE(bool(assembled)) << llvm::toString(assembled.takeError());
  EXPECT_TRUE(assembled->complaints.empty()) << assembled->complaints.front();
  ASSERT_EQ(assembled->kernels.size(), 1u);
  const KernelReport &report = assembled->kernels.front();
  EXPECT_EQ(report.stackBytes, 0);
  EXPECT_EQ(report.spillStoreBytes, 0);
  EXPECT_EQ(report.spillLoadBytes, 0);
  EXPECT_LE(report.registers,
            kRegistersPerMultiprocessor / sm100::GemmShape::kThreads);
}

INSTANTIATE_TEST_SUITE_P(Sm100, Sm100Matrix, testing::ValuesIn(makeCases()),
                         [](const testing::TestParamInfo<Case> &info) {
                           return info.param.name;
                         });

} // namespace
