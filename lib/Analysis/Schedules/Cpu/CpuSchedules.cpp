//===- CpuSchedules.cpp - the ways to run a phase on the CPU ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ScheduleTables.h"
#include "moec/Analysis/Cpu.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace moec;

namespace {

//===----------------------------------------------------------------------===//
// What configs have in common
//===----------------------------------------------------------------------===//

std::string needsTargetLanes(tile::ConfigAttr config, const Target &target) {
  if (config.getLanes() > 0 && config.getLanes() <= target.lanes &&
      llvm::isPowerOf2_64(config.getLanes()))
    return {};
  return "lanes = " + number(config.getLanes()) +
         "; give a power of two up to the target's " + number(target.lanes);
}

//===----------------------------------------------------------------------===//
// cpu.contract
//===----------------------------------------------------------------------===//

/// The sizes of a contract that its config depends on.
struct ContractShape {
  explicit ContractShape(tile::ContractOp op) {
    auto weight = cast<MemRefType>(op.getWeight().getType());
    grouped = static_cast<bool>(op.getOffsets());
    groups = grouped ? weight.getDimSize(0) : 1;
    depth = weight.getDimSize(weight.getRank() - 1);
    rowsPerColumn = op.getLayout() ? 2 : 1;
    columns = weight.getDimSize(weight.getRank() - 2) / rowsPerColumn;
    columnBytes = depth * rowsPerColumn * (weight.getElementTypeBitWidth() / 8);
    parts = weight.getElementType().isBF16() ? 2 : 1;
    decodes = cpu::decodesOperands(op);
    decodedAtOnce = cpu::getDecodedColumns(op);
  }

  bool grouped;
  /// Operands are decoded to f32, so many contracted elements at a time.
  bool decodes;
  int64_t decodedAtOnce;
  int64_t groups, depth, columns;
  /// Weight rows behind a column of the result: 2 for gate and up.
  int64_t rowsPerColumn;
  /// Bytes of weights behind a column.
  int64_t columnBytes;
  /// f32 vectors that one loaded vector becomes: the even and the odd elements
  /// of bf16.
  int64_t parts;
};

/// The register tile: m x n accumulators, a vector of each of m input rows and
/// of one weight row at a time.
std::string contractIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &target) {
  auto contract = cast<tile::ContractOp>(op);
  if (std::string reason = declineQuantized(contract); !reason.empty())
    return reason;
  if (std::string reason = declineSomeGroups(contract); !reason.empty())
    return reason;
  ContractShape shape(contract);
  for (auto [field, value] : {std::pair<StringRef, int64_t>{"m", config.getM()},
                              {"n", config.getN()},
                              {"k", config.getK()},
                              {"panel", config.getPanel()}})
    if (std::string reason = needsPositive(field, value); !reason.empty())
      return reason;
  if (std::string reason = needsTargetLanes(config, target); !reason.empty())
    return reason;
  if (config.getK() % config.getLanes())
    return "k = " + number(config.getK()) +
           " is no multiple of lanes = " + number(config.getLanes());
  if (shape.decodes && shape.decodedAtOnce % config.getK())
    return "k = " + number(config.getK()) + "; give a divisor of the " +
           number(shape.decodedAtOnce) + " elements that are decoded at once";
  int64_t weightRows = config.getN() * shape.rowsPerColumn;
  if (weightRows % 4)
    return "n = " + number(config.getN()) + " needs " + number(weightRows) +
           " weight rows at a time; give a multiple of 4 of them";
  int64_t registers = config.getM() * weightRows + config.getM() + 1;
  if (registers > target.getNumRegisters())
    return "m = " + number(config.getM()) + ", n = " + number(config.getN()) +
           " needs " + number(registers) + " vector registers of " +
           number(target.getNumRegisters()) + "; give a smaller tile";
  if (config.getPanel() % config.getN())
    return "panel = " + number(config.getPanel()) +
           " is no multiple of n = " + number(config.getN());
  if (shape.grouped)
    return config.getRows() == 0
               ? std::string()
               : "rows = " + number(config.getRows()) +
                     "; a product with offsets owns all rows of a group: 0";
  if (std::string reason = needsPositive("rows", config.getRows());
      !reason.empty())
    return reason;
  // Sums wait on the stack for their epilogue, a row in whole vectors.
  constexpr int64_t stackBytes = 64 * 1024;
  int64_t sumBytes =
      4 * shape.rowsPerColumn * config.getRows() *
      static_cast<int64_t>(llvm::alignTo(config.getPanel(), config.getLanes()));
  if (sumBytes > stackBytes)
    return "rows = " + number(config.getRows()) +
           ", panel = " + number(config.getPanel()) + " needs " +
           number(sumBytes) +
           " bytes of sums; give a smaller block of at most " +
           number(stackBytes);
  return {};
}

/// Panels are as wide as half a core's second-level cache holds, but no wider
/// than leaves work for many cores when there is just one group.
int64_t choosePanel(const ContractShape &shape, int64_t n) {
  constexpr int64_t cacheBytes = 256 * 1024;
  constexpr int64_t narrowest = 16, widest = 64, densePanels = 16;
  int64_t panel = std::clamp(cacheBytes / shape.columnBytes, narrowest, widest);
  // A part of each row is there, as f32.
  if (shape.decodes)
    panel = widest / shape.rowsPerColumn;
  if (!shape.grouped)
    panel = std::clamp<int64_t>(llvm::divideCeil(shape.columns, densePanels),
                                narrowest, panel);
  panel = std::min(panel, shape.columns);
  return std::max(panel / n * n, n);
}

tile::ConfigAttr chooseContract(Operation *op, const Target &target) {
  constexpr int64_t denseRows = 64;
  ContractShape shape(cast<tile::ContractOp>(op));
  int64_t n = 4 / shape.rowsPerColumn;
  // As many rows as fit into registers with their vectors widened.
  int64_t free = target.getNumRegisters() - shape.parts;
  int64_t m = std::min<int64_t>(4, free / (4 + shape.parts));
  // A block of scales ends a loop: fewer turns.
  int64_t k = shape.decodes ? std::gcd(target.lanes * 4, shape.decodedAtOnce)
                            : target.lanes * shape.parts;
  return tile::ConfigAttr::get(op->getContext(), "cpu.contract", m, n, k,
                               choosePanel(shape, n), target.lanes,
                               shape.grouped ? 0 : denseRows);
}

moert::Expr contractGrid(Operation *op, tile::ConfigAttr config,
                         const Target &) {
  ContractShape shape(cast<tile::ContractOp>(op));
  moert::Expr panels(llvm::divideCeil(shape.columns, config.getPanel()));
  if (shape.grouped)
    return moert::Expr(shape.groups) * panels;
  return rowBlocks(config.getRows()) * panels;
}

//===----------------------------------------------------------------------===//
// Schedules that own rows: cpu.top_k, cpu.row_map, cpu.quantize,
// cpu.gather_reduce
//===----------------------------------------------------------------------===//

std::string rowsIllegal(Operation *, tile::ConfigAttr config,
                        const Target &target) {
  if (std::string reason = needsPositive("rows", config.getRows());
      !reason.empty())
    return reason;
  return needsTargetLanes(config, target);
}

std::string gatherRowsIllegal(Operation *, tile::ConfigAttr config,
                              const Target &) {
  return needsPositive("rows", config.getRows());
}

std::string gatherReduceIllegal(Operation *op, tile::ConfigAttr config,
                                const Target &target) {
  std::string reason = rowsIllegal(op, config, target);
  if (!reason.empty())
    return reason;
  if (config.getN() % config.getLanes())
    return "n = " + number(config.getN()) +
           " is no multiple of lanes = " + number(config.getLanes());
  int64_t accumulators = config.getN() / config.getLanes();
  if (accumulators > target.getNumRegisters() / 2)
    return "n = " + number(config.getN()) + " needs " + number(accumulators) +
           " accumulators; give at most " +
           number(target.getNumRegisters() / 2) + " times lanes";
  return {};
}

tile::ConfigAttr chooseRows(Operation *op, StringRef name, int64_t n,
                            int64_t lanes, int64_t rows) {
  return tile::ConfigAttr::get(op->getContext(), name, /*m=*/0, n, /*k=*/0,
                               /*panel=*/0, lanes, rows);
}

tile::ConfigAttr chooseTopK(Operation *op, const Target &target) {
  return chooseRows(op, "cpu.top_k", 0, target.lanes, 8);
}

tile::ConfigAttr chooseRowMap(Operation *op, const Target &target) {
  return chooseRows(op, "cpu.row_map", 0, target.lanes, 4);
}

tile::ConfigAttr chooseQuantize(Operation *op, const Target &target) {
  return chooseRows(op, "cpu.quantize", 0, target.lanes, 4);
}

tile::ConfigAttr chooseGatherRows(Operation *op, const Target &) {
  return chooseRows(op, "cpu.gather_rows", 0, 0, 4);
}

/// Enough accumulators to hide the latency of an addition.
tile::ConfigAttr chooseGatherReduce(Operation *op, const Target &target) {
  return chooseRows(op, "cpu.gather_reduce", 4 * target.lanes, target.lanes, 4);
}

moert::Expr rowsGrid(Operation *, tile::ConfigAttr config, const Target &) {
  return rowBlocks(config.getRows());
}

moert::Expr quantizeGrid(Operation *op, tile::ConfigAttr config,
                         const Target &) {
  return positionBlocks(cast<tile::QuantizeOp>(op).getTopK().value_or(1),
                        config.getRows());
}

moert::Expr gatherRowsGrid(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  return positionBlocks(cast<tile::GatherRowsOp>(op).getTopK(),
                        config.getRows());
}

//===----------------------------------------------------------------------===//
// cpu.rank
//===----------------------------------------------------------------------===//

std::string rankIllegal(Operation *, tile::ConfigAttr, const Target &) {
  return {};
}

tile::ConfigAttr chooseRank(Operation *op, const Target &) {
  return chooseRows(op, "cpu.rank", 0, 0, 0);
}

moert::Expr rankGrid(Operation *, tile::ConfigAttr, const Target &) {
  return 1;
}

//===----------------------------------------------------------------------===//
// cpu.tensor_scale: one CTA
//===----------------------------------------------------------------------===//

std::string tensorScaleIllegal(Operation *, tile::ConfigAttr config,
                               const Target &target) {
  return needsTargetLanes(config, target);
}

tile::ConfigAttr chooseTensorScale(Operation *op, const Target &target) {
  return chooseRows(op, "cpu.tensor_scale", 0, target.lanes, 0);
}

moert::Expr tensorScaleGrid(Operation *, tile::ConfigAttr, const Target &) {
  return 1;
}

constexpr Schedule kCpuSchedules[] = {
    {"cpu.contract", "tile.contract", contractIllegal, chooseContract,
     contractGrid},
    {"cpu.top_k", "tile.top_k", rowsIllegal, chooseTopK, rowsGrid},
    {"cpu.rank", "tile.rank", rankIllegal, chooseRank, rankGrid},
    {"cpu.row_map", "tile.row_map", rowsIllegal, chooseRowMap, rowsGrid},
    {"cpu.tensor_scale", "tile.tensor_scale", tensorScaleIllegal,
     chooseTensorScale, tensorScaleGrid},
    {"cpu.quantize", "tile.quantize", rowsIllegal, chooseQuantize,
     quantizeGrid},
    {"cpu.gather_rows", "tile.gather_rows", gatherRowsIllegal, chooseGatherRows,
     gatherRowsGrid},
    {"cpu.gather_reduce", "tile.gather_reduce", gatherReduceIllegal,
     chooseGatherReduce, rowsGrid},
};

} // namespace

ArrayRef<Schedule> moec::getCpuSchedules() { return kCpuSchedules; }
