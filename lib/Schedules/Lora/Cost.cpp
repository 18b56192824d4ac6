//===- Cost.cpp - how long the schedules of adapters take -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A launch takes as long as the slowest of memory, L2 and its CTAs, and the
// loads of a CTA that wait for each other. Nothing is fitted: the coefficients
// are those of gemms.

#include "Cost.h"

#include "Shape.h"
#include "moec/Schedules/Device.h"

#include <cmath>

using namespace mlir;
using namespace moec;
using namespace moec::lora;

PairCounts::PairCounts(tile::LoadAttr load, int64_t groups, int64_t adapters,
                       int64_t tokens, Routing routing) {
  int64_t used = std::min(adapters, tokens);
  int64_t own = llvm::divideCeil(tokens, used);
  RowCounts counts(load, groups, own, routing);
  double share = double(tokens) / double(own * used);
  pairs = double(used) * share * counts.active;
  rows = counts.rows * double(groups) * double(used) * share;
  constexpr int64_t perPart = LoraShape::kTileRows / 8;
  for (const RowCounts::Entry &entry : counts.entries)
    parts += double(used * groups) * share * entry.probability *
             double(llvm::divideCeil(entry.eighths, perPart));
}

namespace {

/// Loads of a CTA that wait for each other: offsets, token, adapter, operands.
constexpr double kChain = 4;
/// A load from L2 takes half as long as one from a saturated bus.
constexpr double kNear = 0.5;

/// `bytes` from memory, `ctas` that load `ctaBytes` each.
double getTime(double bytes, double ctas, double ctaBytes, double chain,
               const DeviceRates &device) {
  double memory = bytes / (device.readBytes * device.streamShare);
  double l2 = ctas * ctaBytes / (device.l2BytesPerClk * device.tensorClock);
  double waves = std::max(1.0, ctas / double(device.multiprocessors));
  double own = waves * ctaBytes / device.smReadBytes;
  return 1e6 * std::max({memory, l2, own}) + chain * kNear * device.latencyUs;
}

double getRowBytes(int64_t elements) { return 2 * double(elements); }

} // namespace

double lora::predictShrink(tile::LoraShrinkOp op, tile::LoadAttr load,
                           int64_t tokens, Routing routing,
                           const DeviceRates &device) {
  if (!load)
    return 0;
  LoraShape shape(op);
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
  double ctas = double(shape.matrices) * counts.rows / double(window);
  return getTime(counts.pairs * double(shape.matrices) * matrix, ctas,
                 inWindow * matrix + double(window) * getRowBytes(shape.width),
                 kChain, device);
}

double lora::predictParts(tile::LoraShrinkOp op, tile::LoadAttr load,
                          int64_t tokens, Routing routing,
                          const DeviceRates &device) {
  if (!load)
    return 0;
  LoraShape shape(op);
  PairCounts counts(load, shape.groups, shape.adapters, tokens, routing);
  int64_t tiles =
              cast<tile::GpuLoraPartsAttr>(op.getConfigAttr()).getColumnTiles(),
          all = shape.matrices * shape.getColumnTiles();
  auto ctas = double(llvm::divideCeil(all, tiles));
  double row = getRowBytes(shape.width);
  double matrices = double(shape.matrices * shape.rank) * row;
  double rows = counts.rows / std::max(counts.parts, 1.0) * row;
  // Other slots of the expert are looked at first.
  constexpr double more = 1;
  return getTime(counts.pairs * matrices, counts.parts * ctas,
                 matrices / ctas + rows, kChain + more, device);
}

double lora::predictUpdate(tile::LoraUpdateOp op, tile::LoadAttr load,
                           int64_t tokens, Routing routing,
                           const DeviceRates &device) {
  if (!load)
    return 0;
  LoraShape shape(op);
  PairCounts counts(load, shape.groups, shape.adapters, tokens, routing);
  auto columns = double(shape.matrices * LoraShape::getColumns(op));
  double matrices = getRowBytes(shape.rank) *
                    (double(shape.matrices * shape.width) + columns);
  constexpr double resultBytes = 4;
  double rows = counts.rows / std::max(counts.parts, 1.0) *
                (getRowBytes(shape.width) + resultBytes * columns);
  double bytes = counts.pairs * matrices,
         results = counts.rows * resultBytes * columns;
  if (results > device.l2KeptBytes)
    bytes += results;
  // The second product waits for the first.
  constexpr double more = 2;
  return getTime(bytes, counts.parts, matrices + rows, kChain + more, device);
}
