//===- Sm90Cut.h - how sm90.contract cuts rows into tiles -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SM90CUT_H
#define MOEC_ANALYSIS_SM90CUT_H

#include "moec/Analysis/Sm90.h"

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

/// What a kernel makes of a group with `rows`, at least one, as its code does
/// (lib/Conversion/TileToNVVM/Schedules/Sm90Tiles.cpp).
Cut cutGroup(const Contract &shape, int64_t rows);

} // namespace moec::sm90

#endif // MOEC_ANALYSIS_SM90CUT_H
