//===- NvptxTest.cpp - every op and dtype through ptxas ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// That PTX is made, and assembles without spills and complaints. What the code
// computes is checked by test/Numeric, in a simulator and on a GPU.

#include "NvptxTesting.h"
#include "PtxasSeconds.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "moec/PtxSim/Simulator.h"
#include "moec/Schedules/PtxasLimits.h"
#include "moec/Support/Parts.h"
#include "moec/Target/NVPTX.h"
#include "llvm/ADT/bit.h"
#include "gtest/gtest.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

using namespace mlir;
using namespace moec;
using namespace moec::test;

namespace {

struct Case {
  std::string name, text;
  std::vector<std::string> chips = {"sm_80", "sm_90a"};
};

void PrintTo(const Case &test, std::ostream *os) { *os << test.name; }

//===----------------------------------------------------------------------===//
// The matrix
//===----------------------------------------------------------------------===//

std::string rank(int64_t experts, int64_t local, const std::string &attributes,
                 bool hasValid) {
  std::string offsets = memrefOf(std::to_string(local + 1), "i32");
  std::vector<std::string> arguments{"%i: memref<?x8xi32>",
                                     "%w: memref<?x8xf32>"};
  if (hasValid)
    arguments.push_back("%v: memref<1xi32>");
  arguments.insert(arguments.end(),
                   {"%o: " + offsets, "%p: memref<?x8xi32>",
                    "%s: memref<?xi32>", "%r: memref<?x1xf32>"});
  return kernel(
      arguments,
      std::string(
          "tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x8xi32>, "
          "memref<?x8xf32>)") +
          (hasValid ? " num_valid_tokens(%v : memref<1xi32>)" : "") +
          " outs(%o, %p, %s, %r : " + offsets +
          ", memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>) "
          "{num_experts = " +
          std::to_string(experts) + " : i64" + attributes + "}");
}

std::string rowMap(const std::string &dtype, int64_t columns) {
  std::string x = memrefOf("?x" + std::to_string(columns), dtype);
  return kernel({"%x: " + x, "%r: memref<?x1xf32>", "%y: " + x},
                "tile.row_map tokens(%t) ins(%x : " + x +
                    ") rows(%r : memref<?x1xf32>) outs(%y : " + x +
                    ") {\n^bb0(%a: f32, %b: f32):\n"
                    "  %1 = arith.mulf %a, %b : f32\n  tile.yield %1 : f32\n}");
}

std::string gatherReduce(const std::string &dtype, int64_t columns,
                         const std::string &result) {
  std::string n = "?x" + std::to_string(columns);
  std::string x = memrefOf(n, dtype), y = memrefOf(n, result);
  return kernel(
      {"%x: " + x, "%p: memref<?x4xi32>", "%h: " + x, "%w: memref<?x4xf32>",
       "%a: " + x, "%v: memref<1xi32>", "%y: " + y},
      "tile.gather_reduce tokens(%t) ins(%x, %p : " + x +
          ", memref<?x4xi32>) identity(%h, %w : " + x +
          ", memref<?x4xf32>) addend(%a : " + x +
          ") num_valid_tokens(%v : memref<1xi32>) outs(%y : " + y + ")");
}

std::string quantize(const std::string &dtype, int64_t columns, bool hasOffsets,
                     bool areRows = false) {
  std::string n = "?x" + std::to_string(columns);
  std::string x = memrefOf(n, dtype), q = memrefOf(n, "f8E4M3FN");
  int64_t scales = areRows ? 1 : (columns + 127) / 128;
  std::string s = memrefOf("?x" + std::to_string(scales), "f32");
  std::vector<std::string> arguments{"%x: " + x};
  if (hasOffsets)
    arguments.push_back("%o: memref<7xi32>");
  arguments.push_back("%q: " + q);
  arguments.push_back("%s: " + s);
  return kernel(
      arguments,
      "tile.quantize <storage = f8E4M3FN, scale = f32, granularity = " +
          std::string(areRows ? "token" : "group, block = [1, 128]") +
          ", dynamic = true> tokens(%t) ins(%x : " + x +
          (hasOffsets ? ") offsets(%o : memref<7xi32>" : "") +
          ") outs(%q, %s : " + q + ", " + s + ")" +
          (hasOffsets ? " {top_k = 8 : i64}" : ""));
}

/// Exchanges of DeepSeek-V3's rows between ranks with whole experts. With
/// `makes` the kernel computes its input itself: sums of a token's experts, for
/// half of the columns if `isChunk`; for a gather, quantized rows to results,
/// with one scale per row if `type` is given, and this number of chunks per
/// thread.
std::string exchange(const std::string &kind, int64_t ranks, bool makes,
                     bool isChunk, const std::string &type = "",
                     int64_t chunks = 0) {
  bool gathers = kind == "all_gather", sums = kind == "all_reduce";
  std::vector<std::string> shapes{"?x7168xbf16"};
  if (gathers)
    shapes = {"?x7168x" + (type.empty() ? "f8E4M3FN" : type),
              type.empty() ? "?x56xf32" : "?x1xf32", "?x8xi32", "?x8xf32"};
  std::vector<std::string> arguments;
  std::string ins, outs, types, heaps, heapTypes;
  auto add = [&](std::string &names, const std::string &name,
                 const std::string &type) {
    names += (names.empty() ? "" : ", ") + name;
    arguments.push_back(name + ": " + type);
  };
  for (auto [i, shape] : llvm::enumerate(shapes))
    add(ins, "%in" + std::to_string(i), "memref<" + shape + ">");
  for (auto [i, shape] : llvm::enumerate(shapes))
    add(outs, "%out" + std::to_string(i), "memref<" + shape + ">");
  for (const std::string &shape : shapes)
    types += (types.empty() ? "memref<" : ", memref<") + shape + ">";
  std::string routed;
  if (!sums) {
    std::string ids, idTypes = "memref<?x8xi32>";
    add(ids, "%mine", idTypes);
    if (!gathers) {
      add(ids, "%all", idTypes);
      idTypes += ", " + idTypes;
    }
    arguments.push_back("%destinations: memref<256xi32>");
    routed = " destinations(%destinations : memref<256xi32>) ids(" + ids +
             " : " + idTypes + ") routed [0" + (gathers ? ", 1]" : "]");
  }
  if (makes && gathers) {
    arguments.push_back("%rows: memref<?x7168xbf16>");
    routed += " unquantized(%rows : memref<?x7168xbf16>) quantized [0, 1] by "
              "<storage = " +
              (type.empty() ? "f8E4M3FN" : type) +
              ", scale = f32, granularity = " +
              (type.empty() ? "group, block = [1, 128]" : "token") +
              ", dynamic = true>";
  } else if (makes) {
    arguments.insert(arguments.end(),
                     {"%rows: memref<?x7168xbf16>", "%slots: memref<?x8xi32>"});
    routed += " sums_of(%rows, %slots : memref<?x7168xbf16>, memref<?x8xi32>)";
    // A shared expert's sum, over a group of ranks with its parts.
    if (sums) {
      arguments.push_back("%shared: memref<?x7168xbf16>");
      routed += " addend(%shared : memref<?x7168xbf16>)";
    }
  }
  for (int64_t i = 0; i < ranks; ++i) {
    add(heaps, "%heap" + std::to_string(i), "memref<?xi64>");
    heapTypes += i > 0 ? ", memref<?xi64>" : "memref<?xi64>";
  }
  if (isChunk)
    arguments.push_back("%first: i64");
  return kernel(
      arguments,
      "tile.exchange " + kind + (makes && gathers ? " to_results" : "") +
          " tokens(%t) ins(" + ins + " : " + types + ") outs(" + outs + " : " +
          types + ")" + routed + " heaps(" + heaps + " : " + heapTypes + ")" +
          (isChunk ? " first_column(%first) {num_columns = 3584 : i64}" : "") +
          (chunks > 0
               ? " {config = #tile.gpu_exchange<ctas = 64, threads = 512, "
                 "chunks = " +
                     std::to_string(chunks) + ", least_rows = 256>}"
               : ""));
}

/// The kernels of an all-to-all of DeepSeek-V3's rows between this number of
/// ranks.
std::vector<Case> makeAllToAll(int64_t ranks) {
  std::string suffix = "_" + std::to_string(ranks);
  std::string counts = "memref<" + std::to_string(ranks) + "xi32>";
  std::string routes =
      " by(%p, %c, %h : memref<?xi32>, " + counts + ", memref<3xi64>)";
  std::vector<std::string> routed{"%p: memref<?xi32>", "%c: " + counts,
                                  "%h: memref<3xi64>"};
  std::vector<std::string> packed,
      summed{"%x: memref<?x7168xbf16>", "%q: memref<?x7168xbf16>",
             "%y: memref<?x7168xbf16>"};
  std::string types, names[3];
  for (const char *shape :
       {"?x7168xf8E4M3FN", "?x56xf32", "?x8xi32", "?x8xf32", "?x7168xbf16"}) {
    std::string type = "memref<" + std::string(shape) + ">";
    types += (types.empty() ? "" : ", ") + type;
    for (int i = 0; i < 3; ++i) {
      std::string name = "%r" + std::to_string(packed.size());
      names[i] += (names[i].empty() ? "" : ", ") + name;
      packed.push_back(name.append(": ").append(type));
    }
  }
  packed.insert(packed.end(), routed.begin(), routed.end());
  summed.insert(summed.end(), routed.begin(), routed.end());
  return {
      {"route_rows" + suffix,
       kernel({"%i: memref<?x8xi32>", "%o: memref<256xi32>",
               "%v: memref<1xi32>", "%p: memref<?xi32>", "%c: " + counts},
              "tile.route_rows tokens(%t) ids(%i : memref<?x8xi32>) "
              "destinations(%o "
              ": memref<256xi32>) num_valid_tokens(%v : memref<1xi32>) "
              "outs(%p, %c : memref<?xi32>, " +
                  counts + ")")},
      {"pack_rows" + suffix,
       kernel(packed, "tile.pack_rows tokens(%t) ins(" + names[0] + " : " +
                          types + ") outs(" + names[1] + " : " + types +
                          ") packed(" + names[2] + " : " + types + ")" +
                          routes)},
      {"sum_packed_rows" + suffix,
       kernel(summed, "tile.sum_packed_rows tokens(%t) input(%x : "
                      "memref<?x7168xbf16>) packed(%q : memref<?x7168xbf16>)" +
                          routes + " outs(%y : memref<?x7168xbf16>)")}};
}

std::vector<Case> makeMatrix() {
  std::vector<Case> cases;
  for (std::string dtype : {"f32", "bf16", "f16"}) {
    cases.push_back({dtype + "_quantize", quantize(dtype, 2048, false)});
    cases.push_back({dtype + "_quantize_rows", quantize(dtype, 760, true)});
    cases.push_back({dtype + "_quantize_odd", quantize(dtype, 37, true)});
    cases.push_back(
        {dtype + "_quantize_token", quantize(dtype, 7168, true, true)});
    cases.push_back({dtype + "_of_e4m3", scaled(768, 2048, true, "", dtype)});
  }
  cases.push_back({"e4m3_dense", scaled(2048, 256, false, "", "f32")});
  for (std::string order : {"gate_up", "up_gate", "interleaved"})
    cases.push_back({"e4m3_" + order, scaled(2048, 768, true, order, "bf16")});
  // Partial blocks; rows that are not aligned to 16 bytes.
  cases.push_back({"e4m3_tails", scaled(720, 328, true, "gate_up", "bf16")});
  cases.push_back({"e4m3_odd", scaled(511, 37, true, "up_gate", "bf16")});
  cases.push_back({"e4m3_rows", scaled(4096, 768, true, "gate_up", "bf16",
                                       kToken, kChannel)});
  cases.push_back({"e4m3_rows_odd",
                   scaled(511, 37, true, "up_gate", "bf16", kToken, kChannel)});
  cases.push_back(
      {"int8_rows", scaled(4096, 768, true, "gate_up", "bf16",
                           kToken.with("i8"), kChannel.with("i8"))});
  cases.push_back({"e4m3_channels", scaled(2048, 768, true, "interleaved",
                                           "bf16", kGroup128, kChannel)});
  cases.push_back({"e4m3_blocks", scaled(2048, 768, true, "gate_up", "bf16",
                                         kGroup128, kSmallBlock)});
  for (std::string dtype : {"f32", "bf16", "f16"}) {
    cases.push_back(
        {dtype + "_with_channels",
         scaled(2048, 768, true, "gate_up", dtype, kPlain, kChannel, dtype)});
    cases.push_back(
        {dtype + "_with_groups",
         scaled(2048, 768, true, "gate_up", dtype, kPlain, kGroup32, dtype)});
    cases.push_back({dtype + "_with_tokens", scaled(2048, 256, false, "", dtype,
                                                    kToken, kPlain, dtype)});
  }
  for (std::string dtype : {"f32", "bf16", "f16"}) {
    cases.push_back({dtype + "_dense", gemm(dtype, 2048, 256, false, "")});
    cases.push_back({dtype + "_grouped", gemm(dtype, 768, 2048, true, "")});
    for (std::string order : {"gate_up", "up_gate", "interleaved"})
      cases.push_back(
          {dtype + "_" + order, gemm(dtype, 512, 768, true, order)});
    // Rows that are not aligned to 16 bytes, and single columns.
    cases.push_back({dtype + "_odd", gemm(dtype, 511, 37, true, "gate_up")});
    cases.push_back({dtype + "_column", gemm(dtype, 72, 1, false, "")});
    for (int64_t columns : {4096, 37}) {
      std::string name = dtype + "_" + std::to_string(columns);
      cases.push_back({name + "_row_map", rowMap(dtype, columns)});
      cases.push_back(
          {name + "_gather_reduce", gatherReduce(dtype, columns, dtype)});
    }
  }
  cases.push_back({"softmax", topK(128, "8, softmax = all, "
                                        "renormalize = true")});
  cases.push_back(
      {"biased_groups",
       topK(256,
            "8, num_groups = 8, topk_groups = 4, group_score = top2_sum, "
            "renormalize = true, renormalize_epsilon = 1.0e-20 : f32, "
            "scale = 2.5 : f32",
            " selection_bias(%b : memref<256xf32>)"
            " num_valid_tokens(%v : memref<1xi32>)",
            {"%b: memref<256xf32>", "%v: memref<1xi32>"})});
  cases.push_back(
      {"per_group", topK(60, "6, select = per_group, num_groups = 3")});
  cases.push_back({"sparsemixer", topK(16, "2, select = sparsemixer, "
                                           "nonfinite = neg_inf")});
  cases.push_back({"many", topK(512, "40, softmax = selected")});
  cases.push_back(
      {"hash", topK(64, "4, select = hash",
                    " input_ids(%n : memref<?xi32>)"
                    " hash_table(%h : memref<100x4xi32>)",
                    {"%n: memref<?xi32>", "%h: memref<100x4xi32>"})});
  cases.push_back({"rank", rank(128, 128, "", false)});
  cases.push_back(
      {"rank_local", rank(128, 3,
                          ", num_zero_experts = 2 : i64, local_experts = "
                          "array<i64: 5, 0, 127>",
                          true)});
  cases.push_back({"rank_many", rank(4096, 4096, "", false)});
  // A tile that does not fit into shared memory.
  cases.push_back({"rank_rounds", rank(20000, 20000, "", true)});
  cases.push_back({"rank_rounds_local",
                   rank(
                       8192, 6000,
                       ", local_experts = array<i64" +
                           [] {
                             std::string list;
                             for (int i = 0; i < 6000; ++i)
                               list +=
                                   (i ? ", " : ": ") + std::to_string(8191 - i);
                             return list + ">";
                           }(),
                       false)});
  cases.push_back({"long_softmax", topK(100000, "8, softmax = all, "
                                                "renormalize = true")});
  cases.push_back(
      {"long_groups",
       topK(9999,
            "8, num_groups = 99, topk_groups = 4, group_score = top2_sum, "
            "renormalize = true, scale = 2.5 : f32",
            " selection_bias(%b : memref<9999xf32>)"
            " expert_scale(%e : memref<9999xf32>)"
            " num_valid_tokens(%v : memref<1xi32>)",
            {"%b: memref<9999xf32>", "%e: memref<9999xf32>",
             "%v: memref<1xi32>"})});
  cases.push_back(
      {"long_per_group", topK(9000, "6, select = per_group, num_groups = 3, "
                                    "softmax = selected")});
  cases.push_back({"long_sparsemixer", topK(8000, "2, select = sparsemixer, "
                                                  "nonfinite = neg_inf")});
  cases.push_back(
      {"long_hash", topK(7000, "4, softmax = all, select = hash",
                         " input_ids(%n : memref<?xi32>)"
                         " hash_table(%h : memref<100x4xi32>)",
                         {"%n: memref<?xi32>", "%h: memref<100x4xi32>"})});
  for (const char *kind : {"all_gather", "reduce_scatter", "all_reduce"})
    for (int64_t ranks : {2, 4, 8, 16})
      for (bool makes : {false, true}) {
        bool gathers = kind == std::string("all_gather");
        for (bool isChunk : {false, true})
          if ((makes && !gathers) || !isChunk)
            cases.push_back({kind + ("_" + std::to_string(ranks)) +
                                 (!makes    ? ""
                                  : gathers ? "_of_codes"
                                            : "_of_sums") +
                                 (isChunk ? "_in_chunks" : ""),
                             exchange(kind, ranks, makes, isChunk)});
      }
  for (int64_t ranks : {2, 72})
    for (const Case &each : makeAllToAll(ranks))
      cases.push_back(each);
  // Instructions make e4m3 of whole rows, or a launch does. A change has every
  // third case: each number of ranks and of chunks with either type.
  const bool runsAll = std::getenv("MOEC_ALL_CASES");
  for (int64_t ranks : {2, 3, 4, 8, 16})
    for (int64_t chunks : {1, 2, 4})
      for (bool isFloat : {true, false}) {
        if (!runsAll && (ranks + chunks + !isFloat) % 3)
          continue;
        Case rows{"all_gather_" + std::to_string(ranks) + "_of_rows_by_" +
                      std::to_string(chunks) +
                      (isFloat ? "_of_e4m3" : "_of_int8"),
                  exchange("all_gather", ranks, true, false,
                           isFloat ? "f8E4M3FN" : "i8", chunks)};
        if (isFloat)
          rows.chips = {"sm_90a"};
        cases.push_back(rows);
      }
  cases.push_back({"most_slots", topK(2048, "1024, softmax = selected, "
                                            "renormalize = true")});
  cases.push_back({"many_slots", topK(2048, "2048, softmax = selected, "
                                            "renormalize = true")});
  // One target for each, by Thue and Morse; every night all.
  if (!runsAll)
    for (size_t i = 0; i < cases.size(); ++i)
      cases[i].chips = {
          cases[i].chips[llvm::popcount(i) % cases[i].chips.size()]};
  return cases;
}

class NvptxMatrix : public testing::TestWithParam<Case> {};

TEST_P(NvptxMatrix, Assembles) {
  for (const std::string &chip : GetParam().chips) {
    SCOPED_TRACE(chip);
    Compilation compiled(GetParam().text, chip);
    ASSERT_EQ(compiled.errors, "");
    ASSERT_NE(compiled.ptx.find(".visible .entry kernel("), std::string::npos);
    EXPECT_NE(compiled.ptx.find(".target " + chip), std::string::npos);
    // The simulator knows every form of instruction.
    ptx::Simulator simulator;
    auto loaded = simulator.load(compiled.ptx, "kernel.ptx");
    ASSERT_TRUE(loaded) << loaded.status().message();
    auto assembled = assemble(compiled.ptx, chip);
    ASSERT_TRUE(bool(assembled)) << llvm::toString(assembled.takeError());
    EXPECT_EQ(assembled->cubin.substr(1, 3), "ELF");
    EXPECT_TRUE(assembled->complaints.empty()) << assembled->complaints.front();
    ASSERT_EQ(assembled->kernels.size(), 1u);
    const KernelReport &report = assembled->kernels.front();
    EXPECT_EQ(report.name, "kernel");
    EXPECT_EQ(report.stackBytes, 0);
    EXPECT_EQ(report.spillStoreBytes, 0);
    EXPECT_EQ(report.spillLoadBytes, 0);
    EXPECT_GT(report.registers, 0);
    EXPECT_LE(report.registers, kRegistersPerThread);
    EXPECT_LE(report.sharedBytes, 48 * 1024);
    EXPECT_LT(getPtxasSeconds(compiled.ptx, chip, assembled->cpuSeconds),
              ptxas::kMaxSeconds);
  }
}

INSTANTIATE_TEST_SUITE_P(Nvptx, NvptxMatrix, testing::ValuesIn(makeMatrix()),
                         [](const testing::TestParamInfo<Case> &info) {
                           return info.param.name;
                         });

//===----------------------------------------------------------------------===//
// What PTX promises
//===----------------------------------------------------------------------===//

TEST(NvptxTest, ArithmeticIsNotContracted) {
  for (const char *dtype : {"bf16", "f32"}) {
    Compilation compiled(gemm(dtype, 512, 768, true, "gate_up"), "sm_90a");
    ASSERT_EQ(compiled.errors, "");
    EXPECT_NE(compiled.ptx.find("mul.rn.f32"), std::string::npos);
    for (const char *loose : {"mul.f32", "add.f32"})
      EXPECT_EQ(compiled.ptx.find(loose), std::string::npos) << loose;
    // Only values that are then rounded to 16 bits may be approximate and flush
    // subnormals.
    llvm::StringRef ptx(compiled.ptx);
    EXPECT_EQ(ptx.contains(".approx"), dtype == llvm::StringRef("bf16"));
    EXPECT_EQ(ptx.count(".ftz"), ptx.count(".approx.ftz"));
  }
}

TEST(NvptxTest, KernelsTakeOneSlotPerArgument) {
  Compilation compiled(rowMap("bf16", 64), "sm_80");
  ASSERT_EQ(compiled.errors, "");
  for (int i = 0; i < 4; ++i)
    EXPECT_NE(compiled.ptx.find("kernel_param_" + std::to_string(i)),
              std::string::npos);
  EXPECT_EQ(compiled.ptx.find("kernel_param_4"), std::string::npos);
  EXPECT_NE(compiled.ptx.find(".reqntid 32"), std::string::npos);
}

TEST(NvptxTest, LaterArchitecturesNeedNoToolkit) {
  Compilation compiled(rowMap("f16", 64), "sm_100a");
  EXPECT_EQ(compiled.errors, "");
  EXPECT_NE(compiled.ptx.find(".target sm_100a"), std::string::npos);
}

TEST(NvptxTest, RefusesAnUnknownGpu) {
  Compilation compiled(rowMap("f32", 64), "sm_77");
  EXPECT_NE(compiled.errors.find("target 'sm_77' is unknown"),
            std::string::npos)
      << compiled.errors;

  MLIRContext context;
  auto module = parseSourceString<ModuleOp>("module {}", &context);
  std::string errors;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    errors += diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(emitPTX(*module, {"gfx90a"})));
  EXPECT_NE(errors.find("unknown GPU 'gfx90a'"), std::string::npos) << errors;
}

//===----------------------------------------------------------------------===//
// ptxas
//===----------------------------------------------------------------------===//

TEST(AssembleTest, ReadsTheReport) {
  AssembledKernels report = parseAssemblerOutput(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
      "ptxas info    : Function properties for first\n"
      "    16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 1024 bytes smem\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async "
      "instructions are serialized\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 8 registers\n");
  ASSERT_EQ(report.kernels.size(), 2u);
  EXPECT_EQ(report.kernels[0].name, "first");
  EXPECT_EQ(report.kernels[0].stackBytes, 16);
  EXPECT_EQ(report.kernels[0].spillStoreBytes, 24);
  EXPECT_EQ(report.kernels[0].spillLoadBytes, 32);
  EXPECT_EQ(report.kernels[0].registers, 255);
  EXPECT_EQ(report.kernels[0].sharedBytes, 1024);
  EXPECT_EQ(report.kernels[1].registers, 8);
  EXPECT_EQ(report.kernels[1].sharedBytes, 0);
  ASSERT_EQ(report.complaints.size(), 1u);
  EXPECT_NE(report.complaints[0].find("C7510"), std::string::npos);
}

TEST(AssembleTest, SaysWhatPtxasSays) {
  auto assembled = assemble(".version 8.0\n.target sm_80\nnonsense\n", "sm_80");
  ASSERT_FALSE(bool(assembled));
  std::string message = llvm::toString(assembled.takeError());
  EXPECT_NE(message.find("failed"), std::string::npos);
  EXPECT_NE(message.find("line 3"), std::string::npos) << message;
}

TEST(AssembleTest, NamesAProgramThatIsMissing) {
  auto assembled = assemble("", "sm_80", {"/nonexistent/ptxas"});
  ASSERT_FALSE(bool(assembled));
  std::string message = llvm::toString(assembled.takeError());
  EXPECT_NE(message.find("/nonexistent/ptxas"), std::string::npos) << message;
}

/// A small shell script in place of ptxas.
std::string makeAssembler(const std::string &script) {
  std::string path =
      testing::TempDir() + "/moec-ptxas-" + std::to_string(getpid());
  std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
  chmod(path.c_str(), 0700);
  return path;
}

TEST(AssembleTest, SurvivesWhateverPtxasDoes) {
  struct {
    std::string script, message;
    double timeoutSeconds;
  } cases[] = {
      {"exec sleep 100", "was stopped because it did not end within 0.50 s",
       0.5},
      {"kill -9 $$", "was killed by signal 9", 60},
      {"echo not today; exit 1", "failed with exit code 1:\nnot today", 60},
      {"echo fine", "has written no cubin:\nfine", 60},
  };
  for (const auto &test : cases) {
    AssembleOptions options;
    options.ptxas = makeAssembler(test.script);
    options.timeoutSeconds = test.timeoutSeconds;
    auto assembled = assemble(".version 8.0\n", "sm_80", options);
    ASSERT_FALSE(bool(assembled));
    std::string message = llvm::toString(assembled.takeError());
    EXPECT_NE(message.find(test.message), std::string::npos) << message;
    std::remove(options.ptxas.c_str());
  }
}

TEST(AssembleTest, LeavesNoFiles) {
  char folder[] = "/tmp/moec-assemble-XXXXXX";
  ASSERT_TRUE(mkdtemp(folder));
  setenv("TMPDIR", folder, 1);
  auto bad = assemble("nonsense", "sm_80");
  auto good = assemble(".version 8.0\n.target sm_80\n.address_size 64\n"
                       ".visible .entry empty() { ret; }\n",
                       "sm_80");
  unsetenv("TMPDIR");
  EXPECT_FALSE(bool(bad));
  llvm::consumeError(bad.takeError());
  ASSERT_TRUE(bool(good)) << llvm::toString(good.takeError());
  ASSERT_EQ(good->kernels.size(), 1u);
  EXPECT_GT(good->cpuSeconds, 0);
  EXPECT_EQ(rmdir(folder), 0) << "something was left in the folder";
}

} // namespace
