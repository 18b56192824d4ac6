//===- Sm90Cut.h - how sm90.contract cuts rows into tiles -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SM90CUT_H
#define MOEC_ANALYSIS_SM90CUT_H

#include "moec/Analysis/Sm90.h"
#include "llvm/ADT/SmallVector.h"

#include <array>
#include <utility>

namespace moec::sm90 {

/// The M tiling of a group: `higher` tiles of `low + more` rows, then tiles of
/// `low`; the last one has the remainder. All row counts but the last tile's
/// are multiples of 8.
struct Cut {
  int64_t low, more, higher, tiles;

  /// Pairs of rows per tile and number of such tiles: higher, lower, last.
  std::array<std::pair<int64_t, int64_t>, 3> getTiles(int64_t rows) const;
};

/// Host version of the M tiling that kernels compute
/// (lib/Conversion/TileToNVVM/Schedules/Sm90/Sm90MTiling.cpp). The cost model
/// evaluates it for every size that a group may have.
class GroupCutter {
public:
  explicit GroupCutter(const Contract &shape);

  /// Requires 1 <= `rows` < 2^31.
  Cut cut(int64_t rows) const;

private:
  struct Candidate {
    Cut cut;
    int64_t cost;
  };
  int64_t costOf(int64_t height) const;
  Candidate getEven(int64_t rows, int64_t tiles) const;
  Candidate getHighest(int64_t rows) const;

  const Contract &shape;
  /// Cost of a tile, per BLOCK_M.
  llvm::SmallVector<int64_t> costs;
};

} // namespace moec::sm90

#endif // MOEC_ANALYSIS_SM90CUT_H
