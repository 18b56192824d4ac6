//===- Sm80Schedules.cpp - ways to run a phase on every GPU -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ScheduleTables.h"
#include "Gemv.h"
#include "Sm80Copies.h"
#include "Sm80Routing.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

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

Contract::Contract(tile::ContractOp op, tile::ConfigAttr config)
    : isGrouped(static_cast<bool>(op.getOffsets())),
      planes(op.getLayout() ? 2 : 1) {
  auto weight = cast<MemRefType>(op.getWeight().getType());
  groups = isGrouped ? weight.getDimSize(0) : 1;
  depth = weight.getShape().back();
  columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  elementBytes = weight.getElementTypeBitWidth() / 8;
  m = config.getM();
  n = config.getN();
  k = config.getK();
  lanes = config.getLanes();
}

int64_t Contract::getSharedBytes() const {
  int64_t sums = planes * m * getSumStride() * 4;
  return std::max(kStages * getStageBytes(), sums);
}

Quantize::Quantize(tile::QuantizeOp op, tile::ConfigAttr config)
    : columns(cast<MemRefType>(op.getInput().getType()).getDimSize(1)),
      lanes(config.getLanes()), panel(config.getPanel()) {}

namespace {

//===----------------------------------------------------------------------===//
// sm80.contract
//===----------------------------------------------------------------------===//

/// Shared memory that a CTA can have on every architecture from sm_80 on.
constexpr int64_t kMaxSharedBytes = 99 * 1024;
/// Accumulators of a thread, next to which addresses and fragments fit.
constexpr int64_t kMaxAccumulators = 128;

std::string needsLanes(tile::ConfigAttr config, MemRefType result) {
  int64_t most = getVectorLanes(result);
  if (config.getLanes() > 0 && most % config.getLanes() == 0)
    return {};
  return "lanes = " + number(config.getLanes()) + "; give a divisor of " +
         number(most);
}

/// Why a shape does not suit e4m3, whose step is a block of scales, with a
/// CTA's columns in one; empty if it does.
std::string scalesIllegal(tile::ContractOp op, const Contract &shape) {
  if (std::string reason = declineQuant(op); !reason.empty())
    return reason;
  if (!shape.hasScales())
    return {};
  moe::ScaleGroup group = moe::getScaleGroup(op.getWeightQuantAttr());
  if (shape.k != group.columns)
    return "k = " + number(shape.k) + "; give the " + number(group.columns) +
           " elements that share a scale";
  bool areMixed = op.getLayout() && op.getLayoutAttr().getOrder() ==
                                        moe::GateUpOrder::Interleaved;
  int64_t columns = areMixed ? group.rows / 2 : group.rows;
  if (columns % shape.n)
    return "n = " + number(shape.n) + "; give a divisor of the " +
           number(columns) + " columns that share a scale";
  return {};
}

std::string contractIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &) {
  auto contract = cast<tile::ContractOp>(op);
  if (std::string reason = declineQuantized(contract); !reason.empty())
    return reason;
  if (std::string reason = declineSomeGroups(contract); !reason.empty())
    return reason;
  Contract shape(contract, config);
  auto result = cast<MemRefType>(contract.getResult().getType());
  for (auto [field, value] : {std::pair<StringRef, int64_t>{"m", config.getM()},
                              {"n", config.getN()}})
    if (value <= 0 || value % 32)
      return (field + " = " + Twine(value) + "; give a multiple of 32").str();
  int64_t rowBytes = shape.k * shape.elementBytes;
  if (rowBytes != 64 && rowBytes != 128)
    return "k = " + number(shape.k) + " is " + number(rowBytes) +
           " bytes of a row; give 64 or 128 bytes";
  if (std::string reason = needsLanes(config, result); !reason.empty())
    return reason;
  if (std::string reason = scalesIllegal(contract, shape); !reason.empty())
    return reason;
  int64_t sums = shape.m * shape.getWeightRows() / Contract::kThreads;
  // Those of a block, and all.
  if (shape.hasScales())
    sums *= 2;
  if (sums > kMaxAccumulators)
    return "m = " + number(shape.m) + ", n = " + number(shape.n) + " needs " +
           number(sums) + " accumulators per thread; give at most " +
           number(kMaxAccumulators);
  if (shape.getSharedBytes() > kMaxSharedBytes)
    return "m = " + number(shape.m) + ", n = " + number(shape.n) +
           ", k = " + number(shape.k) + " needs " +
           number(shape.getSharedBytes()) +
           " bytes of shared memory; give at most " + number(kMaxSharedBytes);
  return {};
}

/// Products with few columns, such as a router's, get narrow tiles: there are
/// few CTAs.
tile::ConfigAttr chooseContract(Operation *op, const Target &) {
  auto contract = cast<tile::ContractOp>(op);
  auto weight = cast<MemRefType>(contract.getWeight().getType());
  auto result = cast<MemRefType>(contract.getResult().getType());
  constexpr int64_t fewColumns = 1024;
  bool isNarrow = result.getDimSize(1) <= fewColumns && !contract.getOffsets();
  int64_t rowBytes = weight.getElementTypeBitWidth() <= 16 ? 128 : 64;
  return makeConfig(op, "sm80.contract", /*m=*/64, /*n=*/isNarrow ? 32 : 64,
                    rowBytes * 8 / weight.getElementTypeBitWidth(), /*panel=*/0,
                    getVectorLanes(result), /*rows=*/0);
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
  if (moe::getScaleGroup(quantize.getQuant()).columns != Quantize::kGroup)
    return "scales are of other than " + number(Quantize::kGroup) +
           " neighbours, and those are what a part of a warp quantizes";
  if (std::string reason = needsLanes(config, input); !reason.empty())
    return reason;
  Quantize shape(quantize, config);
  int64_t step = shape.getGroupsAtOnce() * Quantize::kGroup;
  constexpr int64_t mostSteps = 8;
  if (shape.panel > 0 && shape.panel % step == 0 &&
      shape.panel <= mostSteps * step)
    return {};
  return "panel = " + number(shape.panel) + "; give a multiple of " +
         number(step) + " up to " + number(mostSteps * step);
}

/// Four vectors per thread: as much in flight as memory needs, and few CTAs.
tile::ConfigAttr chooseQuantize(Operation *op, const Target &) {
  auto quantize = cast<tile::QuantizeOp>(op);
  constexpr int64_t vectors = 4;
  int64_t lanes =
      getVectorLanes(cast<MemRefType>(quantize.getInput().getType()));
  auto makePanel = [&](int64_t panel) {
    return makeConfig(op, "sm80.quantize", 0, 0, 0, panel, lanes, 0);
  };
  Quantize shape(quantize, makePanel(0));
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
  moert::Expr all = moert::Expr::ceilDiv(
      moert::Expr::tokens() * moert::Expr(rowsPerToken * shape.getRowGroups()),
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

struct ContractSchedule final : Schedule {
  ContractSchedule() : Schedule("sm80.contract", "tile.contract") {}
  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &target) const override {
    return contractIllegal(op, config, target);
  }
  tile::ConfigAttr choose(Operation *op, const Target &target) const override {
    return chooseContract(op, target);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return contractGrid(op, config, target);
  }
  int64_t block(Operation *op, tile::ConfigAttr config) const override {
    return contractBlock(op, config);
  }
  int64_t shared(Operation *op, tile::ConfigAttr config) const override {
    return contractShared(op, config);
  }
};

struct RowMapSchedule final : Schedule {
  RowMapSchedule() : Schedule("sm80.row_map", "tile.row_map") {}
  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &target) const override {
    return columnsIllegal(op, config, target);
  }
  tile::ConfigAttr choose(Operation *op, const Target &target) const override {
    return chooseRowMap(op, target);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return columnsGrid(op, config, target);
  }
  int64_t block(Operation *op, tile::ConfigAttr config) const override {
    return columnsBlock(op, config);
  }
};

struct QuantizeSchedule final : ScheduleWith<Schedule, CopiesRows> {
  QuantizeSchedule() : ScheduleWith("sm80.quantize", "tile.quantize") {}
  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &target) const override {
    return quantizeIllegal(op, config, target);
  }
  tile::ConfigAttr choose(Operation *op, const Target &target) const override {
    return chooseQuantize(op, target);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return quantizeGrid(op, config, target);
  }
  int64_t block(Operation *op, tile::ConfigAttr config) const override {
    return quantizeBlock(op, config);
  }
  double predict(Operation *op, tile::LoadAttr load, int64_t tokens,
                 Routing routing, const DeviceRates &device) const override {
    return predictQuantize(cast<tile::QuantizeOp>(op), load, tokens, routing,
                           device);
  }
};

struct GatherRowsSchedule final : ScheduleWith<Schedule, CopiesRows> {
  GatherRowsSchedule() : ScheduleWith("sm80.gather_rows", "tile.gather_rows") {}
  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &target) const override {
    return gatherRowsIllegal(op, config, target);
  }
  tile::ConfigAttr choose(Operation *op, const Target &target) const override {
    return chooseGatherRows(op, target);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return gatherRowsGrid(op, config, target);
  }
  int64_t block(Operation *op, tile::ConfigAttr config) const override {
    return gatherRowsBlock(op, config);
  }
  double predict(Operation *op, tile::LoadAttr load, int64_t tokens,
                 Routing routing, const DeviceRates &device) const override {
    return predictGatherRows(cast<tile::GatherRowsOp>(op), load, tokens,
                             routing, device);
  }
};

struct GatherReduceSchedule final : Schedule {
  GatherReduceSchedule()
      : Schedule("sm80.gather_reduce", "tile.gather_reduce") {}
  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &target) const override {
    return gatherReduceIllegal(op, config, target);
  }
  tile::ConfigAttr choose(Operation *op, const Target &target) const override {
    return chooseGatherReduce(op, target);
  }
  moert::Expr grid(Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return gatherReduceGrid(op, config, target);
  }
  int64_t block(Operation *op, tile::ConfigAttr config) const override {
    return columnsBlock(op, config);
  }
};

} // namespace

ArrayRef<const Schedule *> moec::getSm80Schedules() {
  static const GemvSchedule gemv;
  static const ContractSchedule contract;
  static const RowMapSchedule rowMap;
  static const QuantizeSchedule quantize;
  static const GatherRowsSchedule gatherRows;
  static const GatherReduceSchedule gatherReduce;
  static const std::vector<const Schedule *> all = [] {
    std::vector<const Schedule *> schedules{&contract, &gemv};
    llvm::append_range(schedules, getRoutingSchedules());
    schedules.insert(schedules.end(),
                     {&rowMap, &quantize, &gatherRows, &gatherReduce});
    return schedules;
  }();
  return all;
}
