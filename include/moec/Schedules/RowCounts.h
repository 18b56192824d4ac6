//===- RowCounts.h - how many rows a group gets -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_ROWCOUNTS_H
#define MOEC_SCHEDULES_ROWCOUNTS_H

#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// Distribution of tokens over experts.
enum class Routing {
  /// All experts are equally likely.
  Uniform,
  /// Zipf's law: some experts are much more frequent than others, as with
  /// routers on text.
  Zipf,
  /// Every token picks the same experts: the least uniform case.
  Same,
};

/// Distribution of the number of rows of each of some groups: binomial, or a
/// mixture of binomials. Rows are counted in eighths, rounded up, because no
/// tile is finer.
struct RowCounts {
  RowCounts(tile::LoadAttr load, int64_t groups, int64_t tokens,
            Routing routing = Routing::Uniform);

  struct Entry {
    /// At least 1.
    int64_t eighths;
    double probability;
  };
  llvm::SmallVector<Entry> entries;
  /// Mean per group.
  double rows;
  /// Groups that have rows: mean and variance of their number.
  double active = 0, activeVariance = 0;

  /// Keeps only those of `groups` groups whose number of rows `takes` accepts.
  void keep(int64_t groups, llvm::function_ref<bool(int64_t rows)> takes);
};

} // namespace moec

#endif // MOEC_SCHEDULES_ROWCOUNTS_H
