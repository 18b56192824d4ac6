//===- ConfigTextTest.cpp - configs as people write them --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/ConfigText.h"

#include "../Compiler/ParsedModule.h"

using namespace mlir;
using namespace moec;

namespace {

struct ConfigTextTest : testing::Test {
  ConfigTextTest() { context.loadDialect<tile::TileDialect>(); }

  tile::ConfigAttr make(int64_t n, int64_t stages, ArrayRef<int64_t> tileRows,
                        bool mapRows, bool noSwapAB = false,
                        bool dynamicScheduler = false) {
    return tile::Sm90GemmAttr::get(
        &context, tileRows, n, /*block_k=*/64, stages,
        /*l2_rows=*/0, mapRows, noSwapAB, dynamicScheduler,
        /*multicast_weights=*/false, /*split_k=*/0);
  }
  static ForcedConfig parse(StringRef entry) {
    llvm::Expected<ForcedConfig> config = ForcedConfig::parse(entry);
    EXPECT_TRUE(bool(config)) << entry.str();
    return config ? *config : ForcedConfig();
  }
  static std::string getError(StringRef entry) {
    llvm::Expected<ForcedConfig> config = ForcedConfig::parse(entry);
    return config ? "" : llvm::toString(config.takeError());
  }
  std::string apply(StringRef entry, tile::ConfigAttr base) {
    llvm::Expected<tile::ConfigAttr> config = parse(entry).apply(base);
    return config ? printConfig(*config) : llvm::toString(config.takeError());
  }

  MLIRContext context;
};

TEST_F(ConfigTextTest, Prints) {
  EXPECT_EQ(printConfig(make(64, 12, {16, 32}, true)),
            "sm90.gemm block_m=16+32 block_n=64 block_k=64 stages=12 "
            "map_rows");
  EXPECT_EQ(printConfig(make(128, 4, {64, 128}, false, true)),
            "sm90.gemm block_m=64+128 block_n=128 block_k=64 stages=4 "
            "no_swap_ab");
  EXPECT_EQ(
      printConfig(tile::CpuGemmAttr::get(&context, 4, 6, 8, 32, 16, 128, 0)),
      "cpu.gemm register_rows=4 register_columns=6 block_k=8 "
      "columns_per_cta=32 lanes=16 rows_per_cta=128");
}

TEST_F(ConfigTextTest, WhatIsPrintedIsRead) {
  tile::ConfigAttr config = make(64, 12, {64, 128}, true, true, true);
  llvm::Expected<tile::ConfigAttr> read =
      parse("k:" + printConfig(config)).apply(make(128, 4, {8}, false));
  ASSERT_TRUE(bool(read));
  EXPECT_EQ(*read, config);
}

TEST_F(ConfigTextTest, OnlyTheFieldsNamedChange) {
  tile::ConfigAttr base = make(128, 4, {8, 64}, true);
  EXPECT_EQ(apply("k:stages=6", base),
            "sm90.gemm block_m=8+64 block_n=128 block_k=64 stages=6 "
            "map_rows");
  EXPECT_EQ(apply("k: block_m=16 block_n=64 map_rows=false ", base),
            "sm90.gemm block_m=16 block_n=64 block_k=64 stages=4");
}

// The tuner's candidates must not keep flags of the chosen config.
TEST_F(ConfigTextTest, WholeTextIsThatConfig) {
  tile::ConfigAttr base = make(128, 4, {16, 64}, true, /*noSwapAB=*/true);
  tile::ConfigAttr other = make(64, 8, {72}, false);
  EXPECT_EQ(printWholeConfig(other),
            "sm90.gemm block_m=72 block_n=64 block_k=64 stages=8 "
            "l2_rows=0 map_rows=false "
            "no_swap_ab=false dynamic_scheduler=false multicast_weights=false "
            "split_k=0");
  EXPECT_EQ(apply("k:" + printWholeConfig(other), base), printConfig(other));
  EXPECT_EQ(apply("k:" + printWholeConfig(base), other), printConfig(base));
}

TEST_F(ConfigTextTest, ErrorsNameTheField) {
  tile::ConfigAttr base = make(128, 4, {8}, false);
  EXPECT_EQ(apply("k:stages=six", base),
            "config 'k:stages=six': 'stages' is 'six'; give a number");
  EXPECT_EQ(apply("k:block_m=8+", base),
            "config 'k:block_m=8+': 'block_m' is ''; give a number");
  EXPECT_EQ(apply("k:depth=2", base),
            "config 'k:depth=2': 'depth=2' is not a field of sm90.gemm; it "
            "has block_m, block_n, block_k, stages, l2_rows, map_rows, "
            "no_swap_ab, dynamic_scheduler, multicast_weights, split_k, as in "
            "block_m=16+32 block_n=64 map_rows");
  EXPECT_EQ(apply("k:no_swap_ab=yes", base),
            "config 'k:no_swap_ab=yes': 'no_swap_ab' is 'yes'; give true or "
            "false");
  // The form of tuning files from before each schedule had its own fields.
  EXPECT_NE(apply("k:n=64", base).find("'n=64' is not a field"),
            std::string::npos);
  EXPECT_EQ(apply("k:lanes=8", tile::CpuSortByExpertAttr::get(&context)),
            "config 'k:lanes=8': 'lanes=8' is not a field of "
            "cpu.sort_by_expert; it has "
            "none, as in block_m=16+32 block_n=64 map_rows");
  EXPECT_EQ(apply("k:block_m=32+16", base),
            "config 'k:block_m=32+16': 'block_m' has 16 at index 1; values "
            "from 1 to 1024, ascending, are accepted");
}

TEST_F(ConfigTextTest, EntriesHaveKernelRangeAndText) {
  ForcedConfig config = parse("experts_hidden@1-64:block_m=16 block_n=64");
  EXPECT_EQ(config.kernel, "experts_hidden");
  ASSERT_TRUE(config.tokens);
  EXPECT_EQ(config.tokens->min, 1);
  EXPECT_EQ(config.tokens->max, 64);
  EXPECT_EQ(config.text, "block_m=16 block_n=64");
  EXPECT_EQ(config.getSchedule(), "");
  EXPECT_EQ(config.str(), "experts_hidden@1-64:block_m=16 block_n=64");
  EXPECT_EQ(parse("k:sm90.gemm block_n=64").getSchedule(), "sm90.gemm");
  EXPECT_FALSE(parse("k:block_n=64").tokens);
}

TEST_F(ConfigTextTest, BadEntries) {
  std::string form = "write KERNEL:TEXT or KERNEL@MIN-MAX:TEXT, as in "
                     "experts_hidden@1-64:block_m=16 block_n=64";
  EXPECT_EQ(getError("block_n=64"), "config 'block_n=64': " + form);
  EXPECT_EQ(getError(":block_n=64"), "config ':block_n=64': " + form);
  EXPECT_EQ(getError("k: "), "config 'k: ': " + form);
  for (StringRef range : {"", "8", "8-", "a-b", "9-8", "-1-8", "0-0"})
    EXPECT_EQ(getError(("k@" + range + ":block_n=64").str()),
              ("config 'k@" + range + ":block_n=64': the tokens are '" + range +
               "'; write two numbers in ascending order, as in 1-64")
                  .str());
}

TEST_F(ConfigTextTest, EntriesAreForKernels) {
  ParsedModule parsed(R"(
    tile.kernel @k(%x: memref<?x8xf32>, %t: i64) { tile.return }
    tile.kernel @k_t64(%x: memref<?x8xf32>, %t: i64)
        attributes {load = #tile.load<min_tokens = 0, max_tokens = 64>} { tile.return }
    tile.kernel @k_t99(%x: memref<?x8xf32>, %t: i64)
        attributes {load = #tile.load<min_tokens = 65, max_tokens = 99>} { tile.return }
    tile.kernel @k_theory(%x: memref<?x8xf32>, %t: i64) { tile.return })");
  auto kernels = llvm::to_vector(parsed.module->getOps<tile::KernelOp>());
  auto match = [&](StringRef entry) {
    std::string names;
    for (tile::KernelOp kernel : kernels)
      if (parse(entry).isFor(kernel))
        names += (kernel.getSymName() + " ").str();
    return names;
  };
  EXPECT_EQ(match("k:block_n=64"), "k k_t64 k_t99 ");
  EXPECT_EQ(match("k_t64:block_n=64"), "k_t64 ");
  EXPECT_EQ(match("k@1-64:block_n=64"), "k_t64 ");
  EXPECT_EQ(match("k@0-99:block_n=64"), "k_t64 k_t99 ");
  EXPECT_EQ(match("k@2-64:block_n=64"), "");
  EXPECT_EQ(match("k@65-98:block_n=64"), "");
  EXPECT_EQ(match("theory:block_n=64"), "");
  // Also for kernels that are derived from these for groups with many rows.
  std::string large;
  for (tile::KernelOp kernel : kernels)
    large += getLargeGroupsName(kernel) + " ";
  EXPECT_EQ(large, "k_large_groups k_large_groups_t64 k_large_groups_t99 "
                   "k_theory_large_groups ");
  auto isForLargeGroups = [&](StringRef entry, tile::KernelOp kernel) {
    return parse(entry).isFor(getLargeGroupsName(kernel), kernel.getLoadAttr());
  };
  EXPECT_TRUE(isForLargeGroups("k_large_groups:block_n=64", kernels[1]));
  EXPECT_TRUE(isForLargeGroups("k_large_groups_t64:block_n=64", kernels[1]));
  EXPECT_TRUE(isForLargeGroups("k_large_groups@65-99:block_n=64", kernels[2]));
  EXPECT_FALSE(isForLargeGroups("k_large_groups@65-99:block_n=64", kernels[1]));
  EXPECT_FALSE(isForLargeGroups("k:block_n=64", kernels[1]));
}

} // namespace
