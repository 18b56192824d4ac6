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

/// The tiles of a group: `higher` of `low + more` rows, then those of `low`;
/// the last one has what is left. All rows but those of the last are multiples
/// of 8.
struct Cut {
  int64_t low, more, higher, tiles;

  /// Rows of a tile, and how many tiles have so many: higher ones, lower ones
  /// and the last.
  std::array<std::pair<int64_t, int64_t>, 3> getTiles(int64_t rows) const;
};

/// What kernels make of groups, as their code does
/// (lib/Conversion/TileToNVVM/Schedules/Sm90/Sm90Tiles.cpp). The model of time
/// asks for every number of rows that a group may have.
class GroupCutter {
public:
  explicit GroupCutter(const Contract &shape);

  /// Of at least one row, fewer than 2^31.
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
  /// The cost of a tile of each height.
  llvm::SmallVector<int64_t> costs;
};

} // namespace moec::sm90

#endif // MOEC_ANALYSIS_SM90CUT_H
