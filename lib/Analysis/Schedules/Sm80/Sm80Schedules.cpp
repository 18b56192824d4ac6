//===- Sm80Schedules.cpp - ways to run a phase on every GPU -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ScheduleTables.h"
#include "Gemv.h"
#include "Sm80Routing.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <numeric>
#include <tuple>

using namespace mlir;
using namespace moec;
using namespace moec::sm80;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

int64_t sm80::getVectorLanes(MemRefType result) {
  int64_t lanes = 16 / (result.getElementTypeBitWidth() / 8);
  while (result.getDimSize(1) % lanes)
    lanes /= 2;
  return lanes;
}

/// Whether the columns of a CTA and plane, of which there are `n`, have scales
/// of the weight of their own.
static bool haveOwnScales(tile::ContractOp op, int64_t n) {
  int64_t rows = moe::getScaleGroup(op.getWeightQuantAttr()).rows;
  if (rows == moe::ScaleGroup::kAll)
    return false;
  bool areMixed = op.getLayout() && op.getLayoutAttr().getOrder() ==
                                        moe::GateUpOrder::Interleaved;
  return rows % (areMixed ? 2 * n : n);
}

Contract::Contract(tile::ContractOp op, tile::ConfigAttr config)
    : isGrouped(static_cast<bool>(op.getOffsets())),
      planes(op.getLayout() ? 2 : 1), m(config.getM()), n(config.getN()),
      k(config.getK()), lanes(config.getLanes()), compute(getDecodedType(op)),
      scales(op), partDepth(k) {
  auto weightType = cast<MemRefType>(op.getWeight().getType());
  auto inputType = cast<MemRefType>(op.getInput().getType());
  groups = isGrouped ? weightType.getDimSize(0) : 1;
  depth = weightType.getShape().back();
  columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  auto getRows = [&](MemRefType type) {
    return Rows{type.getElementTypeBitWidth() / 8, depth, k};
  };
  input = getRows(inputType);
  weight = getRows(weightType);
  partDepth = std::gcd(k, moe::getCommonColumns(op.getInputQuantAttr(),
                                                op.getWeightQuantAttr()));
  hasColumnScales = scales.weight == ScaleTime::InLoop && haveOwnScales(op, n);
}

int64_t Contract::getSharedBytes() const {
  int64_t sums = planes * m * getSumStride() * 4;
  return std::max(kStages * getStageBytes(), sums);
}

Quantize::Quantize(tile::QuantizeOp op, tile::ConfigAttr config)
    : columns(cast<MemRefType>(op.getInput().getType()).getDimSize(1)),
      lanes(config.getLanes()), panel(config.getPanel()),
      size(moe::getScaleGroup(op.getQuant()).columns) {}

namespace {

//===----------------------------------------------------------------------===//
// sm80.contract
//===----------------------------------------------------------------------===//

/// Shared memory that a CTA can have on every architecture from sm_80 on.
constexpr int64_t kMaxSharedBytes = 99 * 1024;

std::string needsLanes(tile::ConfigAttr config, MemRefType result) {
  int64_t most = getVectorLanes(result);
  if (config.getLanes() > 0 && most % config.getLanes() == 0)
    return {};
  return "lanes = " + number(config.getLanes()) + "; give a divisor of " +
         number(most);
}

/// What no config can mend; empty if there is nothing.
std::string declineContract(tile::ContractOp op) {
  if (std::string reason = declineQuantized(op); !reason.empty())
    return reason;
  if (std::string reason = declineSomeGroups(op); !reason.empty())
    return reason;
  for (auto [name, quant] :
       {std::pair<StringRef, moe::QuantAttr>{"input", op.getInputQuantAttr()},
        {"weight", op.getWeightQuantAttr()}})
    if (!isDecodedOnGpu(quant))
      return ("the " + name + " is quantized otherwise than is decoded: " +
              describeDecodedOnGpu())
          .str();
  return {};
}

/// Why the step does not suit the operands; empty if it does.
std::string stepIllegal(const Contract &shape) {
  int64_t bytes = std::max(shape.input.bytes, shape.weight.bytes);
  int64_t rowBytes = shape.k * bytes;
  if (rowBytes != 64 && rowBytes != 128)
    return "k = " + number(shape.k) + " is " + number(rowBytes) +
           " bytes of a row; give 64 or 128 bytes";
  for (auto [field, value, rows] : {std::tuple("m", shape.m, shape.input),
                                    std::tuple("n", shape.n, shape.weight)})
    if (value % rows.getRowsPerCopy())
      return std::string(field) + " = " + number(value) +
             " with k = " + number(shape.k) + "; give a multiple of the " +
             number(rows.getRowsPerCopy()) + " rows that are copied at a time";
  if (shape.k % kDecodedColumns && shape.input.bytes != shape.weight.bytes)
    return "k = " + number(shape.k) + "; give a multiple of the " +
           number(kDecodedColumns) + " elements that are decoded at once";
  return {};
}

std::string contractIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &) {
  auto contract = cast<tile::ContractOp>(op);
  if (std::string reason = declineContract(contract); !reason.empty())
    return reason;
  Contract shape(contract, config);
  auto result = cast<MemRefType>(contract.getResult().getType());
  for (auto [field, value] : {std::pair<StringRef, int64_t>{"m", config.getM()},
                              {"n", config.getN()}})
    if (value <= 0 || value % 32)
      return (field + " = " + Twine(value) + "; give a multiple of 32").str();
  if (shape.k <= 0)
    return needsPositive("k", shape.k);
  if (std::string reason = stepIllegal(shape); !reason.empty())
    return reason;
  if (std::string reason = needsLanes(config, result); !reason.empty())
    return reason;
  int64_t sums = shape.getAccumulators();
  if (sums > shape.getMaxAccumulators())
    return "m = " + number(shape.m) + ", n = " + number(shape.n) + " needs " +
           number(sums) + " accumulators per thread; give at most " +
           number(shape.getMaxAccumulators());
  if (shape.getSharedBytes() > kMaxSharedBytes)
    return "m = " + number(shape.m) + ", n = " + number(shape.n) +
           ", k = " + number(shape.k) + " needs " +
           number(shape.getSharedBytes()) +
           " bytes of shared memory; give at most " + number(kMaxSharedBytes);
  return {};
}

/// Products with few columns, such as a router's, get narrow tiles: there are
/// few CTAs. So that the threads have a chunk each to copy, decoded operands
/// next to f32 are no exception.
tile::ConfigAttr chooseContract(Operation *op, const Target &) {
  auto contract = cast<tile::ContractOp>(op);
  auto getBits = [](Value operand) {
    return cast<MemRefType>(operand.getType()).getElementTypeBitWidth();
  };
  auto result = cast<MemRefType>(contract.getResult().getType());
  int64_t inputBits = getBits(contract.getInput());
  int64_t weightBits = getBits(contract.getWeight());
  int64_t bits = std::max(inputBits, weightBits);
  constexpr int64_t fewColumns = 1024;
  bool isNarrow = result.getDimSize(1) <= fewColumns &&
                  !contract.getOffsets() && weightBits * 4 > bits;
  bool isPlainF32 = inputBits == weightBits && bits > 16;
  int64_t rowBytes = isPlainF32 ? 64 : 128;
  auto make = [&](int64_t m) {
    return makeConfig(op, "sm80.contract", m, /*n=*/isNarrow ? 32 : 64,
                      rowBytes * 8 / bits, /*panel=*/0, getVectorLanes(result),
                      /*rows=*/0);
  };
  constexpr int64_t most = 64, fewer = 32;
  Contract shape(contract, make(most));
  bool fits = shape.getAccumulators() <= shape.getMaxAccumulators();
  return make(fits ? most : fewer);
}

moert::Expr contractGrid(Operation *op, tile::ConfigAttr config,
                         const Target &) {
  Contract shape(cast<tile::ContractOp>(op), config);
  moert::Expr panels(shape.getPanels());
  if (shape.isGrouped)
    return moert::Expr(shape.groups) * panels;
  return rowBlocks(shape.m) * panels;
}

int64_t contractBlock(Operation *, tile::ConfigAttr) {
  return Contract::kThreads;
}

int64_t contractShared(Operation *op, tile::ConfigAttr config) {
  return Contract(cast<tile::ContractOp>(op), config).getSharedBytes();
}

int64_t noShared(Operation *, tile::ConfigAttr) { return 0; }

//===----------------------------------------------------------------------===//
// sm80.row_map, sm80.gather_reduce: a CTA owns `panel` columns of a token, or
// of every `rows`-th one, a thread `lanes` of them
//===----------------------------------------------------------------------===//

MemRefType getResultType(Operation *op) {
  if (auto map = dyn_cast<tile::RowMapOp>(op))
    return cast<MemRefType>(map.getResult().getType());
  return cast<MemRefType>(cast<tile::GatherReduceOp>(op).getResult().getType());
}

std::string columnsIllegal(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  if (std::string reason = needsLanes(config, getResultType(op));
      !reason.empty())
    return reason;
  constexpr int64_t mostThreads = 1024;
  int64_t step = kWarp * config.getLanes();
  if (config.getPanel() > 0 && config.getPanel() % step == 0 &&
      config.getPanel() / config.getLanes() <= mostThreads)
    return {};
  return "panel = " + number(config.getPanel()) + "; give a multiple of " +
         number(step) + " up to " + number(mostThreads * config.getLanes());
}

std::string gatherReduceIllegal(Operation *op, tile::ConfigAttr config,
                                const Target &target) {
  if (config.getRows() <= 0)
    return "rows = " + number(config.getRows()) +
           "; give 1 or more tokens at a time";
  return columnsIllegal(op, config, target);
}

int64_t choosePanel(Operation *op) {
  constexpr int64_t mostThreads = 128;
  MemRefType result = getResultType(op);
  int64_t lanes = getVectorLanes(result);
  return std::min<int64_t>(llvm::alignTo(result.getDimSize(1) / lanes, kWarp),
                           mostThreads) *
         lanes;
}

int64_t getPanels(Operation *op, int64_t panel) {
  return llvm::divideCeil(getResultType(op).getDimSize(1), panel);
}

tile::ConfigAttr chooseRowMap(Operation *op, const Target &) {
  return makeConfig(op, "sm80.row_map", 0, 0, 0, choosePanel(op),
                    getVectorLanes(getResultType(op)), 0);
}

/// CTAs for several times as many as fit at once, so that they end together;
/// of many tokens each takes several.
tile::ConfigAttr chooseGatherReduce(Operation *op, const Target &) {
  constexpr int64_t ctas = 8192;
  int64_t panel = choosePanel(op);
  return makeConfig(op, "sm80.gather_reduce", 0, 0, 0, panel,
                    getVectorLanes(getResultType(op)),
                    llvm::divideCeil(ctas, getPanels(op, panel)));
}

moert::Expr columnsGrid(Operation *op, tile::ConfigAttr config,
                        const Target &) {
  return moert::Expr::tokens() * moert::Expr(getPanels(op, config.getPanel()));
}

moert::Expr gatherReduceGrid(Operation *op, tile::ConfigAttr config,
                             const Target &) {
  return moert::Expr::min(moert::Expr::tokens(), config.getRows()) *
         moert::Expr(getPanels(op, config.getPanel()));
}

int64_t columnsBlock(Operation *, tile::ConfigAttr config) {
  return config.getPanel() / config.getLanes();
}

//===----------------------------------------------------------------------===//
// sm80.quantize
//===----------------------------------------------------------------------===//

std::string quantizeIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &) {
  auto quantize = cast<tile::QuantizeOp>(op);
  auto input = cast<MemRefType>(quantize.getInput().getType());
  Quantize shape(quantize, config);
  if (!shape.areRows() && shape.size != Quantize::kGroup)
    return "scales are of other than " + number(Quantize::kGroup) +
           " neighbours, which a part of a warp quantizes, or whole rows";
  if (std::string reason = needsLanes(config, input); !reason.empty())
    return reason;
  if (shape.areRows()) {
    int64_t atOnce = Quantize::kThreads * shape.lanes;
    return shape.panel == atOnce
               ? std::string()
               : "panel = " + number(shape.panel) +
                     " of whole rows; give the " + number(atOnce) +
                     " elements that threads take at once";
  }
  int64_t step = shape.getGroupsAtOnce() * Quantize::kGroup;
  constexpr int64_t mostSteps = 8;
  if (shape.panel > 0 && shape.panel % step == 0 &&
      shape.panel <= mostSteps * step)
    return {};
  return "panel = " + number(shape.panel) + "; give a multiple of " +
         number(step) + " up to " + number(mostSteps * step);
}

/// Four vectors per thread: as much in flight as memory needs, and few CTAs. Of
/// whole rows a thread has so many in turn.
tile::ConfigAttr chooseQuantize(Operation *op, const Target &) {
  auto quantize = cast<tile::QuantizeOp>(op);
  constexpr int64_t vectors = 4;
  int64_t lanes =
      getVectorLanes(cast<MemRefType>(quantize.getInput().getType()));
  auto makePanel = [&](int64_t panel) {
    return makeConfig(op, "sm80.quantize", 0, 0, 0, panel, lanes, 0);
  };
  Quantize shape(quantize, makePanel(0));
  if (shape.areRows())
    return makePanel(Quantize::kThreads * lanes);
  int64_t steps = std::max<int64_t>(vectors / shape.getVectors(), 1);
  return makePanel(steps * shape.getGroupsAtOnce() * Quantize::kGroup);
}

/// No more CTAs than fit at once: of the rows that there may be, a rank of
/// several has few, and CTAs without any take time too.
moert::Expr quantizeGrid(Operation *op, tile::ConfigAttr config,
                         const Target &target) {
  auto quantize = cast<tile::QuantizeOp>(op);
  Quantize shape(quantize, config);
  int64_t rowsPerToken = quantize.getTopK().value_or(1);
  moert::Expr tokens = moert::Expr::tokens();
  moert::Expr all =
      shape.areRows()
          ? tokens * moert::Expr(rowsPerToken)
          : moert::Expr::ceilDiv(
                tokens * moert::Expr(rowsPerToken * shape.getRowGroups()),
                shape.getCtaGroups());
  constexpr int64_t perMultiprocessor = 16;
  int64_t most = perMultiprocessor * target.getMultiprocessors();
  return most ? moert::Expr::min(all, most) : all;
}

int64_t quantizeBlock(Operation *, tile::ConfigAttr) {
  return Quantize::kThreads;
}

//===----------------------------------------------------------------------===//
// sm80.gather_rows: `rows` warps, a row each
//===----------------------------------------------------------------------===//

std::string gatherRowsIllegal(Operation *, tile::ConfigAttr config,
                              const Target &) {
  constexpr int64_t mostWarps = 32;
  if (config.getRows() > 0 && config.getRows() <= mostWarps)
    return {};
  return "rows = " + number(config.getRows()) + "; give 1 to " +
         number(mostWarps) + " warps";
}

tile::ConfigAttr chooseGatherRows(Operation *op, const Target &) {
  constexpr int64_t warps = 8;
  return makeConfig(op, "sm80.gather_rows", 0, 0, 0, 0, 0, warps);
}

moert::Expr gatherRowsGrid(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  return positionBlocks(cast<tile::GatherRowsOp>(op).getTopK(),
                        config.getRows());
}

int64_t gatherRowsBlock(Operation *, tile::ConfigAttr config) {
  return config.getRows() * kWarp;
}

constexpr Schedule kSm80Schedules[] = {
    {"sm80.contract", "tile.contract", contractIllegal, chooseContract,
     contractGrid, contractBlock, contractShared},
    {kGemv, "tile.contract", gemvIllegal, chooseGemv, gemvGrid, gemvBlock,
     gemvShared, /*tensorMaps=*/nullptr, /*candidates=*/nullptr,
     /*costModel=*/nullptr, isGemvPreferred},
    {"sm80.top_k", "tile.top_k", topKIllegal, chooseTopK, topKGrid, chunkBlock,
     noShared, /*tensorMaps=*/nullptr, /*candidates=*/nullptr,
     /*costModel=*/nullptr, /*isPreferred=*/nullptr, /*countsIds=*/false,
     /*join=*/nullptr, /*quantizeResult=*/nullptr, /*permuteRows=*/nullptr,
     /*chunks=*/nullptr, quantizeAhead, whyNotAhead},
    {"sm80.count_slots", "tile.count_slots", countSlotsIllegal,
     chooseCountSlots, countSlotsGrid, chunkBlock, noShared,
     /*tensorMaps=*/nullptr, /*candidates=*/nullptr, /*costModel=*/nullptr,
     /*isPreferred=*/nullptr, /*countsIds=*/false, /*join=*/nullptr,
     /*quantizeResult=*/nullptr, /*permuteRows=*/nullptr, /*chunks=*/nullptr,
     countRouted, whyNotCounted},
    {"sm80.rank", "tile.rank", rankIllegal, chooseRank, rankGrid, chunkBlock,
     noShared, /*tensorMaps=*/nullptr, /*candidates=*/nullptr,
     /*costModel=*/nullptr, /*isPreferred=*/nullptr, /*countsIds=*/false,
     /*join=*/nullptr, /*quantizeResult=*/nullptr, /*permuteRows=*/nullptr,
     rankChunks, rankRouted, whyNotRanked},
    {"sm80.row_map", "tile.row_map", columnsIllegal, chooseRowMap, columnsGrid,
     columnsBlock, noShared},
    {"sm80.quantize", "tile.quantize", quantizeIllegal, chooseQuantize,
     quantizeGrid, quantizeBlock, noShared},
    {"sm80.gather_rows", "tile.gather_rows", gatherRowsIllegal,
     chooseGatherRows, gatherRowsGrid, gatherRowsBlock, noShared},
    {"sm80.gather_reduce", "tile.gather_reduce", gatherReduceIllegal,
     chooseGatherReduce, gatherReduceGrid, columnsBlock, noShared},
};

} // namespace

ArrayRef<Schedule> moec::getSm80Schedules() { return kSm80Schedules; }
