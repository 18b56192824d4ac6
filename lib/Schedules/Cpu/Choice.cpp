//===- Choice.cpp - the ways to run a phase on the CPU ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cost.h"
#include "Instructions.h"
#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"
#include "moec/Schedules/SumOrder.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace moec;

namespace {

//===----------------------------------------------------------------------===//
// Common to all configs
//===----------------------------------------------------------------------===//

std::string needsTargetLanes(int64_t lanes, const Target &target) {
  if (lanes > 0 && lanes <= target.lanes && llvm::isPowerOf2_64(lanes))
    return {};
  return "lanes = " + number(lanes) +
         "; give a power of two up to the target's " + number(target.lanes);
}

//===----------------------------------------------------------------------===//
// cpu.gemm
//===----------------------------------------------------------------------===//

/// Sizes of a gemm that its config depends on.
struct GemmShape {
  explicit GemmShape(tile::GemmOp op) {
    auto weight = cast<MemRefType>(op.getWeight().getType());
    grouped = static_cast<bool>(op.getOffsets());
    groups = grouped ? weight.getDimSize(0) : 1;
    sizeK = weight.getDimSize(weight.getRank() - 1);
    rowsPerColumn = op.getLayout() ? 2 : 1;
    columns = weight.getDimSize(weight.getRank() - 2) / rowsPerColumn;
    columnBytes = sizeK * rowsPerColumn * (weight.getElementTypeBitWidth() / 8);
    parts = weight.getElementType().isBF16() ? 2 : 1;
    decodes = cpu::decodesOperands(op);
    decodedAtOnce = cpu::getDecodedColumns(op);
  }

  bool grouped;
  /// Operands are decoded to f32, `decodedAtOnce` elements along K at a time.
  bool decodes;
  int64_t decodedAtOnce;
  int64_t groups, sizeK, columns;
  /// Weight rows per result column: 2 for gate and up.
  int64_t rowsPerColumn;
  /// Bytes of weights per result column.
  int64_t columnBytes;
  /// f32 vectors per loaded vector: two for bf16, of its even and odd elements.
  int64_t parts;
};

/// Reason why the CPU neither writes nor reads such quantized values; empty if
/// it does.
std::string declineKept(moe::QuantAttr quant) {
  return quant && moe::areKeptAsBF16(quant)
             ? "quantized values are stored as bf16, which the CPU does not "
               "read; remove 'packing = bf16'"
             : "";
}

/// The register tile of FMAs and of pairs: an accumulator per row and column, a
/// vector per input row, and one of a weight row at a time.
std::string vectorsIllegal(const GemmShape &shape, tile::CpuGemmAttr config,
                           const Target &target) {
  if (config.getBlockK() % config.getLanes())
    return "block_k = " + number(config.getBlockK()) +
           " is not a multiple of lanes = " + number(config.getLanes());
  if (shape.decodes && cpu::getInstructionK(config) == cpu::kFma &&
      shape.decodedAtOnce % config.getBlockK())
    return "block_k = " + number(config.getBlockK()) +
           "; give a divisor of the " + number(shape.decodedAtOnce) +
           " elements that are dequantized at once";
  int64_t weightRows = config.getRegisterColumns() * shape.rowsPerColumn;
  if (weightRows % 4)
    return "register_columns = " + number(config.getRegisterColumns()) +
           " needs " + number(weightRows) +
           " weight rows at a time; their number must be a multiple of 4";
  // Quads have a sum per input row more, and the constant 128.
  bool hasQuads = cpu::getInstructionK(config) == cpu::kQuads;
  int64_t rowVectors = hasQuads ? 2 : 1;
  int64_t registers =
      config.getRegisterRows() * (weightRows + rowVectors) + rowVectors;
  if (registers > target.getNumRegisters())
    return "register_rows = " + number(config.getRegisterRows()) +
           ", register_columns = " + number(config.getRegisterColumns()) +
           " needs " + number(registers) +
           " vector registers, more than the target's " +
           number(target.getNumRegisters()) + "; give a smaller tile";
  return {};
}

std::string gemmIllegal(Operation *op, tile::ConfigAttr attr,
                        const Target &target) {
  auto gemm = cast<tile::GemmOp>(op);
  auto config = cast<tile::CpuGemmAttr>(attr);
  if (std::string reason = declineQuantized(gemm); !reason.empty())
    return reason;
  if (std::string reason = declineSomeGroups(gemm); !reason.empty())
    return reason;
  if (std::string reason = declineKept(gemm.getInputQuantAttr());
      !reason.empty())
    return reason;
  GemmShape shape(gemm);
  for (auto [field, value] : {std::pair<StringRef, int64_t>{
                                  "register_rows", config.getRegisterRows()},
                              {"register_columns", config.getRegisterColumns()},
                              {"block_k", config.getBlockK()},
                              {"columns_per_cta", config.getColumnsPerCta()}})
    if (std::string reason = needsPositive(field, value); !reason.empty())
      return reason;
  if (std::string reason = needsTargetLanes(config.getLanes(), target);
      !reason.empty())
    return reason;
  if (std::string reason = cpu::whyNotInstruction(gemm, config, target);
      !reason.empty())
    return reason;
  if (std::string reason = cpu::usesTiles(config)
                               ? cpu::whyNotTiles(gemm, config)
                               : vectorsIllegal(shape, config, target);
      !reason.empty())
    return reason;
  if (config.getColumnsPerCta() % config.getRegisterColumns())
    return "columns_per_cta = " + number(config.getColumnsPerCta()) +
           " is not a multiple of register_columns = " +
           number(config.getRegisterColumns());
  if (shape.grouped)
    return config.getRowsPerCta() == 0
               ? std::string()
               : "rows_per_cta = " + number(config.getRowsPerCta()) +
                     "; give 0 for a gemm with offsets, whose CTAs compute all "
                     "rows of a group";
  if (std::string reason =
          needsPositive("rows_per_cta", config.getRowsPerCta());
      !reason.empty())
    return reason;
  // Sums are kept on the stack for the epilogue, each row in whole vectors.
  constexpr int64_t stackBytes = 64 * 1024;
  int64_t sumBytes = 4 * shape.rowsPerColumn * config.getRowsPerCta() *
                     static_cast<int64_t>(llvm::alignTo(
                         config.getColumnsPerCta(), config.getLanes()));
  if (sumBytes > stackBytes)
    return "rows_per_cta = " + number(config.getRowsPerCta()) +
           ", columns_per_cta = " + number(config.getColumnsPerCta()) +
           " needs " + number(sumBytes) +
           " bytes of sums; give a smaller block of at most " +
           number(stackBytes);
  return {};
}

/// N tiles fill half of a core's L2, but are narrow enough to give many cores
/// work when there is just one group.
int64_t chooseBlockN(const GemmShape &shape, int64_t n) {
  constexpr int64_t cacheBytes = 256 * 1024;
  constexpr int64_t narrowest = 16, widest = 64, denseNTiles = 16;
  int64_t nTile = std::clamp(cacheBytes / shape.columnBytes, narrowest, widest);
  // The stack has a decoded part of each row, as f32.
  if (shape.decodes)
    nTile = widest / shape.rowsPerColumn;
  if (!shape.grouped)
    nTile = std::clamp<int64_t>(llvm::divideCeil(shape.columns, denseNTiles),
                                narrowest, nTile);
  nTile = std::min(nTile, shape.columns);
  return std::max(nTile / n * n, n);
}

/// As `chooseBlockN`, but with many columns, since each CTA copies its input
/// rows: up to 256 weight rows, in half of the L2 cache of a core with AMX.
int64_t chooseTileColumns(const GemmShape &shape, int64_t n) {
  constexpr int64_t cacheBytes = 1024 * 1024, mostRows = 256, denseNTiles = 16;
  int64_t most =
      std::min(cacheBytes / shape.columnBytes, mostRows / shape.rowsPerColumn);
  if (!shape.grouped)
    most =
        std::min<int64_t>(most, llvm::divideCeil(shape.columns, denseNTiles));
  return std::max(std::min(most, shape.columns) / n * n, n);
}

/// The config with VPDPBUSD; null if the gemm cannot have one.
tile::CpuGemmAttr chooseQuads(tile::GemmOp op, GemmShape shape,
                              const Target &target) {
  if (target.products < CpuProducts::Vnni || !cpu::hasInt8Products(op) ||
      !cpu::whyNotQuads(op, target.lanes).empty())
    return nullptr;
  constexpr int64_t denseRows = 64;
  int64_t n = 4 / shape.rowsPerColumn;
  int64_t m = std::min<int64_t>(4, (target.getNumRegisters() - 2) / 6);
  shape.decodes = false;
  return tile::CpuGemmAttr::get(op->getContext(), m, n,
                                cpu::kQuads * target.lanes,
                                chooseBlockN(shape, n), target.lanes,
                                shape.grouped ? 0 : denseRows, cpu::kQuads);
}

/// The config with AMX tiles; null if the gemm cannot have one.
tile::CpuGemmAttr chooseTiles(tile::GemmOp op, const GemmShape &shape,
                              const Target &target) {
  int64_t k = cpu::getTileK(op);
  if (target.products < CpuProducts::Amx || !k)
    return nullptr;
  int64_t n = cpu::kTileSize;
  if (shape.rowsPerColumn == 1 && shape.columns % (2 * n) == 0)
    n *= 2;
  auto config = tile::CpuGemmAttr::get(
      op->getContext(), 2 * cpu::kTileSize, n, k, chooseTileColumns(shape, n),
      target.lanes, shape.grouped ? 0 : cpu::getMaxTileRows(op), k);
  return cpu::whyNotTiles(op, config).empty() ? config : nullptr;
}

tile::ConfigAttr chooseGemm(Operation *op, const Target &target) {
  constexpr int64_t denseRows = 64;
  auto gemm = cast<tile::GemmOp>(op);
  GemmShape shape(gemm);
  if (tile::CpuGemmAttr tiles = chooseTiles(gemm, shape, target))
    return tiles;
  if (tile::CpuGemmAttr quads = chooseQuads(gemm, shape, target))
    return quads;
  // CPUs with AMX multiply pairs no faster than FMAs do, and widen rows while
  // they wait for memory.
  bool hasPairs =
      target.products == CpuProducts::Bf16 && cpu::hasBF16Products(gemm);
  int64_t n = 4 / shape.rowsPerColumn;
  // As many rows as fit in registers with their vectors widened.
  int64_t parts = hasPairs ? 1 : shape.parts;
  int64_t free = target.getNumRegisters() - parts;
  int64_t m = std::min<int64_t>(4, free / (4 + parts));
  // A scale block ends a loop, so that larger steps mean fewer iterations.
  int64_t k = shape.decodes ? std::gcd(target.lanes * 4, shape.decodedAtOnce)
                            : target.lanes * shape.parts;
  return tile::CpuGemmAttr::get(
      op->getContext(), m, n, k, chooseBlockN(shape, n), target.lanes,
      shape.grouped ? 0 : denseRows, hasPairs ? cpu::kPairs : 0);
}

moert::Expr gemmGrid(Operation *op, tile::ConfigAttr attr, const Target &) {
  auto config = cast<tile::CpuGemmAttr>(attr);
  GemmShape shape(cast<tile::GemmOp>(op));
  moert::Expr nTiles(
      llvm::divideCeil(shape.columns, config.getColumnsPerCta()));
  if (shape.grouped)
    return moert::Expr(shape.groups) * nTiles;
  return rowBlocks(config.getRowsPerCta()) * nTiles;
}

//===----------------------------------------------------------------------===//
// Schedules by rows: cpu.top_k, cpu.row_map, cpu.rms_norm, cpu.quantize,
// cpu.gather_reduce
//===----------------------------------------------------------------------===//

/// Rows per CTA of one of these configs.
int64_t getRowsPerCta(tile::ConfigAttr attr) {
  return llvm::TypeSwitch<Attribute, int64_t>(attr)
      .Case<tile::CpuTopKAttr, tile::CpuRowMapAttr, tile::CpuRmsNormAttr,
            tile::CpuLoraShrinkAttr, tile::CpuQuantizeAttr,
            tile::CpuPlaceIdsAttr, tile::CpuGatherRowsAttr,
            tile::CpuGatherReduceAttr>(
          [](auto config) { return config.getRowsPerCta(); });
}

/// Lanes of a config that has them.
int64_t getLanes(tile::ConfigAttr attr) {
  return llvm::TypeSwitch<Attribute, int64_t>(attr)
      .Case<tile::CpuTopKAttr, tile::CpuRowMapAttr, tile::CpuRmsNormAttr,
            tile::CpuLoraShrinkAttr, tile::CpuQuantizeAttr,
            tile::CpuGatherReduceAttr>(
          [](auto config) { return config.getLanes(); });
}

std::string rowsIllegal(Operation *, tile::ConfigAttr config,
                        const Target &target) {
  if (std::string reason = needsPositive("rows_per_cta", getRowsPerCta(config));
      !reason.empty())
    return reason;
  return needsTargetLanes(getLanes(config), target);
}

std::string quantizeIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &target) {
  std::string reason = declineKept(cast<tile::QuantizeOp>(op).getQuant());
  return reason.empty() ? rowsIllegal(op, config, target) : reason;
}

std::string onlyRowsIllegal(Operation *, tile::ConfigAttr config,
                            const Target &) {
  return needsPositive("rows_per_cta", getRowsPerCta(config));
}

std::string gatherReduceIllegal(Operation *op, tile::ConfigAttr attr,
                                const Target &target) {
  std::string reason = rowsIllegal(op, attr, target);
  if (!reason.empty())
    return reason;
  auto config = cast<tile::CpuGatherReduceAttr>(attr);
  int64_t columns = config.getRegisterColumns();
  if (columns % config.getLanes())
    return "register_columns = " + number(columns) +
           " is not a multiple of lanes = " + number(config.getLanes());
  int64_t accumulators = columns / config.getLanes();
  if (accumulators > target.getNumRegisters() / 2)
    return "register_columns = " + number(columns) + " needs " +
           number(accumulators) + " accumulators; give at most " +
           number(target.getNumRegisters() / 2) + " times lanes";
  return {};
}

tile::ConfigAttr chooseTopK(Operation *op, const Target &target) {
  return tile::CpuTopKAttr::get(op->getContext(), target.lanes, 8);
}

tile::ConfigAttr choosePlaceIds(Operation *op, const Target &) {
  return tile::CpuPlaceIdsAttr::get(op->getContext(), 16);
}

tile::ConfigAttr chooseRowMap(Operation *op, const Target &target) {
  return tile::CpuRowMapAttr::get(op->getContext(), target.lanes, 4);
}

tile::ConfigAttr chooseRmsNorm(Operation *op, const Target &target) {
  return tile::CpuRmsNormAttr::get(op->getContext(), target.lanes, 4);
}

tile::ConfigAttr chooseLoraShrink(Operation *op, const Target &target) {
  return tile::CpuLoraShrinkAttr::get(op->getContext(), target.lanes, 1);
}

tile::ConfigAttr chooseQuantize(Operation *op, const Target &target) {
  return tile::CpuQuantizeAttr::get(op->getContext(), target.lanes, 4);
}

tile::ConfigAttr chooseGatherRows(Operation *op, const Target &) {
  return tile::CpuGatherRowsAttr::get(op->getContext(), 4);
}

/// Enough accumulators to hide the latency of an addition.
tile::ConfigAttr chooseGatherReduce(Operation *op, const Target &target) {
  return tile::CpuGatherReduceAttr::get(op->getContext(), 4 * target.lanes,
                                        target.lanes, 4);
}

moert::Expr rowsGrid(Operation *, tile::ConfigAttr config, const Target &) {
  return rowBlocks(getRowsPerCta(config));
}

moert::Expr quantizeGrid(Operation *op, tile::ConfigAttr config,
                         const Target &) {
  return positionBlocks(cast<tile::QuantizeOp>(op).getTopK().value_or(1),
                        getRowsPerCta(config));
}

moert::Expr rmsNormGrid(Operation *op, tile::ConfigAttr config,
                        const Target &) {
  return positionBlocks(cast<tile::RmsNormOp>(op).getTopK().value_or(1),
                        getRowsPerCta(config));
}

moert::Expr loraShrinkGrid(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  return positionBlocks(cast<tile::LoraShrinkOp>(op).getTopK(),
                        getRowsPerCta(config));
}

moert::Expr gatherRowsGrid(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  return positionBlocks(cast<tile::GatherRowsOp>(op).getTopK().value_or(1),
                        getRowsPerCta(config));
}

//===----------------------------------------------------------------------===//
// cpu.sort_by_expert
//===----------------------------------------------------------------------===//

std::string sortIllegal(Operation *, tile::ConfigAttr, const Target &) {
  return {};
}

tile::ConfigAttr chooseSort(Operation *op, const Target &) {
  return tile::CpuSortByExpertAttr::get(op->getContext());
}

moert::Expr sortGrid(Operation *, tile::ConfigAttr, const Target &) {
  return 1;
}

//===----------------------------------------------------------------------===//
// cpu.tensor_scale: one CTA
//===----------------------------------------------------------------------===//

struct TensorScaleSchedule final : Schedule {
  TensorScaleSchedule() : Schedule("cpu.tensor_scale", "tile.tensor_scale") {}
  std::string whyConfigIllegal(Operation *, tile::ConfigAttr config,
                               const Target &target) const override {
    return needsTargetLanes(cast<tile::CpuTensorScaleAttr>(config).getLanes(),
                            target);
  }
  tile::ConfigAttr choose(Operation *op, const Target &target) const override {
    return tile::CpuTensorScaleAttr::get(op->getContext(), target.lanes);
  }
  moert::Expr grid(Operation *, tile::ConfigAttr,
                   const Target &) const override {
    return 1;
  }
};

/// `OrdersSums::getSumOrder`: each lane of a vector sums a part of K, and AMX
/// all of it.
tile::SumOrderAttr getGemmOrder(tile::GemmOp op, tile::ConfigAttr attr) {
  auto config = cast<tile::CpuGemmAttr>(attr);
  int64_t k = cpu::getInstructionK(config);
  if (cpu::usesTiles(config))
    return tile::SumOrderAttr::get(op.getContext(), tile::SumUnit::Dot, k,
                                   /*shuffled=*/0, /*splits=*/1,
                                   /*adjacent=*/0, /*promoted=*/0,
                                   /*joined=*/false);
  int64_t lanes = config.getLanes();
  bool isDecoded = cpu::decodesForFmas(op, config);
  int64_t adjacent =
      isDecoded ? 1
                : cpu::getLaneElements(getElementTypeOrSelf(op.getWeight()));
  tile::SumUnit unit = k == cpu::kFma ? tile::SumUnit::Fma : tile::SumUnit::Dot;
  return tile::SumOrderAttr::get(op.getContext(), unit, k,
                                 /*shuffled=*/0, lanes, adjacent,
                                 isDecoded ? cpu::getDecodedColumns(op) : 0,
                                 /*joined=*/isDecoded);
}

struct GemmSchedule final
    : ScheduleWith<ScheduleOf<gemmIllegal, chooseGemm, gemmGrid>, OrdersSums,
                   PredictsHostTime> {
  GemmSchedule() : ScheduleWith("cpu.gemm", "tile.gemm") {}
  Prediction predict(Operation *op, double bytes, double operations,
                     double readBytes, int64_t tokens, int64_t topK,
                     const HostRates &host) const override {
    return cpu::predictGemm(cast<tile::GemmOp>(op),
                            op->getAttrOfType<tile::CpuGemmAttr>("config"),
                            bytes, operations, readBytes, tokens, topK, host);
  }
  tile::SumOrderAttr getSumOrder(tile::GemmOp op,
                                 tile::ConfigAttr config) const override {
    return getGemmOrder(op, config);
  }
};

struct TopKSchedule final : ScheduleOf<rowsIllegal, chooseTopK, rowsGrid> {
  TopKSchedule() : ScheduleOf("cpu.top_k", "tile.top_k") {}
};

struct SortSchedule final : ScheduleOf<sortIllegal, chooseSort, sortGrid> {
  SortSchedule() : ScheduleOf("cpu.sort_by_expert", "tile.sort_by_expert") {}
};

struct PlaceIdsSchedule final
    : ScheduleOf<onlyRowsIllegal, choosePlaceIds, rowsGrid> {
  PlaceIdsSchedule() : ScheduleOf("cpu.place_ids", "tile.place_ids") {}
};

struct RowMapSchedule final : ScheduleOf<rowsIllegal, chooseRowMap, rowsGrid> {
  RowMapSchedule() : ScheduleOf("cpu.row_map", "tile.row_map") {}
};

struct RmsNormSchedule final
    : ScheduleOf<rowsIllegal, chooseRmsNorm, rmsNormGrid> {
  RmsNormSchedule() : ScheduleOf("cpu.rms_norm", "tile.rms_norm") {}
};

struct LoraShrinkSchedule final
    : ScheduleOf<rowsIllegal, chooseLoraShrink, loraShrinkGrid> {
  LoraShrinkSchedule() : ScheduleOf("cpu.lora_shrink", "tile.lora_shrink") {}
};

struct QuantizeSchedule final
    : ScheduleOf<quantizeIllegal, chooseQuantize, quantizeGrid> {
  QuantizeSchedule() : ScheduleOf("cpu.quantize", "tile.quantize") {}
};

struct GatherRowsSchedule final
    : ScheduleOf<onlyRowsIllegal, chooseGatherRows, gatherRowsGrid> {
  GatherRowsSchedule() : ScheduleOf("cpu.gather_rows", "tile.gather_rows") {}
};

struct GatherReduceSchedule final
    : ScheduleOf<gatherReduceIllegal, chooseGatherReduce, rowsGrid> {
  GatherReduceSchedule()
      : ScheduleOf("cpu.gather_reduce", "tile.gather_reduce") {}
};

} // namespace

const Schedule &moec::getCpuGemmSchedule() { return getOnly<GemmSchedule>(); }
const Schedule &moec::getCpuTopKSchedule() { return getOnly<TopKSchedule>(); }
const Schedule &moec::getCpuSortByExpertSchedule() {
  return getOnly<SortSchedule>();
}
const Schedule &moec::getCpuPlaceIdsSchedule() {
  return getOnly<PlaceIdsSchedule>();
}
const Schedule &moec::getCpuRowMapSchedule() {
  return getOnly<RowMapSchedule>();
}
const Schedule &moec::getCpuRmsNormSchedule() {
  return getOnly<RmsNormSchedule>();
}
const Schedule &moec::getCpuLoraShrinkSchedule() {
  return getOnly<LoraShrinkSchedule>();
}
const Schedule &moec::getCpuTensorScaleSchedule() {
  return getOnly<TensorScaleSchedule>();
}
const Schedule &moec::getCpuQuantizeSchedule() {
  return getOnly<QuantizeSchedule>();
}
const Schedule &moec::getCpuGatherRowsSchedule() {
  return getOnly<GatherRowsSchedule>();
}
const Schedule &moec::getCpuGatherReduceSchedule() {
  return getOnly<GatherReduceSchedule>();
}
