//===- NvptxTest.cpp - every op and dtype through ptxas ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// That PTX is made, and assembles without spills and complaints. What the code
// computes is checked by test/Numeric, in a simulator and on a GPU.

#include "moec/Target/NVPTX.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Ptx/Sim/Simulator.h"
#include "moec/Transforms/Passes.h"
#include "gtest/gtest.h"

#include <cstdio>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

using namespace mlir;
using namespace moec;

namespace {

/// Compiles kernels of level tile; the text of what went wrong is in `errors`.
struct Compilation {
  Compilation(const std::string &text, const std::string &chip,
              bool assignConfig = true) {
    context.loadDialect<tile::TileDialect>();
    context.disableMultithreading();
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      errors += diagnostic.str() + "\n";
      return success();
    });
    auto module = parseSourceString<ModuleOp>(text, &context);
    if (!module)
      return;
    PassManager manager(&context);
    if (assignConfig) {
      TileAssignConfigPassOptions options;
      options.target = chip;
      manager.addPass(createTileAssignConfigPass(options));
    }
    buildTileToNVVMPipeline(manager, chip);
    if (failed(manager.run(*module)))
      return;
    auto emitted = emitPTX(*module, {chip});
    if (succeeded(emitted))
      ptx = *emitted;
  }

  MLIRContext context;
  std::string errors, ptx;
};

struct Case {
  std::string name, text;
};

void PrintTo(const Case &test, std::ostream *os) { *os << test.name; }

std::string memref(const std::string &shape, const std::string &element) {
  return "memref<" + shape + "x" + element + ">";
}

/// A kernel with those arguments, given as `%name: type`, and one phase.
std::string kernel(const std::vector<std::string> &arguments,
                   const std::string &phase) {
  std::string text = "tile.kernel @kernel(";
  for (const std::string &argument : arguments)
    text += argument + ", ";
  return text + "%t: i64) {\n  " + phase + "\n  tile.return\n}\n";
}

//===----------------------------------------------------------------------===//
// The matrix
//===----------------------------------------------------------------------===//

/// A product with everything that a product can have.
std::string contract(const std::string &dtype, int64_t depth, int64_t columns,
                     bool isGrouped, const std::string &order) {
  std::string k = std::to_string(depth), n = std::to_string(columns);
  std::string rows = order.empty() ? n : std::to_string(2 * columns);
  std::string g = isGrouped ? "6x" : "";
  std::string x = memref("?x" + k, dtype),
              w = memref(g + rows + "x" + k, dtype);
  std::string bias = memref(g + rows, dtype), y = memref("?x" + n, dtype);
  std::vector<std::string> arguments{"%x: " + x, "%w: " + w};
  std::string phase = "tile.contract tokens(%t) ins(%x, %w : " + x + ", " + w;
  phase += ")";
  if (isGrouped) {
    arguments.push_back("%o: memref<7xi32>");
    arguments.push_back("%s: memref<?xi32>");
    phase += " offsets(%o : memref<7xi32>) source(%s : memref<?xi32>)";
  } else {
    arguments.push_back("%v: memref<1xi32>");
    phase += " num_valid_tokens(%v : memref<1xi32>)";
  }
  arguments.push_back("%r: memref<?x1xf32>");
  arguments.push_back("%b: " + bias);
  phase += " rows(%r : memref<?x1xf32>) columns(%b : " + bias + ")";
  arguments.push_back("%e: " + y);
  phase += " elementwise(%e : " + y + ")";
  arguments.push_back("%y: " + y);
  phase += " outs(%y : " + y + ") epilogue {\n";
  if (order.empty())
    phase += "^bb0(%a: f32, %p: f32, %c: f32, %d: f32):\n"
             "  %1 = math.tanh %a : f32\n  %2 = arith.mulf %1, %p : f32\n"
             "  %3 = arith.addf %2, %c : f32\n  %4 = arith.addf %3, %d : f32\n"
             "  tile.yield %4 : f32\n}";
  else
    phase += "^bb0(%a: f32, %u: f32, %p: f32, %c: f32, %q: f32, %d: f32):\n"
             "  %1 = arith.addf %a, %c : f32\n  %2 = math.erf %1 : f32\n"
             "  %3 = arith.addf %u, %q : f32\n  %4 = arith.mulf %2, %3 : f32\n"
             "  %5 = arith.mulf %4, %p : f32\n  %6 = arith.addf %5, %d : f32\n"
             "  tile.yield %6 : f32\n} {layout = #moe.weight_layout<order = " +
             order + ">}";
  return kernel(arguments, phase);
}

std::string topK(int64_t experts, const std::string &routing,
                 const std::string &operands = "",
                 const std::vector<std::string> &more = {}) {
  std::string k = routing.substr(0, routing.find(','));
  std::string logits = memref("?x" + std::to_string(experts), "f32");
  std::string ids = memref("?x" + k, "i32"), weights = memref("?x" + k, "f32");
  std::vector<std::string> arguments{"%l: " + logits};
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.push_back("%i: " + ids);
  arguments.push_back("%w: " + weights);
  return kernel(arguments, "tile.top_k tokens(%t) logits(%l : " + logits + ")" +
                               operands + " outs(%i, %w : " + ids + ", " +
                               weights + ") <top_k = " + routing + ">");
}

std::string rank(int64_t experts, int64_t local, const std::string &attributes,
                 bool hasValid) {
  std::string offsets = memref(std::to_string(local + 1), "i32");
  std::vector<std::string> arguments{"%i: memref<?x8xi32>",
                                     "%w: memref<?x8xf32>"};
  if (hasValid)
    arguments.push_back("%v: memref<1xi32>");
  arguments.insert(arguments.end(),
                   {"%o: " + offsets, "%p: memref<?x8xi32>",
                    "%s: memref<?xi32>", "%r: memref<?x1xf32>"});
  return kernel(
      arguments,
      std::string("tile.rank tokens(%t) ids(%i, %w : memref<?x8xi32>, "
                  "memref<?x8xf32>)") +
          (hasValid ? " num_valid_tokens(%v : memref<1xi32>)" : "") +
          " outs(%o, %p, %s, %r : " + offsets +
          ", memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>) "
          "{num_experts = " +
          std::to_string(experts) + " : i64" + attributes + "}");
}

std::string rowMap(const std::string &dtype, int64_t columns) {
  std::string x = memref("?x" + std::to_string(columns), dtype);
  return kernel({"%x: " + x, "%r: memref<?x1xf32>", "%y: " + x},
                "tile.row_map tokens(%t) ins(%x : " + x +
                    ") rows(%r : memref<?x1xf32>) outs(%y : " + x +
                    ") {\n^bb0(%a: f32, %b: f32):\n"
                    "  %1 = arith.mulf %a, %b : f32\n  tile.yield %1 : f32\n}");
}

std::string gatherReduce(const std::string &dtype, int64_t columns,
                         const std::string &result) {
  std::string n = "?x" + std::to_string(columns);
  std::string x = memref(n, dtype), y = memref(n, result);
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
  std::string x = memref(n, dtype), q = memref(n, "f8E4M3FN");
  int64_t scales = areRows ? 1 : (columns + 127) / 128;
  std::string s = memref("?x" + std::to_string(scales), "f32");
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

/// How an operand of a product is quantized: the granularity in words, and the
/// rows and columns that share a scale, 0 for all. Not at all without words:
/// then it has elements of type `element`.
struct Format {
  std::string granularity;
  int64_t rows = 0, columns = 0;
  std::string element = "f8E4M3FN";

  bool isQuantized() const { return !granularity.empty(); }
  int64_t getScaleRows(int64_t size) const {
    return rows ? (size + rows - 1) / rows : 1;
  }
  std::string getScaleColumns(int64_t size) const {
    return std::to_string(columns ? (size + columns - 1) / columns : 1);
  }
  std::string getAttribute(const std::string &name, bool isDynamic) const {
    return isQuantized()
               ? name +
                     " = #moe.quant<storage = f8E4M3FN, scale = "
                     "f32, granularity = " +
                     granularity + (isDynamic ? ", dynamic = true" : "") + ">, "
               : "";
  }
};

const Format kGroups{"group, block = [1, 128]", 1, 128};
const Format kToken{"token", 1, 0};
const Format kBlocks{"block, block = [128, 128]", 128, 128};
const Format kChannel{"channel", 1, 0};

/// A product of which one or both operands are quantized; block fp8 unless
/// others are given.
std::string scaled(int64_t depth, int64_t columns, bool isGrouped,
                   const std::string &order, const std::string &result,
                   const Format &input = kGroups,
                   const Format &weight = kBlocks) {
  int64_t rows = order.empty() ? columns : 2 * columns;
  int64_t scaleRows = order.empty() || order == "interleaved"
                          ? weight.getScaleRows(rows)
                          : 2 * weight.getScaleRows(columns);
  std::string k = std::to_string(depth);
  std::string g = isGrouped ? "6x" : "";
  std::string x = memref("?x" + k, input.element),
              w = memref(g + std::to_string(rows) + "x" + k, weight.element);
  std::string a = memref("?x" + input.getScaleColumns(depth), "f32"),
              b = memref(g + std::to_string(scaleRows) + "x" +
                             weight.getScaleColumns(depth),
                         "f32"),
              y = memref("?x" + std::to_string(columns), result);
  std::vector<std::string> arguments{"%x: " + x, "%w: " + w, "%a: " + a,
                                     "%b: " + b};
  std::string phase =
      "tile.contract tokens(%t) ins(%x, %w : " + x + ", " + w + ")";
  if (input.isQuantized())
    phase += " input_scale(%a : " + a + ")";
  if (weight.isQuantized())
    phase += " weight_scale(%b : " + b + ")";
  if (isGrouped) {
    arguments.push_back("%o: memref<7xi32>");
    arguments.push_back("%s: memref<?xi32>");
    phase += " offsets(%o : memref<7xi32>) source(%s : memref<?xi32>)";
  }
  arguments.push_back("%y: " + y);
  phase += " outs(%y : " + y + ")";
  if (!order.empty())
    phase += " epilogue {\n^bb0(%g: f32, %u: f32):\n"
             "  %1 = arith.negf %g : f32\n  %2 = math.exp %1 : f32\n"
             "  %3 = arith.constant 1.0 : f32\n"
             "  %4 = arith.addf %2, %3 : f32\n"
             "  %5 = arith.divf %g, %4 : f32\n"
             "  %6 = arith.mulf %5, %u : f32\n"
             "  tile.yield %6 : f32\n}";
  std::string attributes = input.getAttribute("input_quant", true) +
                           weight.getAttribute("weight_quant", false);
  phase += " {" + attributes.substr(0, attributes.size() - 2);
  if (!order.empty())
    phase += ", layout = #moe.weight_layout<order = " + order + ">";
  return kernel(arguments, phase + "}");
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
  // Blocks that are not full; rows that are not on multiples of 16 bytes.
  cases.push_back({"e4m3_tails", scaled(720, 328, true, "gate_up", "bf16")});
  cases.push_back({"e4m3_odd", scaled(511, 37, true, "up_gate", "bf16")});
  cases.push_back({"e4m3_rows", scaled(4096, 768, true, "gate_up", "bf16",
                                       kToken, kChannel)});
  cases.push_back({"e4m3_rows_odd",
                   scaled(511, 37, true, "up_gate", "bf16", kToken, kChannel)});
  cases.push_back({"e4m3_channels", scaled(2048, 768, true, "interleaved",
                                           "bf16", kGroups, kChannel)});
  cases.push_back(
      {"e4m3_blocks", scaled(2048, 768, true, "gate_up", "bf16", kGroups,
                             {"block, block = [16, 64]", 16, 64})});
  for (std::string dtype : {"f32", "bf16", "f16"}) {
    Format plain{"", 0, 0, dtype}, groups{"group, block = [1, 32]", 1, 32};
    cases.push_back(
        {dtype + "_with_channels",
         scaled(2048, 768, true, "gate_up", dtype, plain, kChannel)});
    cases.push_back({dtype + "_with_groups",
                     scaled(2048, 768, true, "gate_up", dtype, plain, groups)});
    cases.push_back({dtype + "_with_tokens",
                     scaled(2048, 256, false, "", dtype, kToken, plain)});
  }
  for (std::string dtype : {"f32", "bf16", "f16"}) {
    cases.push_back({dtype + "_dense", contract(dtype, 2048, 256, false, "")});
    cases.push_back({dtype + "_grouped", contract(dtype, 768, 2048, true, "")});
    for (std::string order : {"gate_up", "up_gate", "interleaved"})
      cases.push_back(
          {dtype + "_" + order, contract(dtype, 512, 768, true, order)});
    // Rows that are not on multiples of 16 bytes, and single columns.
    cases.push_back(
        {dtype + "_odd", contract(dtype, 511, 37, true, "gate_up")});
    cases.push_back({dtype + "_column", contract(dtype, 72, 1, false, "")});
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
  // What does not fit into shared memory.
  cases.push_back({"rank_panels", rank(20000, 20000, "", true)});
  cases.push_back({"rank_panels_local",
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
  cases.push_back({"most_slots", topK(2048, "1024, softmax = selected, "
                                            "renormalize = true")});
  cases.push_back({"many_slots", topK(2048, "2048, softmax = selected, "
                                            "renormalize = true")});
  return cases;
}

class NvptxMatrix : public testing::TestWithParam<Case> {};

TEST_P(NvptxMatrix, Assembles) {
  for (std::string chip : {"sm_80", "sm_90a"}) {
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
    EXPECT_LE(report.registers, 255);
    EXPECT_LE(report.sharedBytes, 48 * 1024);
    EXPECT_LT(assembled->cpuSeconds, 1);
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
    Compilation compiled(contract(dtype, 512, 768, true, "gate_up"), "sm_90a");
    ASSERT_EQ(compiled.errors, "");
    EXPECT_NE(compiled.ptx.find("mul.rn.f32"), std::string::npos);
    for (const char *loose : {"mul.f32", "add.f32"})
      EXPECT_EQ(compiled.ptx.find(loose), std::string::npos) << loose;
    // What is rounded to 16 bits may be approximate before, and that alone
    // may flush.
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

/// sm90.contract: registers move from the warpgroup that copies to those that
/// multiply, and all of them fit in the 64 Ki of a multiprocessor. At the start
/// all threads have the same share.
TEST(NvptxTest, WarpgroupsShareRegisters) {
  // Weighted rows of groups, as in a layer's last product.
  auto product = [](bool isMapped, const std::string &config) {
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
  };
  // Threads that copy rows keep more, the more rows there are.
  struct {
    std::string text, producer, consumer;
    int64_t all = 65536 / 384 / 8 * 8;
  } cases[] = {
      {product(false, "tile_rows = [16, 144], tile_columns = 256, stages = 4"),
       "88", "208"},
      {product(false, "tile_rows = [160], tile_columns = 256, stages = 3"),
       "88", "208"},
      {product(false, "tile_rows = [256], tile_columns = 128, stages = 4"),
       "104", "200"},
      {product(true,
               "tile_rows = [8, 24, 160], tile_columns = 256, stages = 4"),
       "40", "232"},
      {product(true, "tile_rows = [192], tile_columns = 256, stages = 3"), "24",
       "240"},
      {product(
           false,
           "tile_rows = [64, 128], tile_columns = 256, stages = 4, rows_on_m"),
       "88", "208"},
      {product(
           true,
           "tile_rows = [64, 128], tile_columns = 256, stages = 4, rows_on_m"),
       "40", "232"},
      // Low tiles leave room for CTAs of the launch before.
      {product(false, "tile_rows = [8], tile_columns = 128, stages = 4"), "56",
       "88", 80},
      {product(false, "tile_rows = [8, 32], tile_columns = 256, stages = 4"),
       "56", "88", 80},
      {product(true, "tile_rows = [16, 32], tile_columns = 256, stages = 4"),
       "56", "88", 80}};
  for (const auto &[text, producer, consumer, all] : cases) {
    Compilation compiled(text, "sm_90a");
    ASSERT_EQ(compiled.errors, "");
    EXPECT_NE(compiled.ptx.find(".reqntid 384"), std::string::npos);
    EXPECT_NE(
        compiled.ptx.find("setmaxnreg.dec.sync.aligned.u32 \t" + producer),
        std::string::npos);
    EXPECT_NE(
        compiled.ptx.find("setmaxnreg.inc.sync.aligned.u32 \t" + consumer),
        std::string::npos);
    auto assembled = assemble(compiled.ptx, "sm_90a");
    ASSERT_TRUE(bool(assembled)) << llvm::toString(assembled.takeError());
    EXPECT_TRUE(assembled->complaints.empty()) << assembled->complaints.front();
    ASSERT_EQ(assembled->kernels.size(), 1u);
    EXPECT_LE(assembled->kernels[0].registers, all);
    EXPECT_EQ(assembled->kernels[0].spillStoreBytes, 0);
    EXPECT_EQ(assembled->kernels[0].stackBytes, 0);
  }
}

/// A product of e4m3 by sm90.contract, of which a CTA has so many weight rows.
void expectNoSpills(bool isPaired, int64_t rows, const std::string &bodies,
                    const std::string &order, int64_t depth,
                    const Format &input, const Format &weight) {
  std::string text = scaled(depth, 768, isPaired, isPaired ? "gate_up" : "",
                            "bf16", input, weight);
  std::string config =
      "config = #tile.sm90_contract<tile_columns = " +
      std::to_string(isPaired ? rows / 2 : rows) + ", tile_rows = [" + bodies +
      "], step = 128, stages = 4" + order + (isPaired ? ">}" : ", map_rows>}");
  text.replace(text.rfind('}', text.rfind("tile.return") - 1), 1,
               ", " + config);
  Compilation compiled(text, "sm_90a");
  ASSERT_EQ(compiled.errors, "");
  auto assembled = assemble(compiled.ptx, "sm_90a");
  ASSERT_TRUE(bool(assembled)) << llvm::toString(assembled.takeError());
  EXPECT_TRUE(assembled->complaints.empty()) << assembled->complaints.front();
  ASSERT_EQ(assembled->kernels.size(), 1u);
  EXPECT_EQ(assembled->kernels[0].spillStoreBytes, 0) << config;
  EXPECT_EQ(assembled->kernels[0].stackBytes, 0) << config;
}

/// The highest bodies of e4m3 leave the registers that they need; those of 32
/// rows begin with few.
TEST(NvptxTest, SumsOfAStepFitInRegisters) {
  struct {
    bool isPaired;
    int64_t rows;
    std::string bodies, order;
  } cases[] = {{true, 256, "112"},
               {true, 128, "144"},
               {true, 128, "168"},
               {true, 64, "64"},
               {false, 256, "112"},
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
    expectNoSpills(test.isPaired, test.rows, test.bodies, test.order, 2048,
                   kGroups, kBlocks);
}

/// With scales of whole rows, sums of long rows are apart step by step, too; of
/// short ones they leave room for higher bodies.
TEST(NvptxTest, ScalesOfRowsFitInRegisters) {
  for (bool isPaired : {false, true}) {
    for (std::string bodies : {"112", "16, 32, 64, 112", "8, 32"})
      expectNoSpills(isPaired, 256, bodies, "", 4096, kToken, kChannel);
    for (std::string bodies : {"128", "16, 64, 128"})
      expectNoSpills(isPaired, 256, bodies, ", rows_on_m", 4096, kToken,
                     kChannel);
    expectNoSpills(isPaired, 128, "168", "", 4096, kToken, kChannel);
    for (std::string bodies : {"160", "16, 32, 64, 128", "8, 32"})
      expectNoSpills(isPaired, 256, bodies, "", 2048, kToken, kChannel);
    expectNoSpills(isPaired, 64, "64", "", 2048, kToken, kChannel);
  }
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

/// A program of a few lines of shell in place of ptxas.
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
      {"exec sleep 100", "was stopped: it did not end within 0.50 s", 0.5},
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
