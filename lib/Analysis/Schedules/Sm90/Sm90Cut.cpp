//===- Sm90Cut.cpp - how sm90.contract cuts rows into tiles -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Sm90Cut.h"

#include "llvm/Support/MathExtras.h"

using namespace moec;
using namespace moec::sm90;

std::array<std::pair<int64_t, int64_t>, 3> Cut::getTiles(int64_t rows) const {
  int64_t highBefore = std::min(higher, tiles - 1);
  int64_t lowBefore = tiles - 1 - highBefore;
  int64_t last = rows - highBefore * (low + more) - lowBefore * low;
  return {{{low + more, highBefore}, {low, lowBefore}, {last, 1}}};
}

/// For numbers below 2^32: a 32-bit division takes half as long.
static int64_t divideUp(int64_t x, int64_t y) {
  return (uint32_t(x) + uint32_t(y) - 1) / uint32_t(y);
}

GroupCutter::GroupCutter(const Contract &shape) : shape(shape) {
  for (int64_t height : shape.tileRows)
    costs.push_back(shape.getTileCost(height));
}

int64_t GroupCutter::costOf(int64_t height) const {
  size_t index = 0;
  while (shape.tileRows[index] < height)
    ++index;
  return costs[index];
}

GroupCutter::Candidate GroupCutter::getEven(int64_t rows, int64_t tiles) const {
  int64_t mean = divideUp(rows, tiles);
  size_t index = 0;
  while (shape.tileRows[index] < mean)
    ++index;
  int64_t high = shape.tileRows[index];
  if (index > 0 && tiles < Contract::kMaxHigher &&
      shape.mixesHeights(shape.tileRows[index - 1], high)) {
    int64_t low = shape.tileRows[index - 1], more = high - low;
    int64_t higher = divideUp(rows - tiles * low, more);
    return {{low, more, higher, tiles},
            tiles * costs[index - 1] +
                higher * (costs[index] - costs[index - 1])};
  }
  int64_t height = llvm::alignTo(mean, Contract::kHeightUnit);
  return {{height, 0, 0, divideUp(rows, height)}, tiles * costOf(height)};
}

GroupCutter::Candidate GroupCutter::getHighest(int64_t rows) const {
  int64_t height = shape.getMaxHeight(), tiles = divideUp(rows, height);
  int64_t whole = tiles * height == rows ? tiles : tiles - 1;
  int64_t rest = rows - whole * height;
  int64_t cost = whole * costs.back() + (rest ? costOf(rest) : 0);
  return {{height, 0, 0, tiles},
          shape.hasQueue ? cost : cost + cost / Contract::kUnevenShare};
}

Cut GroupCutter::cut(int64_t rows) const {
  int64_t fewest = divideUp(rows, shape.getMaxHeight());
  Candidate best = getEven(rows, fewest);
  auto consider = [&](const Candidate &other) {
    if (other.cost < best.cost)
      best = other;
  };
  if (shape.tileRows.size() == 1)
    return best.cut;
  if (shape.rowsOnM || shape.hasQueue)
    consider(getHighest(rows));
  if (!shape.rowsOnM)
    consider(getEven(rows, fewest + (fewest > 1)));
  return best.cut;
}
