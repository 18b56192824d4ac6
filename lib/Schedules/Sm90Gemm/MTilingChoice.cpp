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

/// Looks for values of BLOCK_M that suit skewed loads as well.
class SkewAdapter {
public:
  SkewAdapter(ArrayRef<int64_t> blockMs, const BlockMs &chosen, size_t points,
              double penalty, const LoadTime &time)
      : blockMs(blockMs), best(chosen), penalty(penalty), time(time) {
    for (size_t point = 0; point < points; ++point) {
      uniform.push_back(time(chosen, point, /*isSkewed=*/false));
      skewed.push_back(time(chosen, point, /*isSkewed=*/true));
    }
  }

  BlockMs run() {
    auto mayGain = [&](auto times) {
      auto [uniform, skewed] = times;
      return skewed > uniform * (1 + kLittle);
    };
    if (llvm::none_of(llvm::zip(uniform, skewed), mayGain))
      return best;
    constexpr int rounds = 2;
    for (int round = 0; round < rounds; ++round) {
      BlockMs from = best;
      vary(from, penalty);
      // A value takes the place of another one, except of the largest.
      for (size_t i = 0; i + 1 < from.size(); ++i) {
        BlockMs fewer = from;
        fewer.erase(fewer.begin() + i);
        vary(fewer, /*extra=*/0);
      }
      if (best == from)
        break;
      base += std::max(best.size() > from.size() ? penalty : 0, kLeast);
    }
    return best;
  }

private:
  /// Relative differences up to this size are accepted for uniform loads, and
  /// not worth a search for skewed ones.
  static constexpr double kLittle = 0.005;
  /// Smaller savings do not pay for a kernel that was not measured.
  static constexpr double kLeast = 0.0015;

  /// The mean time relative to the chosen values; infinity if a uniform load
  /// takes longer. A uniform load that takes less time does not count: its
  /// values were found by the search that measurements support.
  double getTime(const BlockMs &tileRows) {
    constexpr double skewWeight = 0.5;
    double sum = 0;
    for (auto [point, chosen] : llvm::enumerate(uniform)) {
      double ratio = time(tileRows, point, /*isSkewed=*/false) / chosen;
      if (!(ratio <= 1 + kLittle))
        return kInfinity;
      sum += (1 - skewWeight) * std::max(ratio, 1.0);
    }
    for (auto [point, chosen] : llvm::enumerate(skewed))
      sum += skewWeight * time(tileRows, point, /*isSkewed=*/true) / chosen;
    return sum / double(uniform.size());
  }

  /// Tries `tileRows` with each value added, at a cost of `extra`, in place of
  /// the best values.
  void vary(const BlockMs &tileRows, double extra) {
    for (int64_t blockM : blockMs) {
      auto *place = llvm::lower_bound(tileRows, blockM);
      if (place == tileRows.end() || *place == blockM)
        continue;
      BlockMs more = tileRows;
      more.insert(more.begin() + (place - tileRows.begin()), blockM);
      if (!seen.insert(more).second)
        continue;
      double cost = base + std::max(extra, kLeast) + getTime(more);
      if (cost >= bestCost)
        continue;
      bestCost = cost;
      best = std::move(more);
    }
  }

  ArrayRef<int64_t> blockMs;
  BlockMs best;
  double penalty;
  const LoadTime &time;
  /// Times of the chosen values, per point.
  SmallVector<double> uniform, skewed;
  /// The cost of the best values, and the part of it that the rounds before
  /// have caused.
  double bestCost = 1, base = 0;
  std::set<BlockMs> seen;
};

} // namespace

BlockMs sm90::adaptBlockMs(ArrayRef<int64_t> blockMs, const BlockMs &chosen,
                           size_t points, double penalty,
                           const LoadTime &time) {
  return SkewAdapter(blockMs, chosen, points, penalty, time).run();
}

std::vector<BlockMs> sm90::growBlockMs(ArrayRef<int64_t> blockMs, size_t points,
                                       double least, const BlockMsTime &time) {
  return BlockMGrower(blockMs, points, least, time).run();
}
