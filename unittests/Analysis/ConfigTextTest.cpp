//===- ConfigTextTest.cpp - configs as people write them --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/ConfigText.h"

#include "../Compiler/ParsedModule.h"

using namespace mlir;
using namespace moec;

namespace {

struct ConfigTextTest : testing::Test {
  ConfigTextTest() { context.loadDialect<tile::TileDialect>(); }

  tile::ConfigAttr make(int64_t n, int64_t stages, ArrayRef<int64_t> tileRows,
                        bool mapRows, bool rowsOnM = false,
                        bool queue = false) {
    return tile::Sm90ContractAttr::get(&context, tileRows, n, /*step=*/64,
                                       stages,
                                       /*l2_rows=*/0, mapRows, rowsOnM, queue);
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
            "sm90.contract tile_rows=16+32 tile_columns=64 step=64 stages=12 "
            "map_rows");
  EXPECT_EQ(printConfig(make(128, 4, {64, 128}, false, true)),
            "sm90.contract tile_rows=64+128 tile_columns=128 step=64 stages=4 "
            "rows_on_m");
  EXPECT_EQ(
      printConfig(tile::CpuContractAttr::get(&context, 4, 6, 8, 32, 16, 128)),
      "cpu.contract register_rows=4 register_columns=6 step=8 "
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
            "sm90.contract tile_rows=8+64 tile_columns=128 step=64 stages=6 "
            "map_rows");
  EXPECT_EQ(apply("k: tile_rows=16 tile_columns=64 map_rows=false ", base),
            "sm90.contract tile_rows=16 tile_columns=64 step=64 stages=4");
}

// The tuner's candidates: flags of what is chosen must not stay.
TEST_F(ConfigTextTest, WholeTextIsThatConfig) {
  tile::ConfigAttr base = make(128, 4, {16, 64}, true, /*rowsOnM=*/true);
  tile::ConfigAttr other = make(64, 8, {72}, false);
  EXPECT_EQ(printWholeConfig(other),
            "sm90.contract tile_rows=72 tile_columns=64 step=64 stages=8 "
            "l2_rows=0 map_rows=false "
            "rows_on_m=false queue=false");
  EXPECT_EQ(apply("k:" + printWholeConfig(other), base), printConfig(other));
  EXPECT_EQ(apply("k:" + printWholeConfig(base), other), printConfig(base));
}

TEST_F(ConfigTextTest, ErrorsNameTheField) {
  tile::ConfigAttr base = make(128, 4, {8}, false);
  EXPECT_EQ(apply("k:stages=six", base),
            "config 'k:stages=six': 'stages' is 'six'; give a number");
  EXPECT_EQ(apply("k:tile_rows=8+", base),
            "config 'k:tile_rows=8+': 'tile_rows' is ''; give a number");
  EXPECT_EQ(apply("k:depth=2", base),
            "config 'k:depth=2': 'depth=2' is no field of sm90.contract; it "
            "has tile_rows, tile_columns, step, stages, l2_rows, map_rows, "
            "rows_on_m, queue, as in tile_rows=16+32 tile_columns=64 map_rows");
  EXPECT_EQ(apply("k:rows_on_m=yes", base),
            "config 'k:rows_on_m=yes': 'rows_on_m' is 'yes'; give true or "
            "false");
  // What tuning files said before each schedule had fields of its own.
  EXPECT_NE(apply("k:n=64", base).find("'n=64' is no field"),
            std::string::npos);
  EXPECT_EQ(apply("k:lanes=8", tile::CpuRankAttr::get(&context)),
            "config 'k:lanes=8': 'lanes=8' is no field of cpu.rank; it has "
            "none, as in tile_rows=16+32 tile_columns=64 map_rows");
  EXPECT_EQ(
      apply("k:tile_rows=32+16", base),
      "config 'k:tile_rows=32+16': 'tile_rows' has 16 at index 1; heights from "
      "1 to 1024, ascending, are accepted");
}

TEST_F(ConfigTextTest, EntriesHaveKernelRangeAndText) {
  ForcedConfig config =
      parse("experts_hidden@1-64:tile_rows=16 tile_columns=64");
  EXPECT_EQ(config.kernel, "experts_hidden");
  ASSERT_TRUE(config.tokens);
  EXPECT_EQ(config.tokens->min, 1);
  EXPECT_EQ(config.tokens->max, 64);
  EXPECT_EQ(config.text, "tile_rows=16 tile_columns=64");
  EXPECT_EQ(config.getSchedule(), "");
  EXPECT_EQ(config.str(), "experts_hidden@1-64:tile_rows=16 tile_columns=64");
  EXPECT_EQ(parse("k:sm90.contract tile_columns=64").getSchedule(),
            "sm90.contract");
  EXPECT_FALSE(parse("k:tile_columns=64").tokens);
}

TEST_F(ConfigTextTest, BadEntries) {
  std::string form = "write KERNEL:TEXT or KERNEL@MIN-MAX:TEXT, as in "
                     "experts_hidden@1-64:tile_rows=16 tile_columns=64";
  EXPECT_EQ(getError("tile_columns=64"), "config 'tile_columns=64': " + form);
  EXPECT_EQ(getError(":tile_columns=64"), "config ':tile_columns=64': " + form);
  EXPECT_EQ(getError("k: "), "config 'k: ': " + form);
  for (StringRef range : {"", "8", "8-", "a-b", "9-8", "-1-8", "0-0"})
    EXPECT_EQ(getError(("k@" + range + ":tile_columns=64").str()),
              ("config 'k@" + range + ":tile_columns=64': the tokens are '" +
               range + "'; write two numbers in ascending order, as in 1-64")
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
  EXPECT_EQ(match("k:tile_columns=64"), "k k_t64 k_t99 ");
  EXPECT_EQ(match("k_t64:tile_columns=64"), "k_t64 ");
  EXPECT_EQ(match("k@1-64:tile_columns=64"), "k_t64 ");
  EXPECT_EQ(match("k@0-99:tile_columns=64"), "k_t64 k_t99 ");
  EXPECT_EQ(match("k@2-64:tile_columns=64"), "");
  EXPECT_EQ(match("k@65-98:tile_columns=64"), "");
  EXPECT_EQ(match("theory:tile_columns=64"), "");
  // And for those that are made of them for groups with many rows.
  std::string large;
  for (tile::KernelOp kernel : kernels)
    large += getLargeGroupsName(kernel) + " ";
  EXPECT_EQ(large, "k_large_groups k_large_groups_t64 k_large_groups_t99 "
                   "k_theory_large_groups ");
  auto isForLargeGroups = [&](StringRef entry, tile::KernelOp kernel) {
    return parse(entry).isFor(getLargeGroupsName(kernel), kernel.getLoadAttr());
  };
  EXPECT_TRUE(isForLargeGroups("k_large_groups:tile_columns=64", kernels[1]));
  EXPECT_TRUE(
      isForLargeGroups("k_large_groups_t64:tile_columns=64", kernels[1]));
  EXPECT_TRUE(
      isForLargeGroups("k_large_groups@65-99:tile_columns=64", kernels[2]));
  EXPECT_FALSE(
      isForLargeGroups("k_large_groups@65-99:tile_columns=64", kernels[1]));
  EXPECT_FALSE(isForLargeGroups("k:tile_columns=64", kernels[1]));
}

} // namespace
