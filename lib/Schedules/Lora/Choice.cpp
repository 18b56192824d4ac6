//===- Choice.cpp - choice of gpu.lora_shrink ----------------- *- C++
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
                     shape.getTiles(cast<tile::GpuLoraShrinkAttr>(attr)));
}

int64_t shrinkBlock(Operation *, tile::ConfigAttr config) {
  return cast<tile::GpuLoraShrinkAttr>(config).getWarps() * kWarp;
}

struct ShrinkSchedule final
    : ScheduleOf<shrinkIllegal, chooseShrink, shrinkGrid, shrinkBlock> {
  ShrinkSchedule() : ScheduleOf("gpu.lora_shrink", "tile.lora_shrink") {}
};

//===----------------------------------------------------------------------===//
// gpu.lora_tile
//===----------------------------------------------------------------------===//

constexpr int64_t kTileColumns = 8;

std::string tileIllegal(Operation *op, tile::ConfigAttr attr, const Target &) {
  constexpr int64_t maxWarps = 16, maxTiles = 4;
  auto config = cast<tile::GpuLoraTileAttr>(attr);
  auto shrink = cast<tile::LoraShrinkOp>(op);
  if (getElementTypeOrSelf(shrink.getInput()).getIntOrFloatBitWidth() != 16)
    return "tensor cores multiply bf16 and f16; use gpu.lora_shrink";
  if (LoraShape shape(shrink); shape.width % kTileColumns)
    return "rows of " + number(shape.width) +
           " elements are no multiples of 16 bytes; use gpu.lora_shrink";
  if (config.getWarps() < 1 || config.getWarps() > maxWarps)
    return "warps = " + number(config.getWarps()) + "; give 1 to " +
           number(maxWarps);
  if (config.getColumnTiles() < 1 || config.getColumnTiles() > maxTiles)
    return "column_tiles = " + number(config.getColumnTiles()) +
           "; give 1 to " + number(maxTiles);
  return {};
}

tile::ConfigAttr chooseTile(Operation *op, const Target &) {
  constexpr int64_t warps = 8, tiles = 2, block = 32;
  LoraShape shape(cast<tile::LoraShrinkOp>(op));
  return tile::GpuLoraTileAttr::get(
      op->getContext(),
      std::min<int64_t>(warps, llvm::divideCeil(shape.width, block)),
      std::min<int64_t>(tiles, llvm::divideCeil(shape.rank, kTileColumns)));
}

moert::Expr tileGrid(Operation *op, tile::ConfigAttr attr, const Target &) {
  auto config = cast<tile::GpuLoraTileAttr>(attr);
  auto shrink = cast<tile::LoraShrinkOp>(op);
  LoraShape shape(shrink);
  moert::Expr windows = positionBlocks(shrink.getTopK(), LoraShape::kTileRows);
  for (const LoraShape::Window &window : LoraShape::kWindows)
    windows = moert::Expr::max(
        windows, moert::Expr::min(positionBlocks(shrink.getTopK(), window.rows),
                                  window.positions / window.rows));
  return windows *
         moert::Expr(shape.matrices *
                     llvm::divideCeil(shape.rank,
                                      kTileColumns * config.getColumnTiles()));
}

int64_t tileBlock(Operation *, tile::ConfigAttr config) {
  return cast<tile::GpuLoraTileAttr>(config).getWarps() * kWarp;
}

struct TileSchedule final
    : ScheduleOf<tileIllegal, chooseTile, tileGrid, tileBlock> {
  TileSchedule() : ScheduleOf("gpu.lora_tile", "tile.lora_shrink") {}
};

} // namespace

const Schedule &moec::getGpuLoraTileSchedule() {
  return getOnly<TileSchedule>();
}
const Schedule &moec::getGpuLoraShrinkSchedule() {
  return getOnly<ShrinkSchedule>();
}
