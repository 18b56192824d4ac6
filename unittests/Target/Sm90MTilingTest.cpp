//===- Sm90MTilingTest.cpp - kernels tile M as the model does ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// How sm90.gemm cuts a group's rows is said twice: by the model of time
// (GroupTiling.h), and by the code that a kernel makes its table with. For
// one group that is arithmetic on one number, which is folded here.

#include "Schedules/Sm90Gemm/GroupTiling.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Conversion/Passes.h"
#include "moec/Transforms/Passes.h"

#include <gtest/gtest.h>

#include <functional>

using namespace mlir;
using namespace moec;

namespace {

struct Shape {
  const char *name;
  std::string config;
  int64_t maxRows;
};

std::ostream &operator<<(std::ostream &os, const Shape &shape) {
  return os << shape.name;
}

/// The product of one group.
OwningOpRef<ModuleOp> parse(MLIRContext &context, const std::string &config) {
  context.loadDialect<tile::TileDialect>();
  context.disableMultithreading();
  return parseSourceString<ModuleOp>(
      R"(tile.kernel @kernel(%x: memref<?x512xbf16>, %w: memref<1x512x512xbf16>,
             %o: memref<2xi32>, %y: memref<?x512xbf16>, %t: i64) {
           tile.gemm tokens(%t) ins(%x, %w : memref<?x512xbf16>, memref<1x512x512xbf16>)
               offsets(%o : memref<2xi32>) outs(%y : memref<?x512xbf16>)
               {config = #tile.sm90_gemm<block_k = 64, stages = 4, map_rows, )" +
          config + R"(>}
           tile.return
         })",
      &context);
}

sm90::GemmShape getShape(ModuleOp module) {
  tile::GemmOp op;
  module.walk([&](tile::GemmOp found) { op = found; });
  return {op, op.getConfigAttr()};
}

class Sm90MTilingTest : public testing::TestWithParam<Shape> {
protected:
  Sm90MTilingTest() : module(parse(context, GetParam().config)) {}

  /// The entries of the table: of the group, and behind it.
  void lower() {
    PassManager manager(&context);
    TileAssignConfigPassOptions assign;
    assign.target = "sm_90a";
    manager.addPass(createTileAssignConfigPass(assign));
    ConvertTileToNVVMPassOptions options;
    options.target = "sm_90a";
    manager.addPass(createConvertTileToNVVMPass(options));
    ASSERT_TRUE(succeeded(manager.run(*module)));
    module->walk([&](vector::FromElementsOp op) {
      auto type = op.getType();
      if (type.getNumElements() == 4 && type.getElementType().isInteger(32))
        entries.push_back(op);
    });
    ASSERT_EQ(entries.size(), 2u);
  }

  /// The value of an expression if every load gives `rows`.
  int64_t evaluate(Value value, int64_t rows) {
    DenseMap<Value, Attribute> known;
    std::function<Attribute(Value)> find = [&](Value of) -> Attribute {
      if (Attribute &attr = known[of])
        return attr;
      Operation *op = of.getDefiningOp();
      if (!op)
        return {};
      Attribute result;
      if (isa<memref::LoadOp>(op)) {
        result = IntegerAttr::get(of.getType(), rows);
      } else {
        SmallVector<Attribute> operands;
        for (Value operand : op->getOperands())
          operands.push_back(find(operand));
        SmallVector<OpFoldResult> folded;
        if (succeeded(op->fold(operands, folded)) && folded.size() == 1) {
          result = llvm::dyn_cast<Attribute>(folded.front());
          if (!result)
            result = find(cast<Value>(folded.front()));
        }
      }
      return known[of] = result;
    };
    auto number = dyn_cast_or_null<IntegerAttr>(find(value));
    EXPECT_TRUE(number);
    return number ? number.getInt() : -1;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  SmallVector<vector::FromElementsOp> entries;
};

TEST_P(Sm90MTilingTest, CutsAsTheModelExpects) {
  ASSERT_TRUE(module);
  sm90::GemmShape shape = getShape(*module);
  lower();
  SmallVector<int64_t> counts;
  for (int64_t rows = 1; rows <= GetParam().maxRows; rows += 1 + rows / 200 * 7)
    counts.push_back(rows);
  // So many tiles that their number does not fit its bits.
  counts.push_back(sm90::kMaxHigher * shape.tile().getMaxBlockM() + 3);
  for (int64_t rows : counts) {
    sm90::GroupTiling tiling = sm90::GroupTiler(shape).tile(rows);
    EXPECT_EQ(evaluate(entries[1].getElements()[1], rows), tiling.tiles)
        << rows;
    int64_t blockMs = tiling.low;
    if (shape.tile().hasTwoBlockMs())
      blockMs = tiling.low / 8 + tiling.more / 8 * 64 + tiling.higher * 4096;
    EXPECT_EQ(evaluate(entries[0].getElements()[3], rows), blockMs) << rows;
  }
}

/// Each tile has rows, no more than the greatest BLOCK_M, and together they
/// have all.
TEST_P(Sm90MTilingTest, TilesHaveAllRows) {
  ASSERT_TRUE(module);
  sm90::GemmShape shape = getShape(*module);
  for (int64_t rows = 1; rows <= GetParam().maxRows; ++rows) {
    sm90::GroupTiling tiling = sm90::GroupTiler(shape).tile(rows);
    int64_t sum = 0, tiles = 0;
    for (auto [blockM, times] : tiling.getTiles(rows)) {
      ASSERT_GE(times, 0) << rows;
      ASSERT_TRUE(times == 0 ||
                  (blockM > 0 && blockM <= shape.tile().getMaxBlockM()))
          << blockM << " of " << rows;
      sum += blockM * times;
      tiles += times;
    }
    ASSERT_EQ(sum, rows);
    ASSERT_EQ(tiles, tiling.tiles);
    // It fits the entry.
    ASSERT_LE(tiling.higher, tiling.tiles) << rows;
    ASSERT_LT(tiling.low, 512);
    ASSERT_LT(tiling.more, 512);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Sm90MTilingTest,
    testing::Values(
        Shape{"One", "block_m = [160], block_n = 256", 5000},
        Shape{"Fixed", "block_m = [88, 128, 136, 152], block_n = 256", 5000},
        Shape{"OneDynamic", "block_m = [160], block_n = 256, dynamic_scheduler",
              5000},
        Shape{"Dynamic",
              "block_m = [88, 128, 136, 152], block_n = 256, dynamic_scheduler",
              20000},
        Shape{"Neighbours",
              "block_m = [152, 160], block_n = 256, dynamic_scheduler", 20000},
        // The second BLOCK_M is more than twice the first: not side by side.
        Shape{"FarApart",
              "block_m = [16, 64, 160], block_n = 256, dynamic_scheduler",
              5000},
        Shape{"Low", "block_m = [8, 16, 24], block_n = 128, dynamic_scheduler",
              3000},
        Shape{"NoSwapAB",
              "block_m = [16, 64, 128], block_n = 256, no_swap_ab, "
              "dynamic_scheduler",
              5000},
        Shape{"NoSwapABFixed",
              "block_m = [16, 64, 128], block_n = 256, no_swap_ab", 5000}),
    [](const testing::TestParamInfo<Shape> &info) { return info.param.name; });

/// 1000 rows in tiles of 136 and 152 need no padding: four tiles of one and
/// three of the other. In a fixed order tiles are about equal.
TEST(Sm90MTilingBlockMTest, NeighbouringBlockMsLeaveNoPadding) {
  for (bool dynamicScheduler : {false, true}) {
    MLIRContext context;
    auto module =
        parse(context, std::string("block_m = [136, 152], block_n = 256") +
                           (dynamicScheduler ? ", dynamic_scheduler" : ""));
    ASSERT_TRUE(module);
    sm90::GemmShape shape = getShape(*module);
    sm90::GroupTiling tiling = sm90::GroupTiler(shape).tile(1000);
    EXPECT_EQ(tiling.tiles, 7);
    EXPECT_EQ(tiling.low, dynamicScheduler ? 136 : 144);
    EXPECT_EQ(tiling.more, dynamicScheduler ? 16 : 0);
    EXPECT_EQ(tiling.higher, dynamicScheduler ? 3 : 0);
  }
}

} // namespace
