//===- Choice.cpp - choice of the schedules of adapters ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cost.h"
#include "Product.h"
#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"
#include "moec/Schedules/Device.h"

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

/// A schedule whose time on a GPU `predictTime` gives.
template <typename Base, typename OpT,
          double (*predictTime)(OpT, tile::LoadAttr, int64_t, Routing,
                                const DeviceRates &)>
struct TimedSchedule : ScheduleWith<Base, PredictsTime> {
  using ScheduleWith<Base, PredictsTime>::ScheduleWith;
  double predict(Operation *op, tile::LoadAttr load, int64_t tokens,
                 Routing routing, const DeviceRates &device) const override {
    return predictTime(cast<OpT>(op), load, tokens, routing, device);
  }
  double getLaunchTime(const DeviceRates &device) const override {
    return device.getRankingLaunchTime();
  }
};

//===----------------------------------------------------------------------===//
// gpu.lora_tile
//===----------------------------------------------------------------------===//

constexpr int64_t kTileColumns = 8;

template <typename ConfigT>
std::string tileIllegal(Operation *op, tile::ConfigAttr attr, const Target &) {
  constexpr int64_t maxWarps = 16, maxTiles = 4;
  auto config = cast<ConfigT>(attr);
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

/// CTAs that have a window each.
moert::Expr windowBlocks(int64_t topK) {
  moert::Expr blocks = positionBlocks(topK, LoraShape::kTileRows);
  for (const LoraShape::Window &window : LoraShape::kWindows)
    blocks = moert::Expr::max(
        blocks, moert::Expr::min(positionBlocks(topK, window.rows),
                                 window.positions / window.rows));
  return blocks;
}

moert::Expr tileGrid(Operation *op, tile::ConfigAttr attr, const Target &) {
  auto config = cast<tile::GpuLoraTileAttr>(attr);
  auto shrink = cast<tile::LoraShrinkOp>(op);
  LoraShape shape(shrink);
  return windowBlocks(shrink.getTopK()) *
         moert::Expr(shape.matrices *
                     llvm::divideCeil(shape.rank,
                                      kTileColumns * config.getColumnTiles()));
}

template <typename ConfigT>
int64_t tileBlock(Operation *, tile::ConfigAttr config) {
  return cast<ConfigT>(config).getWarps() * kWarp;
}

struct TileSchedule final
    : TimedSchedule<ScheduleOf<tileIllegal<tile::GpuLoraTileAttr>, chooseTile,
                               tileGrid, tileBlock<tile::GpuLoraTileAttr>>,
                    tile::LoraShrinkOp, predictShrink> {
  TileSchedule() : TimedSchedule("gpu.lora_tile", "tile.lora_shrink") {}
};

//===----------------------------------------------------------------------===//
// gpu.lora_parts
//===----------------------------------------------------------------------===//

tile::ConfigAttr chooseParts(Operation *op, const Target &) {
  constexpr int64_t warps = 8, tiles = 4;
  LoraShape shape(cast<tile::LoraShrinkOp>(op));
  return tile::GpuLoraPartsAttr::get(
      op->getContext(),
      std::min<int64_t>(warps,
                        llvm::divideCeil(shape.width, SharedProduct::kBlock)),
      std::min(tiles, shape.matrices * shape.getColumnTiles()));
}

/// Parts of up to `rows` rows, at most, over all groups (PartTable).
moert::Expr mostParts(int64_t topK, const LoraShape &shape, int64_t rows) {
  return moert::Expr::min(positionBlocks(topK, 1),
                          positionBlocks(topK, rows) +
                              moert::Expr(shape.groups * shape.getKinds()));
}

std::string countIllegal(const LoraShape &shape) {
  if (shape.adapters <= LoraShape::kMaxCounted)
    return {};
  return "CTAs count the rows of up to " + number(LoraShape::kMaxCounted) +
         " adapters, not of " + number(shape.adapters);
}

std::string partsIllegal(Operation *op, tile::ConfigAttr attr,
                         const Target &target) {
  // Sums of a warp for 8 columns take 1 KiB of shared memory.
  constexpr int64_t mostSums = 32;
  auto config = cast<tile::GpuLoraPartsAttr>(attr);
  std::string reason = tileIllegal<tile::GpuLoraPartsAttr>(op, attr, target);
  if (!reason.empty())
    return reason;
  if (int64_t sums = config.getWarps() * config.getColumnTiles();
      sums > mostSums)
    return "warps * column_tiles = " + number(sums) + "; give up to " +
           number(mostSums);
  return countIllegal(LoraShape(cast<tile::LoraShrinkOp>(op)));
}

moert::Expr partsGrid(Operation *op, tile::ConfigAttr attr, const Target &) {
  auto shrink = cast<tile::LoraShrinkOp>(op);
  LoraShape shape(shrink);
  int64_t tiles = cast<tile::GpuLoraPartsAttr>(attr).getColumnTiles();
  int64_t all = shape.matrices * shape.getColumnTiles();
  int64_t topK = shrink.getTopK();
  moert::Expr few =
      moert::Expr::min(positionBlocks(topK, 1), LoraShape::kFewPositions);
  return moert::Expr::max(few * moert::Expr(all),
                          mostParts(topK, shape, LoraShape::kPartRows) *
                              moert::Expr(llvm::divideCeil(all, tiles)));
}

struct PartsSchedule final
    : TimedSchedule<ScheduleOf<partsIllegal, chooseParts, partsGrid,
                               tileBlock<tile::GpuLoraPartsAttr>>,
                    tile::LoraShrinkOp, predictParts> {
  PartsSchedule() : TimedSchedule("gpu.lora_parts", "tile.lora_shrink") {}
};

//===----------------------------------------------------------------------===//
// gpu.lora_update
//===----------------------------------------------------------------------===//

std::string updateIllegal(Operation *op, tile::ConfigAttr attr,
                          const Target &) {
  // Sums of more warps would not fit in shared memory beside shrunk rows.
  constexpr int64_t maxWarps = 12, chunk = 8, quarter = 4;
  int64_t warps = cast<tile::GpuLoraUpdateAttr>(attr).getWarps();
  auto update = cast<tile::LoraUpdateOp>(op);
  if (getElementTypeOrSelf(update.getInput()).getIntOrFloatBitWidth() != 16)
    return "tensor cores multiply bf16 and f16";
  LoraShape shape(update);
  if (int64_t columns = shape.getColumns(update);
      shape.width % chunk || columns % chunk)
    return "rows of " + number(shape.width) + " and " + number(columns) +
           " elements are no multiples of 16 bytes";
  if (shape.rank % quarter)
    return "a rank of " + number(shape.rank) + " is no multiple of " +
           number(quarter);
  if (shape.matrices * shape.getPaddedRank() > LoraShape::kMaxShrunk)
    return "ranks of " + number(shape.matrices) + " x " + number(shape.rank) +
           " are more than " + number(LoraShape::kMaxShrunk);
  if (warps < 1 || warps > maxWarps)
    return "warps = " + number(warps) + "; give 1 to " + number(maxWarps);
  return countIllegal(shape);
}

tile::ConfigAttr chooseUpdate(Operation *op, const Target &) {
  constexpr int64_t warps = 8;
  LoraShape shape(cast<tile::LoraUpdateOp>(op));
  return tile::GpuLoraUpdateAttr::get(
      op->getContext(),
      std::min<int64_t>(warps,
                        llvm::divideCeil(shape.width, SharedProduct::kBlock)));
}

moert::Expr updateGrid(Operation *op, tile::ConfigAttr, const Target &) {
  auto update = cast<tile::LoraUpdateOp>(op);
  return mostParts(update.getTopK(), LoraShape(update), LoraShape::kTileRows);
}

int64_t updateBlock(Operation *, tile::ConfigAttr config) {
  return cast<tile::GpuLoraUpdateAttr>(config).getWarps() * kWarp;
}

struct UpdateSchedule final
    : TimedSchedule<
          ScheduleOf<updateIllegal, chooseUpdate, updateGrid, updateBlock>,
          tile::LoraUpdateOp, predictUpdate> {
  UpdateSchedule() : TimedSchedule("gpu.lora_update", "tile.lora_update") {}
};

} // namespace

const Schedule &moec::getGpuLoraTileSchedule() {
  return getOnly<TileSchedule>();
}
const Schedule &moec::getGpuLoraPartsSchedule() {
  return getOnly<PartsSchedule>();
}
const Schedule &moec::getGpuLoraUpdateSchedule() {
  return getOnly<UpdateSchedule>();
}
const Schedule &moec::getGpuLoraShrinkSchedule() {
  return getOnly<ShrinkSchedule>();
}
