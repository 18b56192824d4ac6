//===- Fragments.cpp - weights in the order of tensor cores -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Fragments.h"

using namespace mlir;

namespace moec::moe {

/// Rows of gate, then of up, of the same columns.
constexpr int64_t kPairedRows = 8;

static bool hasHalves(WeightLayoutAttr layout) {
  return layout && layout.getOrder() != GateUpOrder::Interleaved;
}

std::string Fragments::whyNot(int64_t rows, int64_t depth,
                              WeightLayoutAttr layout) {
  // What of a row a CTA holds when it brings a block into this order.
  constexpr int64_t maxDepth = 7168;
  if (depth % kDepth)
    return "K = " + std::to_string(depth) + " is no multiple of " +
           std::to_string(kDepth);
  if (depth > maxDepth)
    return "K = " + std::to_string(depth) + " is above " +
           std::to_string(maxDepth);
  if (rows % kRows)
    return "N = " + std::to_string(rows) + " is no multiple of " +
           std::to_string(kRows);
  return {};
}

QuantAttr Fragments::getQuant(QuantAttr pairs) {
  MLIRContext *context = pairs.getContext();
  return QuantAttr::get(context, pairs.getStorage(), pairs.getScale(),
                        pairs.getGranularity(), pairs.getBlock(),
                        pairs.getZeroPoint(), pairs.getDynamic(),
                        Packing::Fragments, Float32Type::get(context));
}

int64_t Fragments::getRunRow(int64_t block, int64_t run, int64_t rows,
                             WeightLayoutAttr layout) {
  if (hasHalves(layout))
    return run * (rows / 2) + block * kRunRows;
  return block * kRows + run * kRunRows;
}

namespace {
/// A row of a matrix as one of a unit.
struct UnitRow {
  int64_t block, row;
};
} // namespace

static UnitRow getUnitRow(int64_t row, int64_t rows, WeightLayoutAttr layout) {
  if (!layout)
    return {row / Fragments::kRows, row % Fragments::kRows};
  bool isHalved = hasHalves(layout);
  int64_t projection = isHalved ? row / (rows / 2) : row % 2;
  int64_t column = isHalved ? row % (rows / 2) : row / 2;
  int64_t inBlock = column % Fragments::kRunRows;
  return {column / Fragments::kRunRows,
          inBlock / kPairedRows * 2 * kPairedRows + projection * kPairedRows +
              inBlock % kPairedRows};
}

/// A warp has 16 rows of a unit, of which a thread has two that are 8 apart.
constexpr int64_t kWarpRows = 16, kFragmentRows = 8;

Fragments::Place Fragments::getPlace(int64_t row, int64_t element, int64_t rows,
                                     WeightLayoutAttr layout) {
  // The sign, two bits of exponent and the mantissa of each pair of 16 bits;
  // all but the last are shifted to where a bf16 has them.
  static constexpr int64_t bits[4][4] = {
      {15, 8, 7, 6}, {12, 5, 4, 3}, {9, 2, 1, 0}, {14, 13, 11, 10}};
  constexpr int64_t product = 16, octet = 8, halfBits = 16;
  UnitRow own = getUnitRow(row, rows, layout);
  int64_t warp = own.row / kWarpRows, in = element % kDepth;
  int64_t thread = warp * 32 + own.row % kFragmentRows * 4 + in % octet / 2;
  int64_t run = warp / 2;
  int64_t pair = own.row % kWarpRows / kFragmentRows + in % product / octet * 2;
  Place place;
  place.firstRow = getRunRow(own.block, run, rows, layout);
  place.word =
      element / kDepth * kCodeWords + thread % kRows * 4 + in / product;
  for (int64_t i = 0; i < 4; ++i)
    place.bits[i] = bits[pair][i] + element % 2 * halfBits;
  return place;
}

Fragments::ScalePlace Fragments::getScalePlace(int64_t row, int64_t group,
                                               int64_t rows,
                                               WeightLayoutAttr layout) {
  UnitRow own = getUnitRow(row, rows, layout);
  int64_t warp = own.row / kWarpRows;
  int64_t word = warp % 2 * kFragmentRows + own.row % kFragmentRows;
  int64_t byte = own.row % kWarpRows / kFragmentRows + group % kGroups * 2;
  return {getRunRow(own.block, warp / 2, rows, layout),
          (group / kGroups * kScaleWords + word) * 4 + byte};
}

} // namespace moec::moe
