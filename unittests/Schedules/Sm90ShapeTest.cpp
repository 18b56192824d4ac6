//===- Sm90ShapeTest.cpp - problem, tiles, memory and registers -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Compiler/ParsedModule.h"
#include "Schedules/Sm90Gemm/Shape.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

namespace {

class Sm90ShapeTest : public testing::Test {
protected:
  /// Gate and up of four experts in bf16.
  tile::GemmOp makeGateUp(const std::string &config) {
    return parse(
        R"(tile.kernel @k(%x: memref<?x512xbf16>, %w: memref<4x512x512xbf16>,
             %o: memref<5xi32>, %y: memref<?x256xbf16>, %t: i64) {
           tile.gemm tokens(%t) ins(%x, %w : memref<?x512xbf16>, memref<4x512x512xbf16>)
             offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>) epilogue {
             ^bb0(%g: f32, %u: f32):
               %1 = arith.mulf %g, %u : f32
               tile.yield %1 : f32
             } {layout = #moe.weight_layout<order = gate_up>,
                config = #tile.sm90_gemm<block_k = 64, )" +
        config + R"(>}
           tile.return
         })");
  }
  /// Block fp8 with quantized results.
  tile::GemmOp makeScaled() {
    return parse(
        R"(tile.kernel @k(%x: memref<?x512xf8E4M3FN>, %w: memref<4x256x512xf8E4M3FN>,
             %a: memref<?x4xf32>, %b: memref<4x2x4xf32>, %o: memref<5xi32>,
             %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>, %t: i64) {
           tile.gemm tokens(%t) ins(%x, %w : memref<?x512xf8E4M3FN>, memref<4x256x512xf8E4M3FN>)
             input_scale(%a : memref<?x4xf32>) weight_scale(%b : memref<4x2x4xf32>)
             offsets(%o : memref<5xi32>) outs(%y : memref<?x256xf8E4M3FN>)
             result_scale(%z : memref<?x2xf32>)
             {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>,
              weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>,
              result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>,
              rounded_to = bf16,
              config = #tile.sm90_gemm<block_m = [16, 128], block_n = 128, block_k = 128, stages = 4, no_swap_ab>}
           tile.return
         })");
  }
  /// Block fp8 that quantizes its rows.
  tile::GemmOp makeQuantizing() {
    return parse(
        R"(tile.kernel @k(%x: memref<?x512xbf16>, %w: memref<4x256x512xf8E4M3FN>,
             %b: memref<4x2x4xf32>, %o: memref<5xi32>, %y: memref<?x256xbf16>, %t: i64) {
           tile.gemm tokens(%t) ins(%x, %w : memref<?x512xbf16>, memref<4x256x512xf8E4M3FN>)
             weight_scale(%b : memref<4x2x4xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>)
             {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>,
              weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>,
              quantizes_input,
              config = #tile.sm90_gemm<block_m = [8, 16], block_n = 64, block_k = 128, stages = 4>}
           tile.return
         })");
  }
  /// Prepacked mxfp4: two packed tiles along K in a k tile, three along N.
  tile::GemmOp makePrepacked() {
    return parse(
        R"(tile.kernel @k(%x: memref<?x512xbf16>, %w: memref<4x384x256xi8>,
             %s: memref<4x384x16xi8>, %r: memref<4x384xf32>,
             %o: memref<5xi32>, %y: memref<?x384xbf16>, %t: i64) {
           tile.gemm tokens(%t) ins(%x, %w : memref<?x512xbf16>, memref<4x384x256xi8>)
             weight_scale(%s : memref<4x384x16xi8>) weight_global_scale(%r : memref<4x384xf32>)
             offsets(%o : memref<5xi32>) outs(%y : memref<?x384xbf16>)
             {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32],
                                        packing = prepacked, second_scale = f32>, strategy = #moe.strategy<prepack>,
              config = #tile.sm90_gemm<block_m = [8, 16], block_n = 192, block_k = 128, stages = 4, map_rows>}
           tile.return
         })");
  }
  GemmShape getShape(tile::GemmOp op) { return {op, op.getConfigAttr()}; }

private:
  tile::GemmOp parse(const std::string &text) {
    parsed.push_back(std::make_unique<ParsedModule>(text));
    tile::GemmOp found;
    parsed.back()->module->walk([&](tile::GemmOp op) { found = op; });
    return found;
  }

  std::vector<std::unique_ptr<ParsedModule>> parsed;
};

const char *const kDynamic =
    "block_m = [16, 64], block_n = 64, stages = 4, dynamic_scheduler";

} // namespace

TEST_F(Sm90ShapeTest, ProblemSaysWhatIsAsked) {
  GemmProblem plain(makeGateUp(kDynamic));
  EXPECT_TRUE(plain.isGrouped);
  EXPECT_EQ(plain.groups, 4);
  EXPECT_EQ(plain.sizeK, 512);
  EXPECT_EQ(plain.columns, 256);
  EXPECT_EQ(plain.launchColumns, 256);
  EXPECT_EQ(plain.weightsPerColumn, 2);
  EXPECT_EQ(plain.compute, ComputeType::BF16);
  EXPECT_EQ(plain.getRowBytes(), 1024);
  EXPECT_EQ(plain.getInputRowBytes(), 1024);
  EXPECT_FALSE(plain.quantizes || plain.promotes || plain.isPrepacked());

  GemmProblem scaled(makeScaled());
  EXPECT_TRUE(scaled.quantizes && scaled.findsScales);
  EXPECT_TRUE(scaled.copiesScales() && scaled.promotes);
  EXPECT_EQ(scaled.compute, ComputeType::E4M3);
  EXPECT_EQ(scaled.getRowBytes(), 512);
  EXPECT_EQ(scaled.getWeightMaps(), 1);

  GemmProblem packed(makePrepacked());
  ASSERT_TRUE(packed.isPrepacked());
  // 4 bits each, and a byte per 32 of K.
  EXPECT_EQ(packed.packed->valueBytes, 64 * 64 / 2);
  EXPECT_EQ(packed.packed->scaleBytes, 64 * 2);
  EXPECT_EQ(packed.getRowBytes(), 512 / 2 + 512 / 32);
  EXPECT_EQ(packed.getWeightMaps(), 2);
  EXPECT_FALSE(packed.hasBook() || packed.promotes);
}

TEST_F(Sm90ShapeTest, CtasSplitK) {
  struct {
    std::string config;
    int64_t ctas, least, resident, bytes;
  } cases[] = {{"block_m = [16], block_n = 64, stages = 4", 1, 8, 132, 0},
               {"block_m = [16], block_n = 64, stages = 4, split_k = 2", 2, 4,
                132, 128 * 16 * 4},
               {"block_m = [8, 32], block_n = 32, stages = 4, split_k = 4", 4,
                2, 128, 3 * 64 * 32 * 4},
               {"block_m = [8], block_n = 128, stages = 4, split_k = 8", 8, 1,
                128, 7 * 256 * 8 * 4},
               {"block_m = [8], block_n = 128, stages = 4, "
                "multicast_weights",
                2, 8, 132, 0}};
  for (const auto &each : cases) {
    SCOPED_TRACE(each.config);
    GemmShape shape = getShape(makeGateUp(each.config));
    EXPECT_EQ(shape.tile().getClusterCtas(), each.ctas);
    EXPECT_EQ(shape.tile().getLeastKTiles(), each.least);
    EXPECT_EQ(shape.tile().countResidentCtas(132), each.resident);
    const SharedLayout &layout = shape.shared();
    EXPECT_EQ(layout.getMagnitudeOffset() - layout.getSharesOffset(),
              each.bytes);
    EXPECT_EQ(layout.getSchedulerOffset() - layout.getShareBarrierOffset(),
              each.bytes ? 16 : 0);
  }
}

TEST_F(Sm90ShapeTest, ConsumersSplitWeights) {
  GemmShape shape = getShape(makeGateUp(kDynamic));
  const TileShape &tile = shape.tile();
  EXPECT_EQ(tile.getNTiles(), 4);
  EXPECT_EQ(tile.getKTiles(), 8);
  EXPECT_EQ(tile.kTileBytes, 128);
  EXPECT_EQ(tile.swizzleRows, 1);
  EXPECT_EQ(tile.getWeightRows(), 128);
  EXPECT_EQ(tile.getConsumers(), 2);
  EXPECT_EQ(tile.getThreads(), 384);
  EXPECT_EQ(tile.getConsumerRows(16), 16);
  EXPECT_EQ(tile.getConsumerWeights(16), 64);
  EXPECT_EQ(tile.getConsumerColumns(16), 32);
  EXPECT_EQ(tile.getWarpColumns(16), 8);
  EXPECT_EQ(tile.getProductWidth(16), 16);
  // Tiles of 64 rows would be empty beside those of 16.
  EXPECT_FALSE(tile.hasTwoBlockMs());
  EXPECT_TRUE(tile.mixesBlockMs(32, 64));
}

TEST_F(Sm90ShapeTest, ConsumersSplitRows) {
  GemmShape shape = getShape(makeScaled());
  const TileShape &tile = shape.tile();
  EXPECT_TRUE(tile.splitsRows(128));
  EXPECT_EQ(tile.getConsumerRows(128), 64);
  EXPECT_EQ(tile.getConsumerWeights(128), 128);
  EXPECT_EQ(tile.getProductWidth(128), 128);
  // Small tiles swap A and B.
  EXPECT_TRUE(tile.swapsAB(16));
  EXPECT_EQ(tile.getConsumerWeights(16), 64);
  EXPECT_EQ(tile.getProductWidth(16), 16);
  EXPECT_EQ(tile.getWeightScales(), 2);
}

TEST_F(Sm90ShapeTest, ThreeConsumersHaveAPackedTileEach) {
  GemmShape shape = getShape(makePrepacked());
  EXPECT_EQ(shape.tile().getConsumers(), 3);
  EXPECT_EQ(shape.tile().getThreads(), 512);
  EXPECT_EQ(shape.tile().swizzleRows, 2);
  EXPECT_TRUE(shape.tile().multipliesByWarps(8));
  EXPECT_FALSE(shape.tile().multipliesByWarps(16));
  EXPECT_EQ(shape.shared().getWeightBytes(), 3 * 2 * 2048);
  EXPECT_EQ(shape.shared().getScaleBytes(), 3 * 2 * 128);
  EXPECT_EQ(shape.shared().getStageBytes(), 3 * 2 * 2048 + 2 * 16 * 128);
}

TEST_F(Sm90ShapeTest, SectionsFollowEachOther) {
  GemmShape shape = getShape(makeGateUp(kDynamic));
  const SharedLayout &shared = shape.shared();
  EXPECT_EQ(shared.getWeightBytes(), 128 * 128);
  EXPECT_EQ(shared.getStageBytes(), 128 * 128 + 64 * 128);
  EXPECT_EQ(shared.getScaleOffset(), 4 * 24576);
  EXPECT_EQ(shared.getStagingOffset(), 98304);
  // 16 rows of 32 columns in bf16, and a chunk.
  EXPECT_EQ(shared.getStagingBytes(), 16 * (64 + 16));
  EXPECT_TRUE(shared.hasOneBuffer());
  EXPECT_EQ(shared.getExchangeOffset(), 98304 + 2 * 1280);
  EXPECT_EQ(shared.getBarrierOffset(), 100864);
  EXPECT_EQ(shared.getSchedulerOffset(), 100864 + 4 * 16);
  EXPECT_EQ(shared.getNumberOffset(), 100928 + 2 * 16);
  EXPECT_EQ(shared.getTableOffset(), 100960 + 16);
  EXPECT_EQ(shared.getBookOffset(), 100976 + 5 * 16);
  EXPECT_EQ(shared.getBytes(), 101056);
}

TEST_F(Sm90ShapeTest, QuantizationHasScratch) {
  GemmShape shape = getShape(makeScaled());
  const SharedLayout &shared = shape.shared();
  // 128 rows and two blocks of weights.
  EXPECT_EQ(shared.getScaleBytes(), 528);
  // Warps share the 16 rows of a small tile; in a large tile a warp has whole
  // rows.
  EXPECT_EQ(shared.getSharedRows(), 64);
  EXPECT_EQ(shared.getDivisorOffset() - shared.getMagnitudeOffset(),
            8 * 64 * 2);
  EXPECT_EQ(shared.getBarrierOffset() - shared.getDivisorOffset(), 64 * 8);
  EXPECT_FALSE(shared.hasOneBuffer());
  ResultStaging high(shape.problem(), shape.tile(), 128);
  EXPECT_EQ(high.columns, 128);
  EXPECT_EQ(high.stride, 144);
  EXPECT_EQ(ResultStaging(shape.problem(), shape.tile(), 16).columns, 64);
}

/// A stage has the rows before and after their quantization.
TEST_F(Sm90ShapeTest, QuantizedRowsHaveTwoForms) {
  GemmShape shape = getShape(makeQuantizing());
  EXPECT_TRUE(shape.problem().copiesScales());
  EXPECT_EQ(shape.problem().inputBits, 8);
  EXPECT_EQ(shape.problem().getInputRowBytes(), 1024);
  EXPECT_EQ(shape.tile().kTileBytes, 128);
  EXPECT_EQ(shape.shared().getRawRowBytes(), 256);
  EXPECT_EQ(shape.shared().getStageBytes(), 64 * 128 + 16 * (128 + 256));
  EXPECT_EQ(getShape(makeScaled()).shared().getRawRowBytes(), 0);
}

TEST_F(Sm90ShapeTest, JoinedGemmsShareMemory) {
  SharedLayout shared = getShape(makeGateUp(kDynamic)).shared();
  // Consumers that share a block of weights exchange sums.
  SharedLayout other =
      getShape(makeGateUp("block_m = [16, 64], block_n = 32, stages = 4"))
          .shared();
  EXPECT_EQ(other.getStageBytes(), 64 * 128 + 64 * 128);
  int64_t bytes = shared.getBytes();
  shared.shareWith(other);
  EXPECT_EQ(shared.getStageBytes(), 24576);
  EXPECT_EQ(shared.getMagnitudeOffset() - shared.getExchangeOffset(),
            64 * 64 * 4);
  EXPECT_FALSE(shared.hasOneBuffer());
  EXPECT_EQ(shared.getBytes(),
            bytes + 64 * 64 * 4 +
                2 * (shared.getStagingBytes() - 16 * (64 + 16)));
}

TEST_F(Sm90ShapeTest, ConsumersGetWhatTheProducerReleases) {
  RegisterBudget budget = getShape(makeGateUp(kDynamic)).registers();
  EXPECT_EQ(budget.getAccumulators(), 32);
  EXPECT_TRUE(budget.fits());
  EXPECT_FALSE(budget.hasReducedRegisters());
  // 65536 registers for 384 threads, in multiples of 8.
  EXPECT_EQ(budget.getRegisters(), 168);
  EXPECT_EQ(budget.getProducerRegisters(), 88);
  EXPECT_EQ(budget.getConsumerRegisters(), (3 * 168 - 88) / 2);
  // A k tile's accumulators beside the sum's.
  EXPECT_EQ(getShape(makeScaled()).registers().getAccumulators(), 128);
}

TEST(Sm90RegistersTest, LowTilesTakeHalfAnSM) {
  ptxas::Sm90Shape low = {/*rows=*/32,
                          /*blockMs=*/1,
                          /*sums=*/32,
                          /*noSwapAB=*/false,
                          /*promotes=*/false,
                          /*mapRows=*/true,
                          /*copiesScales=*/false,
                          /*quantizesRows=*/false,
                          /*fromRegisters=*/false,
                          /*consumers=*/2};
  RegisterBudget budget(low);
  EXPECT_TRUE(budget.hasReducedRegisters());
  EXPECT_EQ(budget.getRegisters(), 80);
  EXPECT_EQ(budget.getProducerRegisters(), 56);
  EXPECT_EQ(budget.getConsumerRegisters(), 88);
  // Threads that quantize rows take what consumers do not need.
  ptxas::Sm90Shape quantizing = low;
  quantizing.quantizesRows = true;
  EXPECT_EQ(RegisterBudget(quantizing).getProducerRegisters(), 64);
  EXPECT_EQ(RegisterBudget(quantizing).getConsumerRegisters(), 88);
  ptxas::Sm90Shape high = low;
  high.sums = 256;
  EXPECT_FALSE(RegisterBudget(high).fits());
  // A joined gemm needs more than the half.
  budget.shareWith(RegisterBudget(high));
  EXPECT_EQ(budget.getAccumulators(), 32);
  EXPECT_TRUE(budget.fits());
  EXPECT_FALSE(budget.hasReducedRegisters());
  EXPECT_EQ(budget.getRegisters(), 168);
}
