//===- SumOrderTest.cpp - in which order configs add ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/SumOrder.h"
#include "../Compiler/ParsedModule.h"

using namespace mlir;
using namespace moec;

namespace {

class SumOrderTest : public testing::Test {
protected:
  /// The order of a dense gemm of K = 512 with that config, without its name.
  std::string getOrder(const std::string &target, const std::string &config,
                       const std::string &element = "bf16") {
    ParsedModule parsed("tile.kernel @k(%x: memref<?x512x" + element +
                        ">, %w: memref<256x512x" + element +
                        ">, %y: memref<?x256xf32>, %t: i64) {\n"
                        "  tile.gemm tokens(%t) ins(%x, %w : memref<?x512x" +
                        element + ">, memref<256x512x" + element +
                        ">) outs(%y : memref<?x256xf32>) {config = " + config +
                        "}\n  tile.return\n}");
    tile::GemmOp op;
    parsed.module->walk([&](tile::GemmOp found) { op = found; });
    tile::SumOrderAttr order =
        moec::getSumOrder(op, op.getConfigAttr(), *Target::find(target));
    std::string text;
    llvm::raw_string_ostream(text) << order;
    return text;
  }
};

TEST_F(SumOrderTest, ConsumersThatShareABlockSplitK) {
  EXPECT_EQ(getOrder("sm_90a", "#tile.sm90_gemm<block_m = [16], block_n = 64, "
                               "block_k = 64, stages = 4>"),
            "#tile.sum_order<unit = tensor_core, k = 16, splits = 2, adjacent "
            "= 32>");
}

TEST_F(SumOrderTest, OtherTilesDoNot) {
  const std::string order = "#tile.sum_order<unit = tensor_core, k = 16>";
  for (const char *config :
       {"block_m = [8], block_n = 128, block_k = 64, stages = 4",
        "block_m = [8, 40, 64], block_n = 256, block_k = 64, stages = 9",
        "block_m = [16, 128], block_n = 128, block_k = 64, stages = 4, "
        "map_rows, no_swap_ab"})
    EXPECT_EQ(
        getOrder("sm_90a", "#tile.sm90_gemm<" + std::string(config) + ">"),
        order);
}

TEST_F(SumOrderTest, ThreadsOfAGemvSplitK) {
  EXPECT_EQ(getOrder("sm_90a", "#tile.gpu_gemv<block_m = 8, block_n = 2, "
                               "threads = 64>"),
            getOrder("sm_80", "#tile.gpu_gemv<block_m = 1, block_n = 1, "
                              "threads = 64>"));
  EXPECT_EQ(getOrder("sm_80", "#tile.gpu_gemv<block_m = 16, block_n = 16, "
                              "block_k = 32, threads = 256>"),
            "#tile.sum_order<unit = tensor_core, k = 16, shuffled = 32, splits "
            "= 8, adjacent = 32>");
}

TEST_F(SumOrderTest, LanesOfTheCpuSplitK) {
  const std::string config =
      "#tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, "
      "columns_per_cta = 32, lanes = 8>";
  EXPECT_EQ(getOrder("cpu", config),
            "#tile.sum_order<unit = fma, k = 1, splits = 8, adjacent = 2>");
  EXPECT_EQ(getOrder("cpu", config, "f32"),
            "#tile.sum_order<unit = fma, k = 1, splits = 8, adjacent = 1>");
  EXPECT_EQ(getOrder("cpu",
                     "#tile.cpu_gemm<register_rows = 4, register_columns = 4, "
                     "block_k = 32, columns_per_cta = 32, lanes = 16, "
                     "instruction_k = 2>"),
            "#tile.sum_order<unit = dot, k = 2, splits = 16, adjacent = 2>");
  EXPECT_EQ(
      getOrder("cpu",
               "#tile.cpu_gemm<register_rows = 16, register_columns = 32, "
               "block_k = 32, columns_per_cta = 32, lanes = 16, "
               "instruction_k = 32>"),
      "#tile.sum_order<unit = dot, k = 32>");
}

} // namespace
