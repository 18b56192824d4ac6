//===- ExchangeKernel.cpp - the kernel of a case ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExchangeRig.h"

#include "moec/Conversion/Passes.h"
#include "moec/Dialect/Tile/Exchange.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace moec;
using namespace moec::exchanges;

static std::string makeKernel(const Case &what) {
  std::string kind = what.kind.str();
  int64_t ranks = what.ranks;
  std::string arguments, ins, inTypes, outs, outTypes, heaps, heapTypes, ids,
      idTypes, destinations, destinationsType, routed;
  auto add = [&](std::string &names, std::string &types,
                 const std::string &name, const std::string &type) {
    names += (names.empty() ? "" : ", ") + name;
    types += (types.empty() ? "" : ", ") + type;
    arguments += name + ": " + type + ", ";
  };
  auto type = [&](const PartShape &part, int64_t rows) {
    if (what.group > 0 && &part == &what.parts[0])
      return "memref<?x" + std::to_string(4 * part.columns) +
             (what.areIntegers ? "xi8>" : "xf8E4M3FN>");
    bool isFloat = !what.gathers() || part.routed ||
                   (what.group > 0 && &part == &what.parts[1]);
    return "memref<" + (part.perToken ? "?" : std::to_string(rows)) + "x" +
           std::to_string(part.columns) + "x" + (isFloat ? "f32" : "i32") + ">";
  };
  int64_t toAll = what.gathers() ? ranks : 1;
  int64_t toOne = what.scatters() ? ranks : 1;
  for (auto [i, part] : llvm::enumerate(what.parts)) {
    add(ins, inTypes, "%in" + std::to_string(i), type(part, toOne));
    if (part.routed)
      routed += (routed.empty() ? "" : ", ") + std::to_string(i);
  }
  for (auto [i, part] : llvm::enumerate(what.parts))
    add(outs, outTypes, "%out" + std::to_string(i), type(part, toAll));
  std::string whose;
  if (what.spread != Spread::None) {
    for (int64_t i = 0; i < (what.scatters() ? 2 : 1); ++i)
      add(ids, idTypes, "%ids" + std::to_string(i),
          "memref<?x" + std::to_string(kTopK) + "xi32>");
    add(destinations, destinationsType, "%destinations",
        "memref<" + std::to_string(what.numExperts()) +
            (what.hasReplicas ? "x" + std::to_string(kReplicas) : "") +
            "xi32>");
    whose = " destinations(" + destinations + " : " + destinationsType +
            ") ids(" + ids + " : " + idTypes + ") routed [" + routed + "]";
  }
  if (what.makesSums) {
    std::string sums, sumTypes, addend, addendType, valid, validType;
    add(sums, sumTypes, "%rows", type(what.parts.front(), 0));
    add(sums, sumTypes, "%position",
        "memref<?x" + std::to_string(kSlots) + "xi32>");
    whose += " sums_of(" + sums + " : " + sumTypes + ")";
    if (what.hasAddend) {
      add(addend, addendType, "%addend", type(what.parts.front(), 0));
      whose += " addend(" + addend + " : " + addendType + ")";
    }
    if (what.numValid >= 0) {
      add(valid, validType, "%valid", "memref<1xi32>");
      whose += " num_valid_tokens(" + valid + " : " + validType + ")";
    }
  }
  if (what.group > 0) {
    std::string rows, rowType;
    add(rows, rowType, "%unquantized",
        "memref<?x" + std::to_string(4 * what.parts.front().columns) +
            "xbf16>");
    whose += " unquantized(" + rows + " : " + rowType +
             ") quantized [0, 1] by <storage = " +
             (what.areIntegers ? "i8" : "f8E4M3FN") +
             ", scale = f32, granularity = " +
             (what.hasRowScales
                  ? "token"
                  : "group, block = [1, " + std::to_string(what.group) + "]") +
             ", dynamic = true>";
  }
  for (int64_t i = 0; i < ranks; ++i)
    add(heaps, heapTypes, "%heap" + std::to_string(i), "memref<?xi64>");
  std::string chunk, numColumns;
  if (what.chunks > 1) {
    arguments += "%first: i64, ";
    chunk = " first_column(%first)";
    numColumns = ", num_columns = " +
                 std::to_string(what.parts.front().columns / what.chunks) +
                 " : i64";
  }
  // Few enough threads that a few hundred rows take several rounds.
  return "tile.kernel @kernel(" + arguments +
         "%tokens: i64) attributes {form = #tile.kernel_form<resident = "
         "true>} {\n  tile.exchange " +
         kind + (what.toResults ? " to_results" : "") +
         " tokens(%tokens) ins(" + ins + " : " + inTypes + ") outs(" + outs +
         " : " + outTypes + ")" + whose + " heaps(" + heaps + " : " +
         heapTypes + ")" + chunk +
         " {config = #tile.gpu_exchange<ctas = 3, threads = " +
         std::to_string(what.threads) + ", chunks = 2" +
         (what.leastRows > 0
              ? ", least_rows = " + std::to_string(what.leastRows)
              : "") +
         ">" +
         (what.hasReplicas ? ", experts_per_rank = " +
                                 std::to_string(kPhysicalPerRank) + " : i64"
                           : "") +
         numColumns + "}\n  tile.return\n}\n";
}

const Compiled &exchanges::compile(const Case &what) {
  std::string text = makeKernel(what);
  static std::map<std::string, Compiled> known;
  auto [it, isNew] = known.try_emplace(text);
  Compiled &made = it->second;
  if (!isNew)
    return made;
  MLIRContext context;
  context.loadDialect<tile::TileDialect>();
  context.disableMultithreading();
  auto module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module) << text;
  if (!module)
    return made;
  PassManager lower(&context);
  TileAssignConfigPassOptions options;
  options.target = "sm_90a";
  lower.addPass(createTileAssignConfigPass(options));
  EXPECT_TRUE(succeeded(lower.run(*module)));
  auto kernel = *module->getOps<tile::KernelOp>().begin();
  made.grid = kernel.getGrid()->getExpr();
  made.dims.block = kernel.getBlockAttr().getInt();
  made.dims.resident = kernel.getResident();
  PassManager convert(&context);
  buildTileToNVVMPipeline(convert, "sm_90a");
  EXPECT_TRUE(succeeded(convert.run(*module)));
  if (auto ptx = emitPTX(*module, {"sm_90a"}); succeeded(ptx))
    made.ptx = *ptx;
  return made;
}
