//===- Choice.cpp - choice of row_map and gathers ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Interface/ScheduleTables.h"
#include "Schedules/Quantize/CopyCost.h"
#include "moec/Schedules/Rewrites/RunPhases.h"
#include "moec/Schedules/RowVectors.h"
#include "moec/Support/GpuInstructions.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace moec;
using namespace moec::anygpu;

namespace {

//===----------------------------------------------------------------------===//
// gpu.row_map, gpu.gather_reduce: a CTA has columns of a token, or of every
// `token_stride`-th one, a thread a vector of them
//===----------------------------------------------------------------------===//

/// The rows that CTAs divide: those of the result, or of a slot of it.
MemRefType getResultType(Operation *op) {
  if (auto map = dyn_cast<tile::RowMapOp>(op))
    return cast<MemRefType>(map.getResult().getType());
  auto reduce = cast<tile::GatherReduceOp>(op);
  return cast<MemRefType>(
      (reduce.getUnreduced() ? reduce.getRows() : reduce.getResult())
          .getType());
}

/// Common to both: columns per CTA and per thread.
struct Columns {
  explicit Columns(tile::ConfigAttr attr) {
    llvm::TypeSwitch<Attribute>(attr)
        .Case<tile::GpuRowMapAttr, tile::GpuGatherReduceAttr>([&](auto config) {
          perCta = config.getColumnsPerCta();
          perThread = config.getVectorWidth();
        });
  }

  int64_t perCta = 0, perThread = 0;
};

std::string columnsIllegal(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  Columns columns(config);
  if (std::string reason = whyNotLanes(columns.perThread, getResultType(op));
      !reason.empty())
    return reason;
  constexpr int64_t maxThreads = 1024;
  int64_t step = kWarp * columns.perThread;
  if (columns.perCta > 0 && columns.perCta % step == 0 &&
      columns.perCta / columns.perThread <= maxThreads)
    return {};
  return "columns_per_cta = " + number(columns.perCta) +
         "; give a multiple of " + number(step) + " up to " +
         number(maxThreads * columns.perThread);
}

int64_t getTokenStride(tile::ConfigAttr config) {
  return cast<tile::GpuGatherReduceAttr>(config).getTokenStride();
}

/// The gemm before the op in its kernel that signals to it; null if there is
/// none.
tile::GemmOp getSummedProduct(Operation *op) {
  Value counter = cast<tile::GatherReduceOp>(op).getAwaits();
  auto product = dyn_cast_or_null<tile::GemmOp>(op->getPrevNode());
  return counter && product && product.getSignals() == counter ? product
                                                               : nullptr;
}

std::string gatherReduceIllegal(Operation *op, tile::ConfigAttr config,
                                const Target &target) {
  if (getTokenStride(config) <= 0)
    return "token_stride = " + number(getTokenStride(config)) +
           "; give at least 1";
  if (cast<tile::GatherReduceOp>(op).getAwaits() && !getSummedProduct(op))
    return "it has 'awaits', but no gemm before it signals by that counter; "
           "run tile-rewrite-launches";
  return columnsIllegal(op, config, target);
}

int64_t chooseCtaColumns(Operation *op) {
  constexpr int64_t maxThreads = 128;
  MemRefType result = getResultType(op);
  int64_t lanes = getVectorLanes(result);
  return std::min<int64_t>(llvm::alignTo(result.getDimSize(1) / lanes, kWarp),
                           maxThreads) *
         lanes;
}

int64_t getColumnTiles(Operation *op, int64_t ctaColumns) {
  return llvm::divideCeil(getResultType(op).getDimSize(1), ctaColumns);
}

tile::ConfigAttr chooseRowMap(Operation *op, const Target &) {
  return tile::GpuRowMapAttr::get(op->getContext(), chooseCtaColumns(op),
                                  getVectorLanes(getResultType(op)));
}

/// CTAs for several times as many as fit at once, so that they end together;
/// with many tokens each takes several.
tile::ConfigAttr chooseGatherReduce(Operation *op, const Target &) {
  constexpr int64_t ctas = 8192;
  int64_t ctaColumns = chooseCtaColumns(op);
  return tile::GpuGatherReduceAttr::get(
      op->getContext(), ctaColumns, getVectorLanes(getResultType(op)),
      llvm::divideCeil(ctas, getColumnTiles(op, ctaColumns)));
}

moert::Expr columnsGrid(Operation *op, tile::ConfigAttr config,
                        const Target &) {
  return moert::Expr::tokens() *
         moert::Expr(getColumnTiles(op, Columns(config).perCta));
}

moert::Expr gatherReduceGrid(Operation *op, tile::ConfigAttr config,
                             const Target &) {
  return moert::Expr::min(moert::Expr::tokens(), getTokenStride(config)) *
         moert::Expr(getColumnTiles(op, Columns(config).perCta));
}

int64_t columnsBlock(Operation *, tile::ConfigAttr config) {
  Columns columns(config);
  return columns.perCta / columns.perThread;
}

//===----------------------------------------------------------------------===//
// gpu.gather_rows
//===----------------------------------------------------------------------===//

int64_t getGatherWarps(tile::ConfigAttr config) {
  return cast<tile::GpuGatherRowsAttr>(config).getWarps();
}

std::string gatherRowsIllegal(Operation *, tile::ConfigAttr config,
                              const Target &) {
  constexpr int64_t maxWarps = 32;
  if (getGatherWarps(config) > 0 && getGatherWarps(config) <= maxWarps)
    return {};
  return "warps = " + number(getGatherWarps(config)) + "; give 1 to " +
         number(maxWarps);
}

tile::ConfigAttr chooseGatherRows(Operation *op, const Target &) {
  constexpr int64_t warps = 8;
  return tile::GpuGatherRowsAttr::get(op->getContext(), warps);
}

moert::Expr gatherRowsGrid(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  return positionBlocks(cast<tile::GatherRowsOp>(op).getTopK().value_or(1),
                        getGatherWarps(config));
}

int64_t gatherRowsBlock(Operation *, tile::ConfigAttr config) {
  return getGatherWarps(config) * kWarp;
}

//===----------------------------------------------------------------------===//
// gpu.rms_norm
//===----------------------------------------------------------------------===//

MemRefType getNormType(Operation *op) {
  return cast<MemRefType>(cast<tile::RmsNormOp>(op).getResult().getType());
}

constexpr int64_t kMaxNormThreads = 512;

std::string rmsNormIllegal(Operation *op, tile::ConfigAttr attr,
                           const Target &) {
  auto config = cast<tile::GpuRmsNormAttr>(attr);
  if (std::string reason =
          whyNotLanes(config.getVectorWidth(), getNormType(op));
      !reason.empty())
    return reason;
  int64_t threads = config.getThreads();
  if (threads > 0 && threads % kWarp == 0 && threads <= kMaxNormThreads)
    return {};
  return "threads = " + number(threads) + "; give a multiple of " +
         number(kWarp) + " up to " + number(kMaxNormThreads);
}

tile::ConfigAttr chooseRmsNorm(Operation *op, const Target &) {
  MemRefType type = getNormType(op);
  int64_t lanes = getVectorLanes(type);
  int64_t threads = std::min<int64_t>(
      llvm::alignTo(type.getDimSize(1) / lanes, kWarp), kMaxNormThreads);
  return tile::GpuRmsNormAttr::get(op->getContext(), threads, lanes);
}

/// A CTA for each row, but no more than a device works on at once.
moert::Expr rmsNormGrid(Operation *op, tile::ConfigAttr, const Target &target) {
  moert::Expr rows =
      moert::Expr::tokens() *
      moert::Expr(cast<tile::RmsNormOp>(op).getTopK().value_or(1));
  constexpr int64_t perMultiprocessor = 16;
  int64_t most = perMultiprocessor * target.getMultiprocessors();
  return most ? moert::Expr::min(rows, most) : rows;
}

int64_t rmsNormBlock(Operation *, tile::ConfigAttr config) {
  return cast<tile::GpuRmsNormAttr>(config).getThreads();
}

struct RmsNormSchedule final
    : ScheduleOf<rmsNormIllegal, chooseRmsNorm, rmsNormGrid, rmsNormBlock> {
  RmsNormSchedule() : ScheduleOf("gpu.rms_norm", "tile.rms_norm") {}
};

struct RowMapSchedule final
    : ScheduleOf<columnsIllegal, chooseRowMap, columnsGrid, columnsBlock> {
  RowMapSchedule() : ScheduleOf("gpu.row_map", "tile.row_map") {}
};

struct GatherRowsSchedule final
    : ScheduleWith<ScheduleOf<gatherRowsIllegal, chooseGatherRows,
                              gatherRowsGrid, gatherRowsBlock>,
                   PredictsTime> {
  GatherRowsSchedule() : ScheduleWith("gpu.gather_rows", "tile.gather_rows") {}
  double predict(Operation *op, tile::LoadAttr load, int64_t tokens,
                 Routing routing, const DeviceRates &device) const override {
    return predictGatherRows(cast<tile::GatherRowsOp>(op), load, tokens,
                             routing, device);
  }
};

struct GatherReduceSchedule final
    : ScheduleWith<ScheduleOf<gatherReduceIllegal, chooseGatherReduce,
                              gatherReduceGrid, columnsBlock>,
                   RunsPhases> {
  GatherReduceSchedule()
      : ScheduleWith("gpu.gather_reduce", "tile.gather_reduce") {}
  Operation *findRunner(Operation *, Operation *phase) const override {
    return getSummedProduct(phase);
  }
};

} // namespace

const Schedule &moec::getGpuRowMapSchedule() {
  return getOnly<RowMapSchedule>();
}
const Schedule &moec::getGpuRmsNormSchedule() {
  return getOnly<RmsNormSchedule>();
}
const Schedule &moec::getGpuGatherRowsSchedule() {
  return getOnly<GatherRowsSchedule>();
}
const Schedule &moec::getGpuGatherReduceSchedule() {
  return getOnly<GatherReduceSchedule>();
}
