//===- Sm90CutTest.cpp - kernels cut groups as the model does ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// How sm90.contract cuts a group's rows is said twice: by the model of time
// (Sm90Cut.h), and by the code that a kernel makes its table with. Of one
// group that is arithmetic on one number, which is folded here.

#include "moec/Analysis/Sm90Cut.h"

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
           tile.contract tokens(%t) ins(%x, %w : memref<?x512xbf16>, memref<1x512x512xbf16>)
               offsets(%o : memref<2xi32>) outs(%y : memref<?x512xbf16>)
               {config = #tile.sm90_contract<step = 64, stages = 4, map_rows, )" +
          config + R"(>}
           tile.return
         })",
      &context);
}

sm90::Contract getShape(ModuleOp module) {
  tile::ContractOp op;
  module.walk([&](tile::ContractOp found) { op = found; });
  return {op, op.getConfigAttr()};
}

class Sm90CutTest : public testing::TestWithParam<Shape> {
protected:
  Sm90CutTest() : module(parse(context, GetParam().config)) {}

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

  /// What a number is if all that is loaded is `rows`.
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

TEST_P(Sm90CutTest, CutsAsTheModelExpects) {
  ASSERT_TRUE(module);
  sm90::Contract shape = getShape(*module);
  lower();
  SmallVector<int64_t> counts;
  for (int64_t rows = 1; rows <= GetParam().maxRows; rows += 1 + rows / 200 * 7)
    counts.push_back(rows);
  // So many tiles that there is no place for how many are higher.
  counts.push_back(sm90::Contract::kMaxHigher * shape.getMaxHeight() + 3);
  for (int64_t rows : counts) {
    sm90::Cut cut = sm90::GroupCutter(shape).cut(rows);
    EXPECT_EQ(evaluate(entries[1].getElements()[1], rows), cut.tiles) << rows;
    int64_t heights = cut.low;
    if (shape.hasTwoHeights())
      heights = cut.low / 8 + cut.more / 8 * 64 + cut.higher * 4096;
    EXPECT_EQ(evaluate(entries[0].getElements()[3], rows), heights) << rows;
  }
}

/// Each tile has rows, no more than the greatest height, and together they have
/// all.
TEST_P(Sm90CutTest, TilesHaveAllRows) {
  ASSERT_TRUE(module);
  sm90::Contract shape = getShape(*module);
  for (int64_t rows = 1; rows <= GetParam().maxRows; ++rows) {
    sm90::Cut cut = sm90::GroupCutter(shape).cut(rows);
    int64_t sum = 0, tiles = 0;
    for (auto [height, times] : cut.getTiles(rows)) {
      ASSERT_GE(times, 0) << rows;
      ASSERT_TRUE(times == 0 || (height > 0 && height <= shape.getMaxHeight()))
          << height << " of " << rows;
      sum += height * times;
      tiles += times;
    }
    ASSERT_EQ(sum, rows);
    ASSERT_EQ(tiles, cut.tiles);
    // It fits the entry.
    ASSERT_LE(cut.higher, cut.tiles) << rows;
    ASSERT_LT(cut.low, 512);
    ASSERT_LT(cut.more, 512);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Sm90CutTest,
    testing::Values(
        Shape{"One", "tile_rows = [160], tile_columns = 256", 5000},
        Shape{"Fixed", "tile_rows = [88, 128, 136, 152], tile_columns = 256",
              5000},
        Shape{"OneQueued", "tile_rows = [160], tile_columns = 256, queue",
              5000},
        Shape{"Queued",
              "tile_rows = [88, 128, 136, 152], tile_columns = 256, queue",
              20000},
        Shape{"Neighbours", "tile_rows = [152, 160], tile_columns = 256, queue",
              20000},
        // The second height is more than twice the first: not side by side.
        Shape{"FarApart",
              "tile_rows = [16, 64, 160], tile_columns = 256, queue", 5000},
        Shape{"Low", "tile_rows = [8, 16, 24], tile_columns = 128, queue",
              3000},
        Shape{"RowsOnM",
              "tile_rows = [16, 64, 128], tile_columns = 256, rows_on_m, queue",
              5000},
        Shape{"RowsOnMFixed",
              "tile_rows = [16, 64, 128], tile_columns = 256, rows_on_m",
              5000}),
    [](const testing::TestParamInfo<Shape> &info) { return info.param.name; });

/// Of 1000 rows in tiles of 136 and 152 none is padded: four tiles of one and
/// three of the other. In a fixed order tiles are about equal.
TEST(Sm90CutHeightsTest, NeighbouringHeightsLeaveNoPadding) {
  for (bool queue : {false, true}) {
    MLIRContext context;
    auto module = parse(
        context, std::string("tile_rows = [136, 152], tile_columns = 256") +
                     (queue ? ", queue" : ""));
    ASSERT_TRUE(module);
    sm90::Contract shape = getShape(*module);
    sm90::Cut cut = sm90::GroupCutter(shape).cut(1000);
    EXPECT_EQ(cut.tiles, 7);
    EXPECT_EQ(cut.low, queue ? 136 : 144);
    EXPECT_EQ(cut.more, queue ? 16 : 0);
    EXPECT_EQ(cut.higher, queue ? 3 : 0);
  }
}

} // namespace
