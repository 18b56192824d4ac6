//===- Cost.cpp - how long the schedules of adapters take -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A launch takes as long as the slowest of memory, L2, the loads of an SM and
// the CTAs that an SM runs one after another, and once more as a CTA waits.
// Nothing is fitted: the coefficients are those of gemms. For kernels that
// walked over positions, with 4 adapters and 1024 tokens, this model would
// expect 76 and 136 us where an H200 took 89 and 122
// (benchmarks/journal/kernels.md).

#include "Cost.h"

#include "Product.h"
#include "Shape.h"
#include "moec/Schedules/Device.h"

#include <cmath>

using namespace mlir;
using namespace moec;
using namespace moec::lora;

PairCounts::PairCounts(tile::LoadAttr load, int64_t groups, int64_t adapters,
                       int64_t tokens, Routing routing, int64_t rowsOfPart) {
  int64_t used = std::min(adapters, tokens);
  int64_t own = llvm::divideCeil(tokens, used);
  RowCounts counts(load, groups, own, routing);
  double share = double(tokens) / double(own * used);
  pairs = double(used) * share * counts.active;
  rows = counts.rows * double(groups) * double(used) * share;
  int64_t perPart = rowsOfPart / 8;
  for (const RowCounts::Entry &entry : counts.entries)
    parts += double(used * groups) * share * entry.probability *
             double(llvm::divideCeil(entry.eighths, perPart));
}

namespace {

/// A load from L2 takes half as long as one from a saturated bus.
constexpr double kNear = 0.5;
/// Barriers and shuffles of a search, or of the sums of warps, take as long as
/// such a load.
constexpr double kMeet = 1;
/// Offsets, those of the group, token, adapter, the token of a row of the part.
constexpr double kFind = 5 + kMeet;

/// CTAs of a launch.
struct CtaWork {
  /// CTAs that load `bytes` each, after `waits` loads that wait for each other.
  double ctas = 0, bytes = 0, waits = 0;
  /// CTAs that find no part, and the loads that they wait for.
  double idle = 0, idleWaits = 0;
  int64_t warps = 0;
};

/// Microseconds of a launch that loads `bytes` from memory.
double getTime(double bytes, const CtaWork &work, const DeviceRates &device) {
  constexpr double registers = 65536;
  auto sms = double(device.multiprocessors);
  double loaded = work.ctas * work.bytes;
  double memory = bytes / (device.readBytes * device.streamShare);
  double l2 = loaded / (device.l2BytesPerClk * device.tensorClock);
  double own = std::max(work.bytes, loaded / sms) /
               (device.smL2BytesPerClk * device.tensorClock);
  double atOnce =
      std::max(1.0, std::floor(registers / double(ptxas::kAdapterRegisters *
                                                  work.warps * kWarp)));
  double near = kNear * device.latencyUs;
  double all = work.ctas * work.waits + work.idle * work.idleWaits;
  double waiting = near * std::max(0.0, all / (sms * atOnce) - work.waits);
  return std::max(1e6 * std::max({memory, l2, own}), waiting) +
         near * work.waits;
}

double getRowBytes(int64_t elements) { return 2 * double(elements); }

/// Waits of one product of `rows` by `columns` tiles.
double getWaits(const LoraShape &shape, int64_t warps, int64_t rows,
                int64_t columns, int64_t kept = 0) {
  return double(SharedProduct::countWaits(shape.width, warps, rows, columns,
                                          kept)) +
         kMeet;
}

/// CTAs of a launch without a part: those of groups with rows look at these.
void addIdle(CtaWork &work, const LoraShape &shape, const PairCounts &counts,
             int64_t rowsOfPart, int64_t ctasOfPart) {
  double most =
      std::min(counts.rows, std::ceil(counts.rows / double(rowsOfPart)) +
                                double(shape.groups * shape.getKinds()));
  work.idle = std::max(0.0, most - counts.parts) * double(ctasOfPart);
  work.idleWaits = kFind - 1;
}

} // namespace

double lora::predictShrink(tile::LoraShrinkOp op, tile::LoadAttr load,
                           int64_t tokens, Routing routing,
                           const DeviceRates &device) {
  if (!load)
    return 0;
  LoraShape shape(op);
  auto config = cast<tile::GpuLoraTileAttr>(op.getConfigAttr());
  PairCounts counts(load, shape.groups, shape.adapters, tokens, routing);
  double matrix = double(shape.rank) * getRowBytes(shape.width);
  auto positions = int64_t(counts.rows);
  int64_t window = LoraShape::kTileRows;
  for (const LoraShape::Window &each : llvm::reverse(LoraShape::kWindows))
    if (positions <= each.positions)
      window = each.rows;
  // Neighbouring slots of an expert have different adapters.
  double inWindow =
      std::min(double(window), double(std::min(shape.adapters, tokens)));
  // The end of all rows, the token, the adapter; the group of each of several
  // rows by a search.
  double find = 3 + (window > 1 ? double(llvm::Log2_64_Ceil(shape.groups)) : 0);
  auto columns = int64_t(config.getColumnTiles());
  auto ctasOfWindow = double(shape.matrices *
                             llvm::divideCeil(shape.getColumnTiles(), columns));
  CtaWork work;
  work.warps = config.getWarps();
  work.ctas = ctasOfWindow * counts.rows / double(window);
  work.bytes = inWindow * matrix * double(shape.matrices) / ctasOfWindow +
               double(window) * getRowBytes(shape.width);
  work.waits = find + inWindow * getWaits(shape, work.warps, 1, columns);
  return getTime(counts.pairs * double(shape.matrices) * matrix, work, device);
}

double lora::predictParts(tile::LoraShrinkOp op, tile::LoadAttr load,
                          int64_t tokens, Routing routing,
                          const DeviceRates &device) {
  if (!load)
    return 0;
  LoraShape shape(op);
  auto config = cast<tile::GpuLoraPartsAttr>(op.getConfigAttr());
  PairCounts counts(load, shape.groups, shape.adapters, tokens, routing,
                    LoraShape::kPartRows);
  int64_t all = shape.matrices * shape.getColumnTiles();
  double row = getRowBytes(shape.width);
  double matrices = double(shape.matrices * shape.rank) * row;
  CtaWork work;
  work.warps = config.getWarps();
  if (tokens * int64_t(op.getTopK()) <= LoraShape::kFewPositions) {
    // The token and the adapter.
    constexpr double find = 2;
    work.ctas = counts.rows * double(all);
    work.bytes = matrices / double(all) + row;
    work.waits = find + getWaits(shape, work.warps, 1, 1);
    return getTime(counts.pairs * matrices, work, device);
  }
  auto columns = int64_t(config.getColumnTiles());
  int64_t ctasOfPart = llvm::divideCeil(all, columns);
  double rows = counts.rows / std::max(counts.parts, 1.0);
  work.ctas = counts.parts * double(ctasOfPart);
  work.bytes = matrices / double(ctasOfPart) + rows * row;
  work.waits =
      kFind + getWaits(shape, work.warps,
                       rows > double(LoraShape::kTileRows) ? 2 : 1, columns);
  addIdle(work, shape, counts, LoraShape::kPartRows, ctasOfPart);
  return getTime(counts.pairs * matrices, work, device);
}

double lora::predictUpdate(tile::LoraUpdateOp op, tile::LoadAttr load,
                           int64_t tokens, Routing routing,
                           const DeviceRates &device) {
  if (!load)
    return 0;
  // As in Update.cpp: tiles of columns of a product; columns of a warp, whose
  // loads for a rank of up to 32 are in flight twice.
  constexpr int64_t tiles = 4, unit = 32, unitsAtOnce = 2;
  LoraShape shape(op);
  PairCounts counts(load, shape.groups, shape.adapters, tokens, routing,
                    LoraShape::kTileRows);
  int64_t ownColumns = LoraShape::getColumns(op);
  auto columns = double(shape.matrices * ownColumns);
  double matrices = getRowBytes(shape.rank) *
                    (double(shape.matrices * shape.width) + columns);
  constexpr double resultBytes = 4;
  double rows = counts.rows / std::max(counts.parts, 1.0) *
                (getRowBytes(shape.width) + resultBytes * columns);
  double bytes = counts.pairs * matrices,
         results = counts.rows * resultBytes * columns;
  if (results > device.l2KeptBytes)
    bytes += results;
  CtaWork work;
  work.warps = cast<tile::GpuLoraUpdateAttr>(op.getConfigAttr()).getWarps();
  work.ctas = counts.parts;
  work.bytes = matrices + rows;
  int64_t products =
      llvm::divideCeil(shape.matrices * shape.getPaddedRank() / 8, tiles);
  int64_t rounds =
      llvm::divideCeil(ownColumns, unit * work.warps * unitsAtOnce);
  work.waits = kFind +
               double(products) * getWaits(shape, work.warps, 1, tiles,
                                           ptxas::kAdapterUpdateRegisters) +
               double(shape.matrices * rounds);
  addIdle(work, shape, counts, LoraShape::kTileRows, /*ctasOfPart=*/1);
  return getTime(bytes, work, device);
}
