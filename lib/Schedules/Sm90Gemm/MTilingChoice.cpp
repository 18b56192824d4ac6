//===- MTilingChoice.cpp - values of BLOCK_M --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MTilingChoice.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class BlockMGrower {
public:
  BlockMGrower(ArrayRef<int64_t> blockMs, size_t points, double least,
               const BlockMsTime &time)
      : blockMs(blockMs), points(points), least(least), time(time) {
    for (size_t point = 0; point < points; ++point) {
      double best = kInfinity;
      for (int64_t blockM : blockMs) {
        BlockMs single{blockM};
        best = std::min(best, getTime(single, point, times[single]));
      }
      bestSingle.push_back(best);
    }
  }

  std::vector<BlockMs> run() {
    constexpr size_t widest = 3;
    for (size_t width = 1; width <= std::min(widest, points); ++width)
      for (size_t first = 0; first + width <= points; ++first)
        grow(first, first + width);
    if (points > widest)
      grow(0, points);
    return std::move(found);
  }

private:
  /// Times of a set by point, as far as they are known.
  using Times = SmallVector<std::optional<double>>;

  double getTime(const BlockMs &tileRows, size_t point, Times &known) {
    known.resize(points);
    if (!known[point])
      known[point] = time(tileRows, point);
    return *known[point];
  }
  /// Time relative to the best single BLOCK_M; infinity if the set is not
  /// possible.
  double getCost(const BlockMs &tileRows, size_t begin, size_t end) {
    double sum = 0;
    Times &known = times[tileRows];
    for (size_t point = begin; point < end; ++point) {
      if (bestSingle[point] == kInfinity)
        return kInfinity;
      sum += getTime(tileRows, point, known) / bestSingle[point];
    }
    return sum / double(end - begin);
  }
  void grow(size_t begin, size_t end);

  ArrayRef<int64_t> blockMs;
  size_t points;
  double least;
  const BlockMsTime &time;
  SmallVector<double> bestSingle;
  /// Kept, because windows overlap.
  std::map<BlockMs, Times> times;
  std::set<BlockMs> seen;
  std::vector<BlockMs> found;
};

void BlockMGrower::grow(size_t begin, size_t end) {
  constexpr size_t fromSingles = 4, fromSets = 2;
  BlockMs best;
  double bestCost = kInfinity;
  while (true) {
    SmallVector<std::pair<double, BlockMs>> larger;
    double most = best.empty() ? kInfinity : bestCost * (1 - least);
    for (int64_t blockM : blockMs) {
      BlockMs tileRows = best;
      auto *place = llvm::lower_bound(tileRows, blockM);
      if (place != tileRows.end() && *place == blockM)
        continue;
      tileRows.insert(place, blockM);
      if (double cost = getCost(tileRows, begin, end); cost < most)
        larger.push_back({cost, std::move(tileRows)});
    }
    if (larger.empty())
      return;
    llvm::sort(larger);
    larger.truncate(
        std::min(larger.size(), best.empty() ? fromSingles : fromSets));
    for (const auto &[cost, tileRows] : larger)
      if (seen.insert(tileRows).second)
        found.push_back(tileRows);
    std::tie(bestCost, best) = larger.front();
  }
}

} // namespace

std::vector<BlockMs> sm90::growBlockMs(ArrayRef<int64_t> blockMs, size_t points,
                                       double least, const BlockMsTime &time) {
  return BlockMGrower(blockMs, points, least, time).run();
}
