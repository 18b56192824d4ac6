//===- PtxasLimitsTest.cpp - kernels at the limits of ptxas -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Each limit of PtxasLimits.h names the test here that holds it.

#include "moec/Schedules/PtxasLimits.h"

#include "NvptxTesting.h"
#include "PtxasSeconds.h"
#include "Schedules/Sm90Gemm/Candidates.h"

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

/// The output of ptxas for a kernel, which must fit.
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

/// Weighted rows of groups, as in the second gemm of the experts.
std::string weighted(bool isMapped, const std::string &config) {
  std::vector<std::string> arguments{
      "%x: memref<?x768xbf16>", "%w: memref<6x2048x768xbf16>",
      "%o: memref<7xi32>",      "%s: memref<?xi32>",
      "%r: memref<?x1xf32>",    "%y: memref<?x2048xbf16>"};
  return kernel(
      arguments,
      "tile.gemm tokens(%t) ins(%x, %w : memref<?x768xbf16>, "
      "memref<6x2048x768xbf16>) offsets(%o : memref<7xi32>)" +
          std::string(isMapped ? "" : " source(%s : memref<?xi32>)") +
          " rows(%r : memref<?x1xf32>) outs(%y : memref<?x2048xbf16>) "
          "epilogue {\n^bb0(%a: f32, %b: f32):\n"
          "  %1 = arith.mulf %a, %b : f32\n  tile.yield %1 : f32\n}"
          " {config = #tile.sm90_gemm<block_k = 64, " +
          config + (isMapped ? ", map_rows>}" : ">}"));
}

/// An e4m3 gemm by sm90.gemm with this number of weight rows per CTA; with gate
/// and up input rows are copied by threads, else by tensor maps.
void expectNoSpills(bool isPaired, int64_t rows, const std::string &blockMs,
                    const std::string &order, int64_t sizeK,
                    const Format &input, const Format &weight) {
  std::string config =
      "sm90_gemm<block_n = " + std::to_string(isPaired ? rows / 2 : rows) +
      ", block_m = [" + blockMs + "], block_k = 128, stages = 4" + order +
      (isPaired ? ">" : ", map_rows>");
  SCOPED_TRACE(config);
  expectFits(scaled(sizeK, 768, isPaired, isPaired ? "gate_up" : "", "bf16",
                    input, weight, "", config),
             "sm_90a");
}

//===----------------------------------------------------------------------===//
// sm90.gemm: registers
//===----------------------------------------------------------------------===//

/// Registers move from the producer warpgroup to the consumers, and all fit in
/// a multiprocessor. At the start all threads have the same number.
TEST(PtxasLimits, WarpgroupsShareRegisters) {
  const int64_t alone = getRegisterShare(1, 384),
                half = getRegisterShare(2, 384);
  // Threads that copy rows keep more registers, the more rows there are.
  struct {
    bool isMapped;
    std::string config, producer, consumer;
    int64_t all;
  } cases[] = {
      {false, "block_m = [144], block_n = 256, stages = 4", "72", "216", alone},
      {false, "block_m = [16, 144], block_n = 256, stages = 4", "88", "208",
       alone},
      {false, "block_m = [160], block_n = 256, stages = 3", "88", "208", alone},
      {false, "block_m = [256], block_n = 128, stages = 4", "104", "200",
       alone},
      {true, "block_m = [8, 24, 160], block_n = 256, stages = 4", "40", "232",
       alone},
      {true, "block_m = [192], block_n = 256, stages = 3", "24", "240", alone},
      {false, "block_m = [64, 128], block_n = 256, stages = 4, no_swap_ab",
       "88", "208", alone},
      {true, "block_m = [64, 128], block_n = 256, stages = 4, no_swap_ab", "40",
       "232", alone},
      // With few rows per tile, CTAs of the previous launch fit beside this
      // one's.
      {false, "block_m = [8], block_n = 128, stages = 4", "56", "88", half},
      {false, "block_m = [8, 32], block_n = 256, stages = 4", "56", "88", half},
      {true, "block_m = [16, 32], block_n = 256, stages = 4", "56", "88",
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

/// The largest e4m3 tiles fit in registers, with row scales beside the sums and
/// without; tiles of 32 rows start with reduced registers.
TEST(PtxasLimits, SumsOfAStepFitInRegisters) {
  struct {
    bool isPaired;
    int64_t rows;
    std::string blockMs, order = "";
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
               {true, 256, "128", ", no_swap_ab"},
               {true, 256, "64, 128", ", no_swap_ab"},
               {true, 128, "64, 128", ", no_swap_ab"},
               {true, 256, "16, 64, 128", ", no_swap_ab"},
               {false, 256, "64, 128", ", no_swap_ab"},
               {false, 256, "16, 64, 128", ", no_swap_ab"},
               {false, 256, "48, 128", ", no_swap_ab"},
               {false, 128, "64, 128", ", no_swap_ab"}};
  for (const auto &test : cases)
    expectNoSpills(test.isPaired, test.rows, test.blockMs, test.order, 2048,
                   kGroup128, kBlock);
}

/// Threads that quantize rows as they copy them fit in reduced registers and in
/// others.
TEST(PtxasLimits, QuantizedRowsFitInRegisters) {
  auto quantizing = [](const std::string &element, bool isGiven,
                       const std::string &blocks) {
    std::string rows = "memref<?x1024x" + element + ">",
                results = "memref<?x2048x" + element + ">",
                scale = isGiven ? "memref<6x4096x1xf32>" : "memref<6x32x8xf32>";
    std::vector<std::string> arguments{
        "%x: " + rows,       "%w: memref<6x4096x1024xf8E4M3FN>",
        "%b: " + scale,      "%o: memref<7xi32>",
        "%s: memref<?xi32>", "%y: " + results};
    if (isGiven)
      arguments.push_back("%g: memref<1xf32>");
    Format tensor{"tensor"};
    return kernel(
        arguments,
        "tile.gemm tokens(%t) ins(%x, %w : " + rows +
            ", memref<6x4096x1024xf8E4M3FN>) " +
            (isGiven ? "input_scale(%g : memref<1xf32>) " : "") +
            "weight_scale(%b : " + scale +
            ") offsets(%o : memref<7xi32>) source(%s : memref<?xi32>) outs(%y "
            ": " +
            results +
            ") epilogue {\n^bb0(%g: f32, %u: f32):\n"
            "  %e = math.exp %g fastmath<afn> : f32\n"
            "  %1 = arith.divf %u, %e fastmath<afn> : f32\n"
            "  tile.yield %1 : f32\n} {layout = #moe.weight_layout<order = "
            "gate_up>, quantizes_input, " +
            (isGiven ? tensor : kGroup128)
                .getAttribute("input_quant", /*isDynamic=*/!isGiven) +
            (isGiven ? kChannel : kBlock)
                .getAttribute("weight_quant", /*isDynamic=*/false) +
            "config = #tile.sm90_gemm<" + blocks + ", block_k = 128>}");
  };
  for (std::string blocks : {"block_n = 32, block_m = [16], stages = 14",
                             "block_n = 32, block_m = [16, 32], stages = 9",
                             "block_n = 64, block_m = [8], stages = 5",
                             "block_n = 64, block_m = [8, 32], stages = 7",
                             "block_n = 128, block_m = [8, 16], stages = 5",
                             "block_n = 128, block_m = [8, 24], stages = 5"}) {
    SCOPED_TRACE(blocks);
    for (std::string element : {"bf16", "f16"})
      for (bool isGiven : {false, true})
        expectFits(quantizing(element, isGiven, blocks), "sm_90a");
  }
}

/// Long rows are promoted per k tile with row scales too; short rows allow
/// larger tiles.
TEST(PtxasLimits, ScalesOfRowsFitInRegisters) {
  for (bool isPaired : {false, true}) {
    for (std::string blockMs : {"112", "16, 32, 64, 112", "8, 32"})
      expectNoSpills(isPaired, 256, blockMs, "", 4096, kToken, kChannel);
    for (std::string blockMs : {"128", "16, 64, 128", "16, 32, 64, 128"})
      expectNoSpills(isPaired, 256, blockMs, ", no_swap_ab", 4096, kToken,
                     kChannel);
    expectNoSpills(isPaired, 128, "168", "", 4096, kToken, kChannel);
    for (std::string blockMs : {"160", "16, 32, 64, 128", "8, 32"})
      expectNoSpills(isPaired, 256, blockMs, "", 2048, kToken, kChannel);
    expectNoSpills(isPaired, 64, "64", "", 2048, kToken, kChannel);
    // int8 sums become f32 and are never promoted.
    Format token = kToken.with("i8"), channel = kChannel.with("i8");
    for (std::string blockMs : {"160", "8, 16, 24, 32, 64, 128", "8, 32"})
      expectNoSpills(isPaired, 256, blockMs, "", 4096, token, channel);
    expectNoSpills(isPaired, 128, "256", "", 4096, token, channel);
    expectNoSpills(isPaired, 64, "64", "", 4096, token, channel);
  }
}

/// Clusters tell their tiles by an instruction that PTX 8.0 lacks.
TEST(PtxasLimits, ClustersAssemble) {
  Assembled assembled = expectFits(
      kernel({"%x: memref<?x512xbf16>", "%w: memref<8x256x512xbf16>",
              "%o: memref<9xi32>", "%s: memref<?xi32>",
              "%y: memref<?x256xbf16>", "%c: memref<1xi32>"},
             "tile.gemm tokens(%t) ins(%x, %w : memref<?x512xbf16>, "
             "memref<8x256x512xbf16>) offsets(%o : memref<9xi32>) source(%s : "
             "memref<?xi32>) schedule(tile_counter = %c : memref<1xi32>) "
             "outs(%y : memref<?x256xbf16>) {config = #tile.sm90_gemm<block_m "
             "= [64, 128], block_n = 128, block_k = 64, stages = 4, "
             "dynamic_scheduler, multicast_weights>}"),
      "sm_90a");
  EXPECT_NE(assembled.ptx.find("st.async"), std::string::npos);
}

/// Candidates stay within narrower limits, at which a long epilogue fits.
TEST(PtxasLimits, CandidatesDoNotSpill) {
  std::string highest = std::to_string(ptxas::kCopiedRows);
  for (bool isPaired : {false, true})
    expectFits(gemm("bf16", 512, 768, true, isPaired ? "gate_up" : "",
                    "sm90_gemm<block_k = 64, stages = 3, block_m = [8, " +
                        highest +
                        "], block_n = " + (isPaired ? "64>" : "128>")),
               "sm_90a");
  static_assert(ptxas::kPromotedBlockMs == 2);
  for (bool isPaired : {false, true}) {
    // A consumer has one block with 128 weight rows and two with 256, and as
    // many sums per k tile.
    for (int64_t blocks : {1, 2}) {
      int64_t blockM = 2 * ptxas::kPromotedSums / (blocks + 1) / 8 * 8;
      expectNoSpills(isPaired, 128 * blocks, "16, " + std::to_string(blockM),
                     "", 2048, kGroup128, kBlock);
    }
    // The epilogue of gate and up has 18 lines.
    expectNoSpills(isPaired, 256, "16, 32, 64, 128", ", no_swap_ab", 2048,
                   kGroup128, kBlock);
  }
}

/// A grouped gemm with four adapters as further k tiles: with gate and up and
/// scattered rows, or with rows by tensor maps.
std::string withAdapters(bool isPaired, int64_t rank,
                         const std::string &blockM) {
  std::string x = "memref<?x768xbf16>", y = "memref<?x512xbf16>";
  std::string w =
      isPaired ? "memref<6x1024x768xbf16>" : "memref<6x512x768xbf16>";
  std::string s = "memref<?x" + std::to_string((isPaired ? 2 : 1) * rank) +
                  "xbf16>",
              b = "memref<4x6x512x" + std::to_string(rank) + "xbf16>";
  std::string text = "tile.kernel @k(%x: " + x + ", %w: " + w +
                     ", %o: memref<7xi32>, %s: memref<?xi32>, %l: " + s +
                     ", %i: memref<?x1xi32>, %b: " + b + ", %c: " + b +
                     ", %y: " + y + ", %t: i64) {\n";
  text += "tile.gemm tokens(%t) ins(%x, %w : " + x + ", " + w +
          ") offsets(%o : memref<7xi32>)";
  if (isPaired)
    text += " source(%s : memref<?xi32>)";
  text += " shrunk(%l : " + s + ") adapters(%i : memref<?x1xi32>) b(%b";
  text += isPaired ? ", %c : " + b + ", " + b : " : " + b;
  text += ") outs(%y : " + y + ") epilogue {\n";
  if (isPaired)
    text += "^bb0(%a: f32, %u: f32, %p: f32, %q: f32):\n"
            "  %1 = arith.addf %a, %p : f32\n  %2 = arith.addf %u, %q : f32\n"
            "  %3 = math.erf %1 : f32\n  %4 = arith.mulf %3, %2 : f32\n"
            "  tile.yield %4 : f32\n}";
  else
    text += "^bb0(%a: f32, %p: f32):\n  %1 = arith.addf %a, %p : f32\n"
            "  tile.yield %1 : f32\n}";
  text += " {config = #tile.sm90_gemm<block_k = 64, stages = 4, block_m = [" +
          blockM + "], block_n = " + (isPaired ? "128" : "256, map_rows") + ">";
  if (isPaired)
    text += ", layout = #moe.weight_layout<order = gate_up>";
  return text + "}\n  tile.return\n}\n";
}

TEST(PtxasLimits, AdaptersFitInRegisters) {
  std::string highest = std::to_string(ptxas::kAdapterRows);
  for (bool isPaired : {false, true})
    for (int64_t rank : {16, 64})
      for (const std::string &blockM :
           {highest, "120, 136, " + highest, std::string("128"),
            std::string("96, 112, 128"), std::string("8, 32")}) {
        SCOPED_TRACE(blockM + " of rank " + std::to_string(rank) +
                     (isPaired ? ", gate and up" : ""));
        expectFits(withAdapters(isPaired, rank, blockM), "sm_90a");
      }
}

/// Prepacked weights: their `#moe.quant` up to the packing, and bytes of a
/// unit's row, of quantized values and of scales with zero points.
struct FromRegisters {
  std::string quant, input;
  int64_t codeBytes, scaleBytes;
  /// Whether inputs are quantized values kept as bf16; and whether results of
  /// gate and up are too, with a given scale.
  bool areKept = false, quantizes = false;
};

const FromRegisters kMxfp4 = {"storage = f4E2M1FN, scale = f8E8M0FNU, "
                              "granularity = group, block = [1, 32]",
                              "bf16", 32, 2};

/// A grouped gemm with weights multiplied from registers, `n` weight rows per
/// CTA: weighted, as in the second gemm of the experts, or with gate and up, as
/// in the first.
std::string fromRegisters(const FromRegisters &format, bool isPaired,
                          bool isMapped, int64_t n, int64_t step,
                          const std::string &config) {
  constexpr int64_t packedTiles = 45;
  bool areBytes = format.input == "f8E4M3FN";
  bool areQuantized = areBytes || format.areKept;
  bool quantizes = isPaired && format.quantizes;
  std::string input = memrefOf("?x2880", format.input),
              result = memrefOf(isPaired ? "?x1440" : "?x2880",
                                areBytes ? "bf16" : format.input),
              rounded = memrefOf(
                  "6x2880x" + std::to_string(packedTiles * format.codeBytes),
                  "i8"),
              scales = memrefOf(
                  "6x2880x" + std::to_string(packedTiles * format.scaleBytes),
                  "i8");
  std::vector<std::string> arguments{
      "%x: " + input,        "%w: " + rounded,
      "%ws: " + scales,      "%ww: memref<6x2880xf32>",
      "%o: memref<7xi32>",   "%s: memref<?xi32>",
      "%r: memref<?x1xf32>", "%xs: memref<?x1xf32>",
      "%g: memref<1xf32>",   "%y: " + result};
  std::string phase =
      "tile.gemm tokens(%t) ins(%x, %w : " + input + ", " + rounded + ")" +
      (areQuantized ? " input_scale(%xs : memref<?x1xf32>)" : "") +
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
      std::string(areQuantized
                      ? "input_quant = #moe.quant<storage = f8E4M3FN, "
                        "scale = f32, granularity = token, dynamic = true"
                      : "") +
      (format.areKept ? ", packing = bf16" : "") + (areQuantized ? ">, " : "") +
      (quantizes ? "result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, "
                   "granularity = tensor, packing = bf16>, rounded_to = bf16, "
                 : "") +
      "weight_quant = #moe.quant<" + format.quant + ", packing = prepacked" +
      (areBytes                ? "_e4m3"
       : format.input == "f16" ? "_f16"
                               : "") +
      ", second_scale = f32>, strategy = #moe.strategy<prepack>, "
      "config = #tile.sm90_gemm<block_n = " +
      std::to_string(isPaired ? n / 2 : n) +
      ", block_k = " + std::to_string(step) + ", " + config +
      (isMapped ? ", map_rows>" : ">");
  if (isPaired)
    phase += ", layout = #moe.weight_layout<order = gate_up>";
  return kernel(arguments, phase + "}");
}

/// Weight rows and K of a step, values of BLOCK_M and stages.
struct Tile {
  int64_t n, step;
  std::string config;
};

/// As a first gemm, whose rows are copied, and as a second one, whose rows are
/// in order. Each format has one gemm of eight; all in the nightly run.
static void expectAllFit(ArrayRef<FromRegisters> formats,
                         ArrayRef<Tile> tiles) {
  bool runsAll = std::getenv("MOEC_ALL_CASES");
  for (const auto &[i, format] : llvm::enumerate(formats))
    for (const auto &[j, tile] : llvm::enumerate(tiles))
      for (bool isPaired : {false, true}) {
        if (!runsAll && (i + 2 * j + isPaired) % 8)
          continue;
        const auto &[n, step, config] = tile;
        SCOPED_TRACE(format.quant + ", " + format.input + ", " + config +
                     (isPaired ? ", gate and up" : ""));
        expectFits(fromRegisters(format, isPaired, /*isMapped=*/!isPaired, n,
                                 step, config),
                   "sm_90a");
      }
}

/// Registers hold a unit's fragments, the sums, and unpacked words of the next
/// unit; each of three consumers has fewer registers than each of two.
TEST(PtxasLimits, RegistersSufficeForThree) {
  const Tile cases[] = {
      {192, 320, "block_m = [8], stages = 5"},
      {192, 320, "block_m = [8, 16, 48], stages = 3"},
      {192, 192, "block_m = [16, 32, 48], stages = 4"},
      {192, 192, "block_m = [96], stages = 3"},
      {128, 192, "block_m = [120, 128, 144, 160], stages = 3"},
      {256, 64, "block_m = [64], stages = 6"}};
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

/// Packed tiles of 8 bits have two words for each product, and scales that are
/// sums of two numbers. A BLOCK_M has code of its own, and the last ones spill.
TEST(PtxasLimits, PackedTilesOfBytesFitInRegisters) {
  static_assert(ptxas::kBlockMsOfTwo == 5 && ptxas::kBlockMsOfManySums == 4 &&
                ptxas::kSumsOfFiveBlockMs == 64);
  const Tile cases[] = {
      {192, 192, "block_m = [8, 16, 48], stages = 3"},
      {128, 64, "block_m = [120, 128, 144, 160], stages = 3"},
      {128, 64, "block_m = [16, 32, 64, 96, 128], stages = 4"},
      {256, 64, "block_m = [16, 32, 64, 80], stages = 4"}};
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

/// Minima add one number per group to the two of its scale and the zero point;
/// the tables of a code book take eight registers.
TEST(PtxasLimits, MinimaAndBooksFitInRegisters) {
  const Tile cases[] = {
      {192, 192, "block_m = [8, 16, 48], stages = 3"},
      {192, 192, "block_m = [96], stages = 3"},
      {128, 64, "block_m = [120, 128, 144, 160], stages = 3"},
      {128, 64, "block_m = [16, 32, 64, 96, 128], stages = 4"},
      {256, 64, "block_m = [16, 32, 64, 80], stages = 4"}};
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

/// e2m1 for f16 takes as many registers as for bf16; minima for f16 in groups
/// of 16 have the most numbers per thread.
TEST(PtxasLimits, PackedTilesOfF16FitInRegisters) {
  const Tile cases[] = {
      {192, 192, "block_m = [8, 16, 48], stages = 3"},
      {128, 64, "block_m = [120, 128, 144, 160], stages = 3"},
      {128, 64, "block_m = [16, 32, 64, 96, 128], stages = 4"},
      {256, 64, "block_m = [16, 32, 64, 80], stages = 4"}};
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

/// With activations kept as bf16, registers also hold row scales, and for
/// quantized results the divisors.
TEST(PtxasLimits, DequantizedRowsFitInRegisters) {
  static_assert(ptxas::kBlockMsOfTwo - ptxas::kBlockMsOfRowScales == 4 &&
                ptxas::kBlockMsOfManySums - ptxas::kBlockMsOfRowScales == 3);
  const Tile cases[] = {{192, 192, "block_m = [8, 16, 48], stages = 3"},
                        {192, 64, "block_m = [96], stages = 3"},
                        {128, 64, "block_m = [128, 144, 160], stages = 3"},
                        {128, 64, "block_m = [32, 64, 96, 128], stages = 4"},
                        {256, 64, "block_m = [32, 64, 80], stages = 4"}};
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

/// 4-bit values that become e4m3 take fewer registers; sums of groups that
/// are apart take as many as the others.
TEST(PtxasLimits, PackedTilesOfE4M3FitInRegisters) {
  const FromRegisters mxfp4 = {"storage = f4E2M1FN, scale = f8E8M0FNU, "
                               "granularity = group, block = [1, 32]",
                               "f8E4M3FN", 32, 2};
  expectAllFit(mxfp4, {{192, 320, "block_m = [8, 16, 48], stages = 4"},
                       {192, 320, "block_m = [96], stages = 3"},
                       {128, 320, "block_m = [80, 128, 144, 160], stages = 3"},
                       {128, 64, "block_m = [16, 32, 64, 96, 128], stages = 4"},
                       {256, 64, "block_m = [16, 32, 64, 80], stages = 4"}});
  const FromRegisters promoted[] = {
      {"storage = i4, scale = bf16, granularity = group, block = [1, 64]",
       "f8E4M3FN", 32, 2},
      {"storage = i4, scale = f32, granularity = group, block = [1, 64]",
       "f8E4M3FN", 32, 4},
      {"storage = i4, scale = bf16, granularity = group, block = [1, 32]",
       "f8E4M3FN", 32, 4},
      {"storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = "
       "[1, 32]",
       "f8E4M3FN", 64, 2}};
  expectAllFit(promoted, {{192, 192, "block_m = [80], stages = 3"},
                          {192, 192, "block_m = [16, 48], stages = 4"},
                          {128, 192, "block_m = [64, 80], stages = 4"},
                          {256, 64, "block_m = [32, 48], stages = 4"}});
}

/// The CTAs of a cluster that split K: sums that are sent and added take no
/// registers beside those of the mainloops.
TEST(PtxasLimits, SharesOfKFitInRegisters) {
  for (bool isMapped : {false, true})
    for (std::string config :
         {"block_m = [8], block_n = 256, stages = 4, split_k = 8",
          "block_m = [16, 24], block_n = 256, stages = 4, split_k = 2",
          "block_m = [8, 32], block_n = 256, stages = 4, split_k = 2",
          "block_m = [8, 32], block_n = 128, stages = 4, split_k = 4",
          "block_m = [16], block_n = 64, stages = 4, split_k = 8",
          "block_m = [16, 32], block_n = 64, stages = 4, split_k = 4"}) {
      SCOPED_TRACE(config);
      Assembled assembled = expectFits(weighted(isMapped, config), "sm_90a");
      EXPECT_NE(assembled.ptx.find(".v4.b32 [%rd"), std::string::npos);
    }
  for (bool isPaired : {false, true})
    for (auto [rows, blockMs] : {std::pair(256, "8"),
                                 {256, "8, 32"},
                                 {256, "16"},
                                 {128, "8, 16"},
                                 {128, "8, 32"},
                                 {64, "16"},
                                 {64, "16, 32"}})
      expectNoSpills(isPaired, rows, blockMs, ", split_k = 2", 2048, kGroup128,
                     kBlock);
  expectAllFit({kMxfp4},
               {{192, 192, "block_m = [8, 16, 32], stages = 3, split_k = 2"},
                {128, 192, "block_m = [8], stages = 4, split_k = 8"},
                {256, 64, "block_m = [8, 32], stages = 4, split_k = 4"}});
}

//===----------------------------------------------------------------------===//
// sm90.gemm: lines
//===----------------------------------------------------------------------===//

/// Lines of all epilogues.
int64_t getLines(const std::string &text) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect>();
  auto module = parseSourceString<ModuleOp>(text, &context);
  int64_t lines = 0;
  module->walk([&](tile::GemmOp op) {
    lines = sm90::estimateLines(op, sm90::GemmShape(op, op.getConfigAttr()));
  });
  return lines;
}

/// Nearly as many lines as a candidate may have.
TEST(PtxasLimits, EpiloguesAssembleQuickly) {
  for (const std::string &text :
       {gemm("bf16", 512, 768, true, "gate_up",
             "sm90_gemm<block_k = 64, stages = 3, block_m = [8, 24, 48, "
             "112, 128], block_n = 128>"),
        // Few lines, which take ptxas long.
        weighted(true, "block_m = [256], block_n = 128, stages = 4")}) {
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

/// f32 FMAs are chosen with half as many sums (NvptxMatrix), since they spill
/// with all of them.
TEST(PtxasLimits, SumsNextToFragments) {
  // Sums of a thread for this number of rows, in tiles of 128 weight rows.
  auto getConfig = [](int64_t sums, bool isPaired) {
    return "sm80_gemm<block_m = " + std::to_string(sums) +
           ", block_n = " + (isPaired ? "64" : "128") +
           ", block_k = 32, vector_width = 4>";
  };
  const int64_t most = ptxas::getMaxFragmentSums(/*hasColumnScales=*/false),
                fewer = ptxas::getMaxFragmentSums(/*hasColumnScales=*/true);
  for (bool isPaired : {false, true}) {
    SCOPED_TRACE(isPaired);
    std::string order = isPaired ? "gate_up" : "";
    expectFitsAnywhere(
        gemm("bf16", 768, 2048, true, order, getConfig(most, isPaired)));
    // Half of the sums are those of a part of a k tile with its own scales.
    expectFitsAnywhere(scaled(2048, 768, true, order, "bf16", kPlain,
                              kTallBlock, "bf16",
                              getConfig(most / 2, isPaired)));
    expectFitsAnywhere(scaled(2048, 768, true, order, "bf16", kPlain, kGroup32,
                              "bf16", getConfig(fewer / 2, isPaired)));
  }
}

/// The most sums of a candidate: more sums in narrower or smaller tiles spill.
TEST(PtxasLimits, SumsNextToChunks) {
  for (std::string dtype : {"f32", "bf16"})
    for (int64_t rows : {1, 4, 8}) {
      int64_t columns = rows == 8 ? ptxas::kGemvSums / rows : 1;
      std::string config = "gpu_gemv<block_m = " + std::to_string(rows) +
                           ", block_n = " + std::to_string(columns) +
                           ", block_k = 0, threads = 512>";
      SCOPED_TRACE(config);
      expectFitsAnywhere(gemm(dtype, 16384, 256, false, "", config));
    }
  // With few rows and columns, several k tiles are in flight.
  for (std::string tile :
       {"block_m = 16, block_n = 8", "block_m = 32, block_n = 32",
        "block_m = 32, block_n = 64"}) {
    SCOPED_TRACE(tile);
    expectFitsAnywhere(
        gemm("bf16", 16384, 256, false, "",
             "gpu_gemv<" + tile + ", block_k = 32, threads = 128>"));
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
                "tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x8xi32>, "
                "memref<?x8xf32>) counts(%c : " +
                    counts + ") outs(%o, %p, %s, %r : " + offsets +
                    ", memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>) "
                    "{num_experts = " +
                    number + " : i64, chunk_tokens = 16 : i64}");
}

/// Sizes of rows and adapters.
struct AdapterSizes {
  int64_t width, rank, matrices, groups, adapters;
};

/// The first products of adapters, or both (`isUpdate`), for 1536 columns.
std::string adapterParts(AdapterSizes sizes, bool isUpdate,
                         const std::string &config) {
  auto [width, rank, matrices, groups, adapters] = sizes;
  std::string pair = std::to_string(adapters) + "x" + std::to_string(groups);
  std::string r = std::to_string(rank), w = std::to_string(width);
  std::string x = "memref<?x" + w + "xbf16>",
              a = "memref<" + pair + "x" + r + "x" + w + "xbf16>",
              c = "memref<" + pair + "x1536x" + r + "xbf16>",
              o = "memref<" + std::to_string(groups + 1) + "xi32>";
  std::vector<std::string> results;
  if (isUpdate)
    results.assign(matrices, "memref<?x1536xf32>");
  else
    results = {"memref<?x" + std::to_string(matrices * rank) + "xbf16>",
               "memref<?x1xi32>"};
  std::vector<std::string> arguments{"%x: " + x};
  auto list = [&](const std::string &name,
                  const std::vector<std::string> &types) {
    std::string names, all;
    for (auto [i, type] : llvm::enumerate(types)) {
      std::string comma = i ? ", " : "", own = name + std::to_string(i);
      names += comma + own;
      all += comma + type;
      arguments.push_back(own + ": " + type);
    }
    return "(" + names + " : " + all + ")";
  };
  std::string phase = isUpdate ? "tile.lora_update" : "tile.lora_shrink";
  phase += " gather tokens(%t) ins(%x : " + x + ") a" +
           list("%a", std::vector<std::string>(matrices, a));
  if (isUpdate)
    phase += " b" + list("%b", std::vector<std::string>(matrices, c));
  arguments.insert(arguments.end(),
                   {"%o: " + o, "%s: memref<?xi32>", "%i: memref<?xi32>"});
  phase += " offsets(%o : " + o +
           ") source(%s : memref<?xi32>) "
           "adapter_ids(%i : memref<?xi32>) outs" +
           list("%y", results) + " {top_k = 8 : i64, config = #tile." + config +
           "}";
  return kernel(arguments, phase);
}

TEST(PtxasLimits, PartsFitInRegisters) {
  // Rows of whole rounds of the warps, and others; ranks of whole tiles, and
  // others; more groups and adapters than lanes.
  for (AdapterSizes sizes : {AdapterSizes{2048, 16, 2, 128, 4},
                             {2880, 12, 2, 32, 3},
                             {7168, 64, 2, 256, 64},
                             {768, 16, 1, 512, 700},
                             {200, 20, 1, 8, 1}}) {
    SCOPED_TRACE(sizes.width);
    for (const char *tiles : {"1", "2", "3", "4"})
      expectFitsAnywhere(adapterParts(
          sizes, /*isUpdate=*/false,
          std::string("gpu_lora_parts<warps = 8, column_tiles = ") + tiles +
              ">"));
    expectFitsAnywhere(
        adapterParts(sizes, /*isUpdate=*/true, "gpu_lora_update<warps = 8>"));
  }
}

TEST(PtxasLimits, RoutingFits) {
  // A warp holds the keys of a row.
  for (std::string routing :
       {"10, softmax = selected", "32, softmax = all, renormalize = true",
        "8, num_groups = 8, topk_groups = 4, group_score = top2_sum, "
        "renormalize = true"})
    expectFitsAnywhere(topK(32 * ptxas::kKeysPerLane, routing));
  // Counts are loaded one by one, or four at once if there are at least as many
  // experts as threads.
  for (int64_t experts : {126, 128, 512})
    expectFitsAnywhere(rankCounted(experts));
}

} // namespace
