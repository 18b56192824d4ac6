//===- Choice.cpp - choice of gpu.lora_shrink and gpu.lora_expand *- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"

#include <algorithm>

using namespace mlir;
using namespace moec;
using namespace moec::lora;

namespace {

std::string lanesIllegal(int64_t lanes, const LoraShape &shape) {
  if (lanes > 0 && shape.maxLanes % lanes == 0)
    return {};
  return "vector_width = " + number(lanes) + "; give a divisor of " +
         number(shape.maxLanes);
}

//===----------------------------------------------------------------------===//
// gpu.lora_shrink
//===----------------------------------------------------------------------===//

std::string shrinkIllegal(Operation *op, tile::ConfigAttr attr,
                          const Target &) {
  constexpr int64_t maxWarps = 32, maxColumns = 8;
  auto config = cast<tile::GpuLoraShrinkAttr>(attr);
  if (config.getWarps() < 1 || config.getWarps() > maxWarps)
    return "warps = " + number(config.getWarps()) + "; give 1 to " +
           number(maxWarps);
  if (config.getColumnsPerWarp() < 1 || config.getColumnsPerWarp() > maxColumns)
    return "columns_per_warp = " + number(config.getColumnsPerWarp()) +
           "; give 1 to " + number(maxColumns);
  return lanesIllegal(config.getVectorWidth(),
                      LoraShape(cast<tile::LoraShrinkOp>(op)));
}

tile::ConfigAttr chooseShrink(Operation *op, const Target &) {
  constexpr int64_t warps = 4;
  LoraShape shape(cast<tile::LoraShrinkOp>(op));
  return tile::GpuLoraShrinkAttr::get(op->getContext(),
                                      std::min(warps, shape.rank),
                                      /*columns_per_warp=*/1, shape.maxLanes);
}

moert::Expr shrinkGrid(Operation *op, tile::ConfigAttr attr, const Target &) {
  auto shrink = cast<tile::LoraShrinkOp>(op);
  LoraShape shape(shrink);
  return positionBlocks(shrink.getTopK(), 1) *
         moert::Expr(shape.matrices *
                     shape.getShrinkTiles(cast<tile::GpuLoraShrinkAttr>(attr)));
}

int64_t shrinkBlock(Operation *, tile::ConfigAttr config) {
  return cast<tile::GpuLoraShrinkAttr>(config).getWarps() * kWarp;
}

struct ShrinkSchedule final
    : ScheduleOf<shrinkIllegal, chooseShrink, shrinkGrid, shrinkBlock> {
  ShrinkSchedule() : ScheduleOf("gpu.lora_shrink", "tile.lora_shrink") {}
};

//===----------------------------------------------------------------------===//
// gpu.lora_expand
//===----------------------------------------------------------------------===//

std::string expandIllegal(Operation *op, tile::ConfigAttr attr,
                          const Target &) {
  constexpr int64_t maxThreads = 1024, maxColumns = 8;
  auto config = cast<tile::GpuLoraExpandAttr>(attr);
  LoraShape shape(cast<tile::LoraExpandOp>(op));
  if (std::string reason = lanesIllegal(config.getVectorWidth(), shape);
      !reason.empty())
    return reason;
  int64_t threads = config.getThreads();
  if (threads < 1 || threads % kWarp || threads > maxThreads)
    return "threads = " + number(threads) + "; give a multiple of " +
           number(kWarp) + " up to " + number(maxThreads);
  if (config.getColumnsPerThread() < 1 ||
      config.getColumnsPerThread() > maxColumns)
    return "columns_per_thread = " + number(config.getColumnsPerThread()) +
           "; give 1 to " + number(maxColumns);
  int64_t shared = config.getThreadsPerColumn();
  if (shared < 1 || kWarp % shared ||
      shape.rank / config.getVectorWidth() % shared)
    return "threads_per_column = " + number(shared) + "; give a divisor of " +
           number(kWarp) + " and of the " +
           number(shape.rank / config.getVectorWidth()) +
           " vectors of a row of the matrix";
  return {};
}

tile::ConfigAttr chooseExpand(Operation *op, const Target &) {
  constexpr int64_t threads = 128, columns = 2, mostShared = 8;
  LoraShape shape(cast<tile::LoraExpandOp>(op));
  int64_t vectors = shape.rank / shape.maxLanes;
  return tile::GpuLoraExpandAttr::get(
      op->getContext(), threads, columns,
      std::min<int64_t>(mostShared, vectors & -vectors), shape.maxLanes);
}

moert::Expr expandGrid(Operation *op, tile::ConfigAttr attr, const Target &) {
  auto expand = cast<tile::LoraExpandOp>(op);
  LoraShape shape(expand);
  return positionBlocks(expand.getTopK(), 1) *
         moert::Expr(shape.matrices *
                     shape.getExpandTiles(cast<tile::GpuLoraExpandAttr>(attr)));
}

int64_t expandBlock(Operation *, tile::ConfigAttr config) {
  return cast<tile::GpuLoraExpandAttr>(config).getThreads();
}

struct ExpandSchedule final
    : ScheduleOf<expandIllegal, chooseExpand, expandGrid, expandBlock> {
  ExpandSchedule() : ScheduleOf("gpu.lora_expand", "tile.lora_expand") {}
};

} // namespace

const Schedule &moec::getGpuLoraShrinkSchedule() {
  return getOnly<ShrinkSchedule>();
}
const Schedule &moec::getGpuLoraExpandSchedule() {
  return getOnly<ExpandSchedule>();
}
