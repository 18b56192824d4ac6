//===- PtxasLimitsTest.cpp - kernels at the limits of ptxas -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Each limit of PtxasLimits.h names the test here that holds it.

#include "moec/Analysis/PtxasLimits.h"

#include "../../lib/Analysis/Schedules/Sm90/Sm90Choice.h"
#include "NvptxTesting.h"
#include "PtxasSeconds.h"

#include "mlir/Parser/Parser.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Support/Parts.h"
#include "moec/Target/NVPTX.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

#include <cstdlib>

using namespace mlir;
using namespace moec;
using namespace moec::test;

namespace {

struct Assembled {
  std::string ptx;
  KernelReport report;
  double seconds = 0;
};

/// What ptxas makes of a kernel, which is to fit.
Assembled expectFits(const std::string &text, const std::string &chip) {
  Compilation compiled(text, chip);
  EXPECT_EQ(compiled.errors, "");
  auto assembled = assemble(compiled.ptx, chip);
  if (!assembled || assembled->kernels.size() != 1) {
    ADD_FAILURE() << "is not one kernel: "
                  << llvm::toString(assembled.takeError());
    return {};
  }
  EXPECT_TRUE(assembled->complaints.empty()) << assembled->complaints.front();
  KernelReport report = assembled->kernels.front();
  EXPECT_EQ(report.spillStoreBytes, 0);
  EXPECT_EQ(report.spillLoadBytes, 0);
  EXPECT_EQ(report.stackBytes, 0);
  return {compiled.ptx, report, assembled->cpuSeconds};
}

/// Weighted rows of groups, as in a layer's last product.
std::string weighted(bool isMapped, const std::string &config) {
  std::vector<std::string> arguments{
      "%x: memref<?x768xbf16>", "%w: memref<6x2048x768xbf16>",
      "%o: memref<7xi32>",      "%s: memref<?xi32>",
      "%r: memref<?x1xf32>",    "%y: memref<?x2048xbf16>"};
  return kernel(
      arguments,
      "tile.contract tokens(%t) ins(%x, %w : memref<?x768xbf16>, "
      "memref<6x2048x768xbf16>) offsets(%o : memref<7xi32>)" +
          std::string(isMapped ? "" : " source(%s : memref<?xi32>)") +
          " rows(%r : memref<?x1xf32>) outs(%y : memref<?x2048xbf16>) "
          "epilogue {\n^bb0(%a: f32, %b: f32):\n"
          "  %1 = arith.mulf %a, %b : f32\n  tile.yield %1 : f32\n}"
          " {config = #tile.sm90_contract<step = 64, " +
          config + (isMapped ? ", map_rows>}" : ">}"));
}

/// A product of e4m3 by sm90.contract, of which a CTA has so many weight rows;
/// with gate and up its rows are copied, else mapped.
void expectNoSpills(bool isPaired, int64_t rows, const std::string &heights,
                    const std::string &order, int64_t depth,
                    const Format &input, const Format &weight) {
  std::string config =
      "sm90_contract<tile_columns = " +
      std::to_string(isPaired ? rows / 2 : rows) + ", tile_rows = [" + heights +
      "], step = 128, stages = 4" + order + (isPaired ? ">" : ", map_rows>");
  SCOPED_TRACE(config);
  expectFits(scaled(depth, 768, isPaired, isPaired ? "gate_up" : "", "bf16",
                    input, weight, "", config),
             "sm_90a");
}

//===----------------------------------------------------------------------===//
// sm90.contract: registers
//===----------------------------------------------------------------------===//

/// Registers move from the warpgroup that copies to those that multiply, and
/// all of them fit in a multiprocessor. At the start all threads have the same
/// share.
TEST(PtxasLimits, WarpgroupsShareRegisters) {
  const int64_t alone = getRegisterShare(1, 384),
                half = getRegisterShare(2, 384);
  // Threads that copy rows keep more, the more rows there are.
  struct {
    bool isMapped;
    std::string config, producer, consumer;
    int64_t all;
  } cases[] = {
      {false, "tile_rows = [144], tile_columns = 256, stages = 4", "72", "216",
       alone},
      {false, "tile_rows = [16, 144], tile_columns = 256, stages = 4", "88",
       "208", alone},
      {false, "tile_rows = [160], tile_columns = 256, stages = 3", "88", "208",
       alone},
      {false, "tile_rows = [256], tile_columns = 128, stages = 4", "104", "200",
       alone},
      {true, "tile_rows = [8, 24, 160], tile_columns = 256, stages = 4", "40",
       "232", alone},
      {true, "tile_rows = [192], tile_columns = 256, stages = 3", "24", "240",
       alone},
      {false,
       "tile_rows = [64, 128], tile_columns = 256, stages = 4, rows_on_m", "88",
       "208", alone},
      {true, "tile_rows = [64, 128], tile_columns = 256, stages = 4, rows_on_m",
       "40", "232", alone},
      // Low tiles leave room for CTAs of the launch before.
      {false, "tile_rows = [8], tile_columns = 128, stages = 4", "56", "88",
       half},
      {false, "tile_rows = [8, 32], tile_columns = 256, stages = 4", "56", "88",
       half},
      {true, "tile_rows = [16, 32], tile_columns = 256, stages = 4", "56", "88",
       half}};
  for (const auto &[isMapped, config, producer, consumer, all] : cases) {
    SCOPED_TRACE(config);
    Assembled assembled = expectFits(weighted(isMapped, config), "sm_90a");
    const std::string &ptx = assembled.ptx;
    EXPECT_NE(ptx.find(".reqntid 384"), std::string::npos);
    EXPECT_NE(ptx.find("setmaxnreg.dec.sync.aligned.u32 \t" + producer),
              std::string::npos);
    EXPECT_NE(ptx.find("setmaxnreg.inc.sync.aligned.u32 \t" + consumer),
              std::string::npos);
    EXPECT_LE(assembled.report.registers, all);
  }
}

/// The highest tiles of e4m3 leave the registers that they need, with scales of
/// rows beside the sums and without; those of 32 rows begin with few.
TEST(PtxasLimits, SumsOfAStepFitInRegisters) {
  struct {
    bool isPaired;
    int64_t rows;
    std::string heights, order = "";
  } cases[] = {{true, 256, "88"},
               {true, 256, "112"},
               {true, 128, "128"},
               {true, 128, "144"},
               {true, 128, "168"},
               {true, 64, "64"},
               {false, 256, "88"},
               {false, 256, "112"},
               {false, 128, "128"},
               {false, 128, "168"},
               {true, 256, "32"},
               {true, 256, "8, 32"},
               {true, 64, "16"},
               {false, 256, "16, 32"},
               {false, 128, "8, 32"},
               {true, 256, "128", ", rows_on_m"},
               {true, 256, "64, 128", ", rows_on_m"},
               {true, 128, "64, 128", ", rows_on_m"},
               {true, 256, "16, 64, 128", ", rows_on_m"},
               {false, 256, "64, 128", ", rows_on_m"},
               {false, 256, "16, 64, 128", ", rows_on_m"},
               {false, 256, "48, 128", ", rows_on_m"},
               {false, 128, "64, 128", ", rows_on_m"}};
  for (const auto &test : cases)
    expectNoSpills(test.isPaired, test.rows, test.heights, test.order, 2048,
                   kGroup128, kBlock);
}

/// Sums of long rows are apart step by step with scales of whole rows, too;
/// short rows leave room for higher tiles.
TEST(PtxasLimits, ScalesOfRowsFitInRegisters) {
  for (bool isPaired : {false, true}) {
    for (std::string heights : {"112", "16, 32, 64, 112", "8, 32"})
      expectNoSpills(isPaired, 256, heights, "", 4096, kToken, kChannel);
    for (std::string heights : {"128", "16, 64, 128", "16, 32, 64, 128"})
      expectNoSpills(isPaired, 256, heights, ", rows_on_m", 4096, kToken,
                     kChannel);
    expectNoSpills(isPaired, 128, "168", "", 4096, kToken, kChannel);
    for (std::string heights : {"160", "16, 32, 64, 128", "8, 32"})
      expectNoSpills(isPaired, 256, heights, "", 2048, kToken, kChannel);
    expectNoSpills(isPaired, 64, "64", "", 2048, kToken, kChannel);
    // Sums of int8 become f32, and never are apart.
    Format token = kToken.with("i8"), channel = kChannel.with("i8");
    for (std::string heights : {"160", "8, 16, 24, 32, 64, 128", "8, 32"})
      expectNoSpills(isPaired, 256, heights, "", 4096, token, channel);
    expectNoSpills(isPaired, 128, "256", "", 4096, token, channel);
    expectNoSpills(isPaired, 64, "64", "", 4096, token, channel);
  }
}

/// What is tried stays within narrower limits, at which a long epilogue fits.
TEST(PtxasLimits, CandidatesDoNotSpill) {
  std::string highest = std::to_string(ptxas::kCopiedRows);
  for (bool isPaired : {false, true})
    expectFits(
        contract("bf16", 512, 768, true, isPaired ? "gate_up" : "",
                 "sm90_contract<step = 64, stages = 3, tile_rows = [8, " +
                     highest +
                     "], tile_columns = " + (isPaired ? "64>" : "128>")),
        "sm_90a");
  static_assert(ptxas::kPromotedHeights == 2);
  for (bool isPaired : {false, true}) {
    // A consumer has one block of 128 weight rows and two of 256, and as many
    // sums of a step.
    for (int64_t blocks : {1, 2}) {
      int64_t height = 2 * ptxas::kPromotedSums / (blocks + 1) / 8 * 8;
      expectNoSpills(isPaired, 128 * blocks, "16, " + std::to_string(height),
                     "", 2048, kGroup128, kBlock);
    }
    // The epilogue of gate and up has 18 lines.
    expectNoSpills(isPaired, 256, "16, 32, 64, 128", ", rows_on_m", 2048,
                   kGroup128, kBlock);
  }
}

/// Weights in an order of fragments: their `#moe.quant` up to the packing, and
/// bytes of a unit's row, of codes and of what is beside them.
struct FromRegisters {
  std::string quant, input;
  int64_t codeBytes, scaleBytes;
  /// Whether inputs are codes that are kept as bf16; and results of gate and
  /// up, too, by a scale that is given.
  bool areKept = false, quantizes = false;
};

const FromRegisters kMxfp4 = {"storage = f4E2M1FN, scale = f8E8M0FNU, "
                              "granularity = group, block = [1, 32]",
                              "bf16", 32, 2};

/// Groups of rows by weights that are multiplied from registers, of which a CTA
/// has `n` rows: weighted, as in a layer's last product, or, with gate and up,
/// as in its first one.
std::string fromRegisters(const FromRegisters &format, bool isPaired,
                          bool isMapped, int64_t n, int64_t step,
                          const std::string &config) {
  constexpr int64_t units = 45;
  bool areBytes = format.input == "f8E4M3FN";
  bool areCodes = areBytes || format.areKept;
  bool quantizes = isPaired && format.quantizes;
  std::string input = memrefOf("?x2880", format.input),
              result = memrefOf(isPaired ? "?x1440" : "?x2880",
                                areBytes ? "bf16" : format.input),
              codes = memrefOf(
                  "6x2880x" + std::to_string(units * format.codeBytes), "i8"),
              scales = memrefOf(
                  "6x2880x" + std::to_string(units * format.scaleBytes), "i8");
  std::vector<std::string> arguments{
      "%x: " + input,        "%w: " + codes,
      "%ws: " + scales,      "%ww: memref<6x2880xf32>",
      "%o: memref<7xi32>",   "%s: memref<?xi32>",
      "%r: memref<?x1xf32>", "%xs: memref<?x1xf32>",
      "%g: memref<1xf32>",   "%y: " + result};
  std::string phase = "tile.contract tokens(%t) ins(%x, %w : " + input + ", " +
                      codes + ")" +
                      (areCodes ? " input_scale(%xs : memref<?x1xf32>)" : "") +
                      " weight_scale(%ws : " + scales +
                      ") weight_global_scale(%ww : memref<6x2880xf32>) "
                      "offsets(%o : memref<7xi32>)";
  if (!isMapped)
    phase += " source(%s : memref<?xi32>)";
  if (!isPaired)
    phase += " rows(%r : memref<?x1xf32>)";
  if (quantizes)
    phase += " result_tensor_scale(%g : memref<1xf32>)";
  phase += " outs(%y : " + result + ") epilogue {\n^bb0(%a: f32, %b: f32):\n";
  if (isPaired)
    phase += "  %2 = arith.negf %a : f32\n  %3 = math.exp %2 : f32\n"
             "  %4 = arith.constant 1.0 : f32\n"
             "  %5 = arith.addf %3, %4 : f32\n"
             "  %6 = arith.divf %a, %5 : f32\n"
             "  %1 = arith.mulf %6, %b : f32\n";
  else
    phase += "  %1 = arith.mulf %a, %b : f32\n";
  phase +=
      "  tile.yield %1 : f32\n} {" +
      std::string(areCodes ? "input_quant = #moe.quant<storage = f8E4M3FN, "
                             "scale = f32, granularity = token, dynamic = true"
                           : "") +
      (format.areKept ? ", packing = bf16" : "") + (areCodes ? ">, " : "") +
      (quantizes ? "result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, "
                   "granularity = tensor, packing = bf16>, rounded_to = bf16, "
                 : "") +
      "weight_quant = #moe.quant<" + format.quant + ", packing = fragments" +
      (areBytes                ? "_e4m3"
       : format.input == "f16" ? "_f16"
                               : "") +
      ", second_scale = f32>, way = #moe.way<repack>, "
      "config = #tile.sm90_contract<tile_columns = " +
      std::to_string(isPaired ? n / 2 : n) +
      ", step = " + std::to_string(step) + ", " + config +
      (isMapped ? ", map_rows>" : ">");
  if (isPaired)
    phase += ", layout = #moe.weight_layout<order = gate_up>";
  return kernel(arguments, phase + "}");
}

/// Weight rows and depth of a step, heights and stages.
struct Tile {
  int64_t n, step;
  std::string config;
};

/// As a first product, whose rows are copied, and as a last one, whose rows lie
/// in order. Each format has one product of four; every night all.
static void expectAllFit(ArrayRef<FromRegisters> formats,
                         ArrayRef<Tile> tiles) {
  bool runsAll = std::getenv("MOEC_ALL_CASES");
  for (const auto &[i, format] : llvm::enumerate(formats))
    for (const auto &[j, tile] : llvm::enumerate(tiles))
      for (bool isPaired : {false, true}) {
        if (!runsAll && (i + 2 * j + isPaired) % 4)
          continue;
        const auto &[n, step, config] = tile;
        SCOPED_TRACE(format.quant + ", " + format.input + ", " + config +
                     (isPaired ? ", gate and up" : ""));
        expectFits(fromRegisters(format, isPaired, /*isMapped=*/!isPaired, n,
                                 step, config),
                   "sm_90a");
      }
}

/// Fragments of a unit lie beside sums and what of the next one is taken apart;
/// three consumers have fewer registers each than two.
TEST(PtxasLimits, RegistersSufficeForThree) {
  const Tile cases[] = {
      {192, 320, "tile_rows = [8], stages = 5"},
      {192, 320, "tile_rows = [8, 16, 48], stages = 3"},
      {192, 192, "tile_rows = [16, 32, 48], stages = 4"},
      {192, 192, "tile_rows = [96], stages = 3"},
      {128, 192, "tile_rows = [120, 128, 144, 160], stages = 3"},
      {256, 64, "tile_rows = [64], stages = 6"}};
  for (const auto &[n, step, config] : cases)
    for (bool isMapped : {false, true}) {
      SCOPED_TRACE(config);
      Assembled assembled = expectFits(
          fromRegisters(kMxfp4, /*isPaired=*/false, isMapped, n, step, config),
          "sm_90a");
      EXPECT_NE(assembled.ptx.find(n == 192 ? ".reqntid 512" : ".reqntid 384"),
                std::string::npos);
    }
}

/// Units of 8 bits have two words for each product, and scales that are sums of
/// two numbers. A height has code of its own, and the last ones spill.
TEST(PtxasLimits, UnitsOfBytesFitInRegisters) {
  static_assert(ptxas::kHeightsOfTwo == 5 && ptxas::kHeightsOfManySums == 4 &&
                ptxas::kSumsOfFiveHeights == 64);
  const Tile cases[] = {
      {192, 192, "tile_rows = [8, 16, 48], stages = 3"},
      {128, 64, "tile_rows = [120, 128, 144, 160], stages = 3"},
      {128, 64, "tile_rows = [16, 32, 64, 96, 128], stages = 4"},
      {256, 64, "tile_rows = [16, 32, 64, 80], stages = 4"}};
  std::string groups = "granularity = group, block = [1, 32]",
              blocks = "granularity = block, block = [128, 128]";
  const FromRegisters formats[] = {
      {"storage = i8, scale = f32, granularity = channel", "bf16", 64, 2},
      {"storage = i8, scale = f16, " + groups + ", zero_point = true", "bf16",
       64, 8},
      {"storage = f8E4M3FN, scale = f32, " + blocks, "bf16", 64, 4},
      {"storage = f8E4M3FN, scale = bf16, " + groups, "f16", 64, 4},
      {"storage = i8, scale = f32, granularity = group, block = [1, 16]",
       "bf16", 64, 16},
      {"storage = i8, scale = f32, granularity = group, block = [1, 16], "
       "zero_point = true",
       "bf16", 64, 24},
      {"storage = i8, scale = f32, granularity = group, block = [1, 16], "
       "minimum = true",
       "bf16", 64, 32}};
  expectAllFit(formats, cases);
}

/// Minima are one more number of each group beside its scale, which is two, and
/// the zero point; the tables of a code book are eight.
TEST(PtxasLimits, MinimaAndBooksFitInRegisters) {
  const Tile cases[] = {
      {192, 192, "tile_rows = [8, 16, 48], stages = 3"},
      {192, 192, "tile_rows = [96], stages = 3"},
      {128, 64, "tile_rows = [120, 128, 144, 160], stages = 3"},
      {128, 64, "tile_rows = [16, 32, 64, 96, 128], stages = 4"},
      {256, 64, "tile_rows = [16, 32, 64, 80], stages = 4"}};
  const FromRegisters formats[] = {
      {"storage = i4, scale = f32, granularity = group, block = [1, 32], "
       "minimum = true",
       "bf16", 32, 16},
      {"storage = i4, scale = f32, granularity = group, block = [1, 32], "
       "zero_point = true",
       "bf16", 32, 12},
      {"storage = i4, scale = f32, granularity = group, block = [1, 32], "
       "minimum = true",
       "f16", 32, 12},
      {"storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64]",
       "bf16", 32, 4}};
  expectAllFit(formats, cases);
}

/// Codes of e2m1 by f16 take the registers that they take by bf16; of minima
/// by f16 in groups of 16 a thread has as many numbers as of any.
TEST(PtxasLimits, UnitsOfF16FitInRegisters) {
  const Tile cases[] = {
      {192, 192, "tile_rows = [8, 16, 48], stages = 3"},
      {128, 64, "tile_rows = [120, 128, 144, 160], stages = 3"},
      {128, 64, "tile_rows = [16, 32, 64, 96, 128], stages = 4"},
      {256, 64, "tile_rows = [16, 32, 64, 80], stages = 4"}};
  const FromRegisters formats[] = {
      {"storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = "
       "[1, 32]",
       "f16", 32, 2},
      {"storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, "
       "16]",
       "f16", 32, 4},
      {"storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = "
       "[1, 32]",
       "f16", 64, 2},
      {"storage = i8, scale = f32, granularity = group, block = [1, 16], "
       "minimum = true",
       "f16", 64, 24}};
  expectAllFit(formats, cases);
}

/// Scales of rows are beside the sums of rows of codes, which are kept as bf16,
/// and of results that become such in registers what they are divided by.
TEST(PtxasLimits, RowsOfCodesFitInRegisters) {
  static_assert(ptxas::kHeightsOfTwo - ptxas::kHeightsOfRowScales == 4 &&
                ptxas::kHeightsOfManySums - ptxas::kHeightsOfRowScales == 3);
  const Tile cases[] = {{192, 192, "tile_rows = [8, 16, 48], stages = 3"},
                        {192, 64, "tile_rows = [96], stages = 3"},
                        {128, 64, "tile_rows = [128, 144, 160], stages = 3"},
                        {128, 64, "tile_rows = [32, 64, 96, 128], stages = 4"},
                        {256, 64, "tile_rows = [32, 64, 80], stages = 4"}};
  const FromRegisters formats[] = {
      {"storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, "
       "16]",
       "bf16", 32, 4, /*areKept=*/true, /*quantizes=*/true},
      {"storage = i4, scale = bf16, granularity = group, block = [1, 32], "
       "zero_point = true",
       "bf16", 32, 8, /*areKept=*/true},
      {"storage = i4, scale = f32, granularity = group, block = [1, 32], "
       "minimum = true",
       "bf16", 32, 16, /*areKept=*/true, /*quantizes=*/true},
      {"storage = i8, scale = f32, granularity = group, block = [1, 16]",
       "bf16", 64, 16, /*areKept=*/true},
      {"storage = i8, scale = f32, granularity = group, block = [1, 16], "
       "minimum = true",
       "bf16", 64, 32, /*areKept=*/true, /*quantizes=*/true}};
  expectAllFit(formats, cases);
}

/// Codes of 4 bits that become e4m3 take fewer registers; sums of groups that
/// are apart take as many as the others.
TEST(PtxasLimits, UnitsOfE4M3FitInRegisters) {
  struct {
    int64_t n, step;
    std::string config;
    bool isPromoted;
  } cases[] = {
      {192, 320, "tile_rows = [8, 16, 48], stages = 4", false},
      {192, 320, "tile_rows = [96], stages = 3", false},
      {128, 320, "tile_rows = [80, 128, 144, 160], stages = 3", false},
      {128, 64, "tile_rows = [16, 32, 64, 96, 128], stages = 4", false},
      {256, 64, "tile_rows = [16, 32, 64, 80], stages = 4", false},
      {192, 192, "tile_rows = [80], stages = 3", true},
      {192, 192, "tile_rows = [16, 48], stages = 4", true},
      {128, 192, "tile_rows = [64, 80], stages = 4", true},
      {256, 64, "tile_rows = [32, 48], stages = 4", true}};
  const FromRegisters formats[] = {
      {"storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = "
       "[1, 32]",
       "f8E4M3FN", 32, 2},
      {"storage = i4, scale = bf16, granularity = group, block = [1, 64]",
       "f8E4M3FN", 32, 2},
      {"storage = i4, scale = f32, granularity = group, block = [1, 64]",
       "f8E4M3FN", 32, 4},
      {"storage = i4, scale = bf16, granularity = group, block = [1, 32]",
       "f8E4M3FN", 32, 4},
      {"storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = "
       "[1, 32]",
       "f8E4M3FN", 64, 2}};
  for (const FromRegisters &format : formats) {
    SCOPED_TRACE(format.quant);
    bool isPromoted = format.quant != formats[0].quant;
    for (const auto &[n, step, config, isOfPromoted] : cases)
      for (bool isPaired : {false, true}) {
        if (isOfPromoted != isPromoted)
          continue;
        SCOPED_TRACE(config + (isPaired ? ", gate and up" : ""));
        expectFits(fromRegisters(format, isPaired, /*isMapped=*/!isPaired, n,
                                 step, config),
                   "sm_90a");
      }
  }
}

//===----------------------------------------------------------------------===//
// sm90.contract: lines
//===----------------------------------------------------------------------===//

/// Lines of all epilogues.
int64_t getLines(const std::string &text) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect>();
  auto module = parseSourceString<ModuleOp>(text, &context);
  int64_t lines = 0;
  module->walk([&](tile::ContractOp op) {
    lines = sm90::estimateLines(op, sm90::Contract(op, op.getConfigAttr()));
  });
  return lines;
}

/// Nearly as many lines as are tried.
TEST(PtxasLimits, EpiloguesAssembleQuickly) {
  for (const std::string &text :
       {contract("bf16", 512, 768, true, "gate_up",
                 "sm90_contract<step = 64, stages = 3, tile_rows = [8, 24, 48, "
                 "112, 128], tile_columns = 128>"),
        // Few lines, but slow ones.
        weighted(true, "tile_rows = [256], tile_columns = 128, stages = 4")}) {
    int64_t lines = getLines(text);
    EXPECT_LE(lines, ptxas::kMaxLines);
    EXPECT_GT(lines, ptxas::kMaxLines * 9 / 10);
    Assembled assembled = expectFits(text, "sm_90a");
    EXPECT_LT(getPtxasSeconds(assembled.ptx, "sm_90a", assembled.seconds),
              ptxas::kMaxSeconds);
  }
}

//===----------------------------------------------------------------------===//
// sm80.*
//===----------------------------------------------------------------------===//

void expectFitsAnywhere(const std::string &text) {
  for (std::string chip : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(chip);
    expectFits(text, chip);
  }
}

/// FMAs, of f32, are chosen with half as many sums (NvptxMatrix): with all of
/// them they spill.
TEST(PtxasLimits, SumsNextToFragments) {
  // Sums of a thread: those of so many rows, in tiles of 128 weight rows.
  auto getConfig = [](int64_t sums, bool isPaired) {
    return "sm80_contract<tile_rows = " + std::to_string(sums) +
           ", tile_columns = " + (isPaired ? "64" : "128") +
           ", step = 32, vector_width = 4>";
  };
  const int64_t most = ptxas::getMaxFragmentSums(/*hasColumnScales=*/false),
                fewer = ptxas::getMaxFragmentSums(/*hasColumnScales=*/true);
  for (bool isPaired : {false, true}) {
    SCOPED_TRACE(isPaired);
    std::string order = isPaired ? "gate_up" : "";
    expectFitsAnywhere(
        contract("bf16", 768, 2048, true, order, getConfig(most, isPaired)));
    // Half are those of a part of a step, to which scales belong.
    expectFitsAnywhere(scaled(2048, 768, true, order, "bf16", kPlain,
                              kTallBlock, "bf16",
                              getConfig(most / 2, isPaired)));
    expectFitsAnywhere(scaled(2048, 768, true, order, "bf16", kPlain, kGroup32,
                              "bf16", getConfig(fewer / 2, isPaired)));
  }
}

/// As many sums as are tried: those of narrower or lower tiles spill.
TEST(PtxasLimits, SumsNextToPieces) {
  for (std::string dtype : {"f32", "bf16"})
    for (int64_t rows : {1, 4, 8}) {
      int64_t columns = rows == 8 ? ptxas::kGemvSums / rows : 1;
      std::string config = "sm80_gemv<tile_rows = " + std::to_string(rows) +
                           ", tile_columns = " + std::to_string(columns) +
                           ", step = 0, threads = 512>";
      SCOPED_TRACE(config);
      expectFitsAnywhere(contract(dtype, 16384, 256, false, "", config));
    }
  // Several steps of few rows and columns are on their way at once.
  for (std::string tile :
       {"tile_rows = 16, tile_columns = 8", "tile_rows = 32, tile_columns = 32",
        "tile_rows = 32, tile_columns = 64"}) {
    SCOPED_TRACE(tile);
    expectFitsAnywhere(
        contract("bf16", 16384, 256, false, "",
                 "sm80_gemv<" + tile + ", step = 32, threads = 128>"));
  }
}

/// Counts of chunks of 16 tokens.
std::string rankCounted(int64_t experts) {
  std::string number = std::to_string(experts),
              counts = memrefOf("128x" + number, "i32"),
              offsets = memrefOf(std::to_string(experts + 1), "i32");
  return kernel({"%i: memref<?x8xi32>", "%w: memref<?x8xf32>", "%c: " + counts,
                 "%o: " + offsets, "%p: memref<?x8xi32>", "%s: memref<?xi32>",
                 "%r: memref<?x1xf32>"},
                "tile.rank tokens(%t) ids(%i, %w : memref<?x8xi32>, "
                "memref<?x8xf32>) counts(%c : " +
                    counts + ") outs(%o, %p, %s, %r : " + offsets +
                    ", memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>) "
                    "{num_experts = " +
                    number + " : i64, chunk_tokens = 16 : i64}");
}

TEST(PtxasLimits, RoutingFits) {
  // A warp has the keys of a row.
  for (std::string routing :
       {"10, softmax = selected", "32, softmax = all, renormalize = true",
        "8, num_groups = 8, topk_groups = 4, group_score = top2_sum, "
        "renormalize = true"})
    expectFitsAnywhere(topK(32 * ptxas::kKeysPerLane, routing));
  // Counts come one by one, or four at once where there are no fewer experts
  // than threads.
  for (int64_t experts : {126, 128, 512})
    expectFitsAnywhere(rankCounted(experts));
}

} // namespace
