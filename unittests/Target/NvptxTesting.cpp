//===- NvptxTesting.cpp - kernels of level tile for ptxas -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NvptxTesting.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"

using namespace mlir;
using namespace moec;
using namespace moec::test;

Compilation::Compilation(const std::string &text, const std::string &chip,
                         bool assignConfig) {
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

std::string test::memrefOf(const std::string &shape,
                           const std::string &element) {
  return "memref<" + shape + "x" + element + ">";
}

std::string test::kernel(const std::vector<std::string> &arguments,
                         const std::string &phase) {
  std::string text = "tile.kernel @kernel(";
  for (const std::string &argument : arguments)
    text += argument + ", ";
  return text + "%t: i64) {\n  " + phase + "\n  tile.return\n}\n";
}

/// `quant`: the `#moe.quant` of operands, each followed by a comma.
static std::string getAttributes(std::string quant, const std::string &order,
                                 const std::string &config) {
  if (!order.empty())
    quant += "layout = #moe.weight_layout<order = " + order + ">, ";
  if (!config.empty())
    quant += "config = #tile." + config + ", ";
  return quant.empty() ? "" : " {" + quant.substr(0, quant.size() - 2) + "}";
}

std::string test::gemm(const std::string &dtype, int64_t sizeK, int64_t columns,
                       bool isGrouped, const std::string &order,
                       const std::string &config) {
  std::string k = std::to_string(sizeK), n = std::to_string(columns);
  std::string rows = order.empty() ? n : std::to_string(2 * columns);
  std::string g = isGrouped ? "6x" : "";
  std::string x = memrefOf("?x" + k, dtype),
              w = memrefOf(g + rows + "x" + k, dtype);
  std::string bias = memrefOf(g + rows, dtype), y = memrefOf("?x" + n, dtype);
  std::vector<std::string> arguments{"%x: " + x, "%w: " + w};
  std::string phase = "tile.gemm tokens(%t) ins(%x, %w : " + x + ", " + w;
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
             "  tile.yield %6 : f32\n}";
  return kernel(arguments, phase + getAttributes("", order, config));
}

std::string test::scaled(int64_t sizeK, int64_t columns, bool isGrouped,
                         const std::string &order, const std::string &result,
                         const Format &input, const Format &weight,
                         const std::string &plain, const std::string &config) {
  int64_t rows = order.empty() ? columns : 2 * columns;
  int64_t scaleRows = order.empty() || order == "interleaved"
                          ? weight.getScaleRows(rows)
                          : 2 * weight.getScaleRows(columns);
  std::string k = std::to_string(sizeK);
  std::string g = isGrouped ? "6x" : "";
  std::string x = memrefOf("?x" + k, input.getElement(plain)),
              w = memrefOf(g + std::to_string(rows) + "x" +
                               std::to_string(weight.getRowLength(sizeK)),
                           weight.getElement(plain));
  std::string a = memrefOf("?x" + std::to_string(input.getScaleColumns(sizeK)),
                           "f32"),
              b = memrefOf(g + std::to_string(scaleRows) + "x" +
                               std::to_string(weight.getScaleColumns(sizeK)),
                           weight.scale),
              y = memrefOf("?x" + std::to_string(columns), result);
  std::vector<std::string> arguments{"%x: " + x, "%w: " + w, "%a: " + a,
                                     "%b: " + b};
  std::string phase = "tile.gemm tokens(%t) ins(%x, %w : " + x + ", " + w + ")";
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
  return kernel(
      arguments,
      phase + getAttributes(input.getAttribute("input_quant", true) +
                                weight.getAttribute("weight_quant", false),
                            order, config));
}

std::string test::topK(int64_t experts, const std::string &routing,
                       const std::string &operands,
                       const std::vector<std::string> &more) {
  std::string k = routing.substr(0, routing.find(','));
  std::string logits = memrefOf("?x" + std::to_string(experts), "f32");
  std::string ids = memrefOf("?x" + k, "i32"),
              weights = memrefOf("?x" + k, "f32");
  std::vector<std::string> arguments{"%l: " + logits};
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.push_back("%i: " + ids);
  arguments.push_back("%w: " + weights);
  return kernel(arguments, "tile.top_k tokens(%t) logits(%l : " + logits + ")" +
                               operands + " outs(%i, %w : " + ids + ", " +
                               weights + ") <top_k = " + routing + ">");
}
