//===- Sm90Heights.cpp - heights of tiles made for a load -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm90Heights.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>
#include <map>
#include <set>
#include <tuple>

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class HeightGrower {
public:
  HeightGrower(ArrayRef<int64_t> heights, size_t points, double least,
               const HeightsTime &time)
      : heights(heights), points(points), least(least), time(time) {
    for (size_t point = 0; point < points; ++point) {
      double best = kInfinity;
      for (int64_t height : heights)
        best = std::min(best, getTime({height}, point));
      bestSingle.push_back(best);
    }
  }

  std::vector<Heights> run() {
    constexpr size_t widest = 3;
    for (size_t width = 1; width <= std::min(widest, points); ++width)
      for (size_t first = 0; first + width <= points; ++first)
        grow(first, first + width);
    if (points > widest)
      grow(0, points);
    return std::move(found);
  }

private:
  double getTime(const Heights &tileRows, size_t point) {
    auto [entry, isNew] = times.try_emplace({tileRows, point}, 0);
    if (isNew)
      entry->second = time(tileRows, point);
    return entry->second;
  }
  /// Time relative to the best single BLOCK_M; infinity if the set is not
  /// possible.
  double getCost(const Heights &tileRows, size_t begin, size_t end) {
    double sum = 0;
    for (size_t point = begin; point < end; ++point) {
      if (bestSingle[point] == kInfinity)
        return kInfinity;
      sum += getTime(tileRows, point) / bestSingle[point];
    }
    return sum / double(end - begin);
  }
  void grow(size_t begin, size_t end);

  ArrayRef<int64_t> heights;
  size_t points;
  double least;
  const HeightsTime &time;
  SmallVector<double> bestSingle;
  /// Cached, because windows overlap.
  std::map<std::pair<Heights, size_t>, double> times;
  std::set<Heights> seen;
  std::vector<Heights> found;
};

void HeightGrower::grow(size_t begin, size_t end) {
  constexpr size_t fromSingles = 4, fromSets = 2;
  Heights best;
  double bestCost = kInfinity;
  while (true) {
    SmallVector<std::pair<double, Heights>> larger;
    double most = best.empty() ? kInfinity : bestCost * (1 - least);
    for (int64_t height : heights) {
      Heights tileRows = best;
      auto *place = llvm::lower_bound(tileRows, height);
      if (place != tileRows.end() && *place == height)
        continue;
      tileRows.insert(place, height);
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

std::vector<Heights> sm90::growHeights(ArrayRef<int64_t> heights, size_t points,
                                       double least, const HeightsTime &time) {
  return HeightGrower(heights, points, least, time).run();
}
