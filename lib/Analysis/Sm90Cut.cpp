//===- Sm90Cut.cpp - how sm90.contract cuts rows into tiles -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Sm90Cut.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace moec;
using namespace moec::sm90;

std::array<std::pair<int64_t, int64_t>, 3> Cut::getTiles(int64_t rows) const {
  int64_t highBefore = std::min(higher, tiles - 1);
  int64_t lowBefore = tiles - 1 - highBefore;
  int64_t last = rows - highBefore * (low + more) - lowBefore * low;
  return {{{low + more, highBefore}, {low, lowBefore}, {last, 1}}};
}

namespace {

class GroupCutter {
public:
  GroupCutter(const Contract &shape, int64_t rows) : shape(shape), rows(rows) {}

  Cut run();

private:
  int64_t costOf(int64_t height) const {
    return shape.getTileCost(*llvm::find_if(
        shape.bodies, [&](int64_t body) { return body >= height; }));
  }
  void add(const Cut &cut, int64_t cost) {
    if (cost >= bestCost)
      return;
    best = cut;
    bestCost = cost;
  }
  void addEven(int64_t tiles);
  void addHighest();

  const Contract &shape;
  int64_t rows;
  Cut best{};
  int64_t bestCost = std::numeric_limits<int64_t>::max();
};

void GroupCutter::addEven(int64_t tiles) {
  int64_t mean = llvm::divideCeil(rows, tiles);
  size_t body = 0;
  while (shape.bodies[body] < mean)
    ++body;
  int64_t high = shape.bodies[body];
  if (body > 0 && tiles < Contract::kMostHigher &&
      shape.mixesHeights(shape.bodies[body - 1], high)) {
    int64_t low = shape.bodies[body - 1], more = high - low;
    int64_t higher = llvm::divideCeil(rows - tiles * low, more);
    int64_t lowCost = shape.getTileCost(low);
    return add({low, more, higher, tiles},
               tiles * lowCost + higher * (shape.getTileCost(high) - lowCost));
  }
  int64_t height = llvm::alignTo(mean, Contract::kHeightUnit);
  add({height, 0, 0, int64_t(llvm::divideCeil(rows, height))},
      tiles * costOf(height));
}

void GroupCutter::addHighest() {
  int64_t height = shape.getMaxBody(), rest = rows % height;
  int64_t cost =
      rows / height * shape.getTileCost(height) + (rest ? costOf(rest) : 0);
  add({height, 0, 0, int64_t(llvm::divideCeil(rows, height))},
      shape.hasQueue ? cost : cost + cost / Contract::kUnevenShare);
}

Cut GroupCutter::run() {
  int64_t fewest = llvm::divideCeil(rows, shape.getMaxBody());
  addEven(fewest);
  if (shape.bodies.size() == 1)
    return best;
  if (shape.rowsOnM || shape.hasQueue)
    addHighest();
  if (!shape.rowsOnM)
    addEven(fewest + (fewest > 1));
  return best;
}

} // namespace

Cut sm90::cutGroup(const Contract &shape, int64_t rows) {
  return GroupCutter(shape, rows).run();
}
