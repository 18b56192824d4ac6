//===- MeasuredTest.cpp - predicted times against measured ones -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The records of benchmarks/sm90_tiles.py: products of two layers in tiles of
// many shapes, and of all layers of the benchmark in those of choice and
// others.

#include "../Compiler/ParsedModule.h"
#include "moec/Schedules/Cost.h"
#include "moec/Support/Json.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace moec;

namespace {

struct Layer {
  int64_t experts, topK, hidden, intermediate;
  /// Those of this rank; whether weights are e4m3 with scales.
  int64_t groups;
  bool isScaled = false;
};

/// A row of the record.
struct Measured {
  std::string layer, product;
  int64_t tokens;
  /// Rows of weights, values of BLOCK_M, stages.
  int64_t weightRows, stages;
  SmallVector<int64_t> tileRows;
  bool noSwapAB;
  double us;

  std::string getCase() const {
    return layer + " " + product + " " + std::to_string(tokens);
  }
};

class MeasuredTest : public testing::Test {
protected:
  void read(StringRef path) {
    Diagnostics diagnostics(llvm::errs());
    FailureOr<SourceText> text =
        readTextFile(path, json::kMaxBytes, diagnostics);
    ASSERT_TRUE(succeeded(text));
    FailureOr<json::Value> record = json::parse(*text, diagnostics);
    ASSERT_TRUE(succeeded(record));
    for (const json::Value &row : record->find("rows")->value.elements)
      addRow(row);
    ASSERT_GT(rows.size(), 200u);
  }

  void addRow(const json::Value &row) {
    auto get = [&](StringRef name) { return row.find(name)->value; };
    SmallVector<StringRef> config;
    std::string text = get("config").text;
    StringRef(text).split(config, '-');
    bool noSwapAB = config[0].consume_front("m");
    Measured measured{get("layer").text,
                      get("product").text,
                      *get("tokens").getInteger(),
                      std::stoll(config[0].str()),
                      std::stoll(config[2].str()),
                      {},
                      noSwapAB,
                      *get("us").getDouble()};
    for (StringRef blockM : llvm::split(config[1], '_'))
      measured.tileRows.push_back(std::stoll(blockM.str()));
    rows.push_back(std::move(measured));
  }

  /// The kernel that was timed, as benchmarks/sm90_tiles.py makes it.
  tile::GemmOp makeOp(const Measured &row) {
    std::unique_ptr<ParsedModule> &parsed = modules[row.layer + row.product];
    if (!parsed) {
      const Layer &layer = layers.at(row.layer);
      bool isFirst = row.product != "down";
      std::string source = row.product == "gate_up"
                               ? "source(%s : memref<?xi32>)"
                           : isFirst ? ""
                                     : "rows(%r : memref<?x1xf32>)";
      int64_t sizeK = isFirst ? layer.hidden : layer.intermediate;
      int64_t columns = isFirst ? layer.intermediate : layer.hidden;
      int64_t weightRows = isFirst ? 2 * columns : columns;
      StringRef type = layer.isScaled ? "f8E4M3FN" : "bf16";
      constexpr int64_t block = 128;
      std::string scales =
          llvm::formatv("input_scale(%a : memref<?x{0}xf32>) "
                        "weight_scale(%b : memref<{1}x{2}x{0}xf32>)",
                        sizeK / block, layer.groups, weightRows / block);
      std::string attributes =
          isFirst ? "layout = #moe.weight_layout<order = gate_up>" : "";
      if (layer.isScaled)
        attributes += (isFirst ? ", " : "") +
                      std::string("input_quant = #moe.quant<storage = "
                                  "f8E4M3FN, scale = f32, granularity = group, "
                                  "block = [1, 128], dynamic = true>, "
                                  "weight_quant = #moe.quant<storage = "
                                  "f8E4M3FN, scale = f32, granularity = block, "
                                  "block = [128, 128]>");
      std::string text = llvm::formatv(
          R"(tile.kernel @k(%x: memref<?x{0}x{8}>, %w: memref<{1}x{2}x{0}x{8}>,
               %a: memref<?x{10}xf32>, %b: memref<{1}x{11}x{10}xf32>,
               %o: memref<{3}xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>,
               %y: memref<?x{4}xbf16>, %t: i64) {{
             tile.gemm tokens(%t) ins(%x, %w : memref<?x{0}x{8}>, memref<{1}x{2}x{0}x{8}>) {9}
               offsets(%o : memref<{3}xi32>) {5} outs(%y : memref<?x{4}xbf16>) epilogue {{
               ^bb0(%g: f32, %u: f32):
               {6}
               } {7}
             tile.return
           })",
          sizeK, layer.groups, weightRows, layer.groups + 1, columns, source,
          isFirst ? R"(%one = arith.constant 1.0 : f32
                       %a = arith.negf %g : f32
                       %b = math.exp %a : f32
                       %c = arith.addf %b, %one : f32
                       %d = arith.divf %g, %c : f32
                       %e = arith.mulf %d, %u : f32
                       tile.yield %e : f32)"
                  : R"(%e = arith.mulf %g, %u : f32
                       tile.yield %e : f32)",
          "{" + attributes + "}", type, layer.isScaled ? scales : "",
          sizeK / block, weightRows / block);
      parsed = std::make_unique<ParsedModule>(text);
    }
    tile::GemmOp found;
    parsed->module->walk([&](tile::GemmOp op) { found = op; });
    return found;
  }

  double predict(const Measured &row) {
    tile::GemmOp op = makeOp(row);
    const Layer &layer = layers.at(row.layer);
    auto load = tile::LoadAttr::get(op.getContext(), 0, 1 << 20, layer.topK,
                                    layer.experts);
    auto config = tile::Sm90GemmAttr::get(
        op.getContext(), row.tileRows,
        row.weightRows / (op.getLayout() ? 2 : 1),
        /*block_k=*/layer.isScaled ? 128 : 64, row.stages, /*l2_rows=*/0,
        row.product != "gate_up", row.noSwapAB, /*dynamic_scheduler=*/false,
        /*multicast_weights=*/false, /*split_k=*/0);
    return schedule->as<ModelsTime>()
        ->costModel(op, load, target)
        ->predict(config, row.tokens)
        .us;
  }

  void expectErrors(double all, double each);
  void expectChoices(double all, double each);

  const std::map<std::string, Layer> layers = {
      {"mixtral", {8, 2, 4096, 14336, 8}},
      {"qwen3_30b", {128, 8, 2048, 768, 128}},
      {"qwen3_235b", {128, 8, 4096, 1536, 128}},
      {"qwen3_next", {512, 10, 2048, 512, 512}},
      {"llama4", {128, 1, 5120, 8192, 128}},
      {"dsv3", {256, 8, 7168, 2048, 256, true}},
      {"dsv3_ep8", {256, 8, 7168, 2048, 32, true}}};
  const Target target = *Target::find("sm_90a");
  const Schedule *schedule = findSchedule(target, "sm90.gemm");
  std::vector<Measured> rows;
  std::map<std::string, std::unique_ptr<ParsedModule>> modules;
};

/// Errors are those of logarithms: the root mean square and the largest, since
/// a few measured times are outliers.
void MeasuredTest::expectErrors(double all, double each) {
  double sum = 0;
  for (const Measured &row : rows) {
    double error = std::log(predict(row) / row.us);
    EXPECT_LT(std::abs(error), each)
        << row.getCase() << " " << row.weightRows << " rows, tiles up to "
        << row.tileRows.back() << ", " << row.stages << " stages";
    sum += error * error;
  }
  EXPECT_LT(std::sqrt(sum / double(rows.size())), all);
}

/// The chosen config among the measured ones is about the best of them.
void MeasuredTest::expectChoices(double all, double each) {
  struct Case {
    double expected, chosen, best;
  };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::map<std::string, Case> cases;
  for (const Measured &row : rows) {
    Case &found = cases.try_emplace(row.getCase(), Case{infinity, 0, infinity})
                      .first->second;
    double us = predict(row);
    if (us < found.expected) {
      found.expected = us;
      found.chosen = row.us;
    }
    found.best = std::min(found.best, row.us);
  }
  double sum = 0;
  for (auto &[name, found] : cases) {
    EXPECT_LT(found.chosen, each * found.best) << name;
    sum += std::log(found.chosen / found.best);
  }
  EXPECT_LT(sum / double(cases.size()), std::log(all));
}

TEST_F(MeasuredTest, ManyShapes) {
  read(SM90_RESULTS "/sm90_tiles_h200.json");
  expectErrors(/*all=*/0.06, /*each=*/0.3);
  expectChoices(/*all=*/1.05, /*each=*/1.15);
}

TEST_F(MeasuredTest, LayersUnderLoad) {
  read(SM90_RESULTS "/sm90_loads_h200.json");
  expectErrors(/*all=*/0.055, /*each=*/0.4);
  expectChoices(/*all=*/1.03, /*each=*/1.15);
}

} // namespace
