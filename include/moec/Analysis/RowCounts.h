//===- RowCounts.h - how many rows a group gets -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_ROWCOUNTS_H
#define MOEC_ANALYSIS_ROWCOUNTS_H

#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// How tokens pick experts.
enum class Routing {
  /// All experts equally likely.
  Uniform,
  /// Some much more often than others, as text makes routers do.
  Zipf,
  /// Every token the same ones: as far from uniform as can be.
  Same,
};

/// How many rows each of some groups gets: a binomial distribution, or a
/// mixture of some. Rows are counted in eighths, rounded up: no tile is cut
/// finer.
struct RowCounts {
  RowCounts(tile::LoadAttr load, int64_t groups, int64_t tokens,
            Routing routing = Routing::Uniform);

  struct Entry {
    /// At least 1.
    int64_t eighths;
    double probability;
  };
  llvm::SmallVector<Entry> entries;
  /// Per group, on average.
  double rows;
  /// Groups that have rows: their number on average, and its variance.
  double active = 0, activeVariance = 0;

  /// Leaves the groups, of so many, whose number of rows `takes` says yes to.
  void keep(int64_t groups, llvm::function_ref<bool(int64_t rows)> takes);
};

} // namespace moec

#endif // MOEC_ANALYSIS_ROWCOUNTS_H
