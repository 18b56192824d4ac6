//===- GroupTiling.cpp - how sm90.gemm tiles M ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GroupTiling.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace moec;
using namespace moec::sm90;

std::array<std::pair<int64_t, int64_t>, 3>
GroupTiling::getTiles(int64_t rows) const {
  int64_t highBefore = std::min(higher, tiles - 1);
  int64_t lowBefore = tiles - 1 - highBefore;
  int64_t last = rows - highBefore * (low + more) - lowBefore * low;
  return {{{low + more, highBefore}, {low, lowBefore}, {last, 1}}};
}

/// For numbers below 2^32: a 32-bit division takes half as long.
static int64_t divideUp(int64_t x, int64_t y) {
  return (uint32_t(x) + uint32_t(y) - 1) / uint32_t(y);
}

/// Fewer than 40 rows cost as much as 40, because each tile has weights to
/// copy; costs once per tile weigh more the fewer k tiles there are. With rows
/// on M, a tile of half the rows needs whole copies of the weights, as lower
/// tiles do.
int64_t sm90::getTileCost(const GemmShape &shape, int64_t blockM) {
  constexpr int64_t once = 500;
  bool noSwapAB = shape.tile().noSwapAB;
  int64_t fewest = noSwapAB ? 72 : 40, weights = noSwapAB ? 0 : 14;
  return std::max(blockM, fewest) + weights + once / shape.tile().getKTiles();
}

GroupTiler::GroupTiler(const GemmShape &shape) : shape(shape) {
  int64_t rows = 0;
  for (auto [index, blockM] : llvm::enumerate(shape.tile().blockM)) {
    costs.push_back(getTileCost(shape, blockM));
    for (; rows <= blockM; rows += kBlockMMultiple)
      indices[rows / kBlockMMultiple] = uint8_t(index);
  }
}

GroupTiler::Candidate GroupTiler::getEven(int64_t rows, int64_t tiles) const {
  int64_t mean = divideUp(rows, tiles);
  size_t index = indexOf(mean);
  int64_t high = shape.tile().blockM[index];
  if (index > 0 && tiles < kMaxHigher &&
      shape.tile().mixesBlockMs(shape.tile().blockM[index - 1], high)) {
    int64_t low = shape.tile().blockM[index - 1], more = high - low;
    int64_t higher = divideUp(rows - tiles * low, more);
    return {{low, more, higher, tiles},
            tiles * costs[index - 1] +
                higher * (costs[index] - costs[index - 1])};
  }
  int64_t blockM = llvm::alignTo(mean, kBlockMMultiple);
  return {{blockM, 0, 0, divideUp(rows, blockM)}, tiles * costOf(blockM)};
}

GroupTiler::Candidate GroupTiler::getHighest(int64_t rows) const {
  int64_t blockM = shape.tile().getMaxBlockM(), tiles = divideUp(rows, blockM);
  int64_t whole = tiles * blockM == rows ? tiles : tiles - 1;
  int64_t rest = rows - whole * blockM;
  int64_t cost = whole * costs.back() + (rest ? costOf(rest) : 0);
  return {{blockM, 0, 0, tiles},
          shape.tile().hasDynamicScheduler ? cost : cost + cost / kUnevenShare};
}

GroupTiling GroupTiler::tile(int64_t rows) const {
  int64_t fewest = divideUp(rows, shape.tile().getMaxBlockM());
  Candidate best = getEven(rows, fewest);
  auto consider = [&](const Candidate &other) {
    if (other.cost < best.cost)
      best = other;
  };
  if (shape.tile().blockM.size() == 1)
    return best.tiling;
  if (shape.tile().noSwapAB || shape.tile().hasDynamicScheduler)
    consider(getHighest(rows));
  if (!shape.tile().noSwapAB)
    consider(getEven(rows, fewest + (fewest > 1)));
  return best.tiling;
}
