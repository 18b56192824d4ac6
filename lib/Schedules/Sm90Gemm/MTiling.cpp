//===- MTiling.cpp - tiles of the rows of a group ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// M tiling on the device. A group's rows are split into tiles of about equal
// BLOCK_M, each of which runs at the lowest BLOCK_M that holds it. The fewest
// tiles possible (at least two) may all be padded to a large BLOCK_M where one
// tile more fits a lower one, so both are considered.
//
// With the static scheduler, CTAs diverge if tiles are unequal, and data that
// one brings into L2 is evicted before the next one needs it. The dynamic
// scheduler avoids that: its tiles have two neighbouring values of BLOCK_M,
// with as many of the higher one as needed, so that hardly a row is padded.
// Tiles of the largest BLOCK_M plus a low rest are used there, too; and with
// rows on M, where high tiles are 64 rows apart, for groups of little more than
// one tile, whose padding is the greater loss.

#include "GroupTable.h"
#include "GroupTiling.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace moec;

constexpr int64_t kMultiple = sm90::kBlockMMultiple;

static I32 maxUnsigned(I32 x, int64_t y) {
  return x.apply<arith::MaxUIOp>(x.like(y));
}

/// Rounds up to a multiple of 8, at least 8.
static I32 roundToBlockM(I32 rows) {
  return maxUnsigned(divideUp(rows, kMultiple) * kMultiple, kMultiple);
}

namespace {

/// Arithmetic on one group's rows.
class GroupMTiler {
public:
  GroupMTiler(Sm90GroupTable &table, AsyncEmitter &emitter,
              const sm90::GemmShape &shape, I32 count)
      : table(table), emitter(emitter), shape(shape), count(count) {}

  Sm90MTiling choose();

private:
  /// The cost of a tile of `rows`, at least 1 and at most the greatest BLOCK_M.
  I32 costOf(I32 rows);
  /// Adds a tiling of at most `tiles` tiles of about equal size, or of two
  /// values of BLOCK_M.
  void addEven(I32 tiles);
  /// Adds a tiling of tiles of the largest BLOCK_M and a rest; `tiles` in all.
  void addHighest(I32 tiles);
  /// Adds a candidate. `tiles` is 0 if all tiles but the last have one BLOCK_M,
  /// from which their number follows.
  void add(Sm90MTiling tiling, I32 cost);

  Sm90GroupTable &table;
  AsyncEmitter &emitter;
  const sm90::GemmShape &shape;
  I32 count;
  Sm90MTiling best;
  I32 bestCost;
};

I32 GroupMTiler::costOf(I32 rows) {
  ArrayRef<int64_t> tileRows = shape.tile().blockM;
  I32 cost = emitter.i32(sm90::getTileCost(shape, tileRows.back()));
  for (int64_t blockM : llvm::reverse(tileRows.drop_back()))
    cost = select(rows <= blockM, emitter.i32(sm90::getTileCost(shape, blockM)),
                  cost);
  return cost;
}

void GroupMTiler::add(Sm90MTiling tiling, I32 cost) {
  if (!bestCost) {
    best = tiling;
    bestCost = cost;
    return;
  }
  Flag isLess = cost < bestCost;
  best.blockMs = select(isLess, tiling.blockMs, best.blockMs);
  best.tiles = select(isLess, tiling.tiles, best.tiles);
  bestCost = select(isLess, cost, bestCost);
}

void GroupMTiler::addEven(I32 tiles) {
  I32 mean = divideUp(count, tiles);
  I32 blockM = roundToBlockM(mean);
  Sm90MTiling tiling{table.packBlockM(blockM), emitter.i32(0)};
  I32 cost = tiles * costOf(blockM);
  for (size_t i = 1; i < shape.tile().blockM.size(); ++i) {
    int64_t low = shape.tile().blockM[i - 1], high = shape.tile().blockM[i];
    if (!shape.tile().mixesBlockMs(low, high))
      continue;
    // Between the two, and few enough for their bits in the entry.
    Flag isBetween = (emitter.i32(low) < mean) & (mean < high + 1) &
                     (tiles < sm90::kMaxHigher);
    I32 missing = count - tiles * low;
    I32 higher = divideUp(missing, high - low);
    int64_t lowCost = sm90::getTileCost(shape, low);
    tiling.blockMs =
        select(isBetween, table.packBlockMs(low, high, higher), tiling.blockMs);
    tiling.tiles = select(isBetween, tiles, tiling.tiles);
    I32 mixedCost =
        tiles * lowCost + higher * (sm90::getTileCost(shape, high) - lowCost);
    cost = select(isBetween, mixedCost, cost);
  }
  add(tiling, cost);
}

void GroupMTiler::addHighest(I32 tiles) {
  int64_t blockM = shape.tile().getMaxBlockM();
  I32 whole = count / blockM;
  I32 rest = count % blockM;
  Flag isWhole = rest == 0;
  I32 restCost = select(isWhole, emitter.i32(0), costOf(rest));
  I32 cost = whole * sm90::getTileCost(shape, blockM) + restCost;
  if (!shape.tile().hasDynamicScheduler)
    cost = cost + cost / sm90::kUnevenShare;
  add({table.packBlockM(emitter.i32(blockM)), tiles}, cost);
}

Sm90MTiling GroupMTiler::choose() {
  bool isOne = shape.tile().blockM.size() == 1;
  bool mayBeUneven =
      !isOne && (shape.tile().noSwapAB || shape.tile().hasDynamicScheduler);
  I32 fewest = divideUp(count, shape.tile().getMaxBlockM());
  // An empty group has no tiles; its BLOCK_M is not read.
  I32 tiles = maxUnsigned(fewest, 1);
  addEven(tiles);
  if (mayBeUneven)
    addHighest(fewest);
  if (!isOne && !shape.tile().noSwapAB)
    // Splitting a single tile would add an item to each N tile.
    addEven(select(tiles == 1, tiles, tiles + 1));
  I32 counted = divideUp(count, table.unpackBlockMs(best.blockMs).low);
  Flag isKnown = emitter.i32(0) < best.tiles;
  best.tiles = mayBeUneven ? select(isKnown, best.tiles, counted) : counted;
  return best;
}

} // namespace

Sm90MTiling Sm90GroupTable::tileGroup(I32 count) {
  Sm90MTiling tiling = GroupMTiler(*this, emitter, shape, count).choose();
  return {tiling.blockMs, ifTaken(count, tiling.tiles)};
}

//===----------------------------------------------------------------------===//
// Two values of BLOCK_M in a word
//===----------------------------------------------------------------------===//

/// Multiples of 8: the lower BLOCK_M, and the difference to the higher one;
/// then the number of tiles with that.
constexpr int64_t kBlockMBits = 6;
static_assert(sm90::kMaxBlockM / kMultiple < 1 << kBlockMBits);
static_assert(sm90::kMaxHigher == int64_t(1) << (31 - 2 * kBlockMBits));

I32 Sm90GroupTable::packBlockM(I32 blockM) {
  return shape.tile().hasTwoBlockMs() ? blockM / kMultiple : blockM;
}

I32 Sm90GroupTable::packBlockMs(int64_t low, int64_t high, I32 higher) {
  int64_t blockMs = low / kMultiple + ((high - low) / kMultiple << kBlockMBits);
  return higher * (int64_t(1) << 2 * kBlockMBits) + blockMs;
}

Sm90GroupTable::BlockMPair Sm90GroupTable::unpackBlockMs(I32 word) {
  if (!shape.tile().hasTwoBlockMs())
    return {word, emitter.i32(0), emitter.i32(0)};
  constexpr int64_t all = int64_t(1) << kBlockMBits;
  I32 others = word / all;
  return {word % all * kMultiple, others % all * kMultiple, others / all};
}

//===----------------------------------------------------------------------===//
// All groups
//===----------------------------------------------------------------------===//

/// Results go through the table, whose entries have space: the code for one
/// group is long.
Sm90GroupTable::Tilings Sm90GroupTable::tileInTurn(int64_t share, I32 first) {
  auto tilePart = [&](Index part) {
    SmallVector<I32> own, counts;
    for (int64_t i = 0; i < ptxas::kCutAtOnce; ++i) {
      own.push_back(first + (emitter.toI32(part) + i));
      counts.push_back(loadCount(own.back()));
    }
    SmallVector<Sm90MTiling> tilings;
    for (I32 count : counts)
      tilings.push_back(tileGroup(count));
    for (auto [group, tiling] : llvm::zip(own, tilings))
      emitter.ifThen(group < shape.problem().groups, [&, group = group,
                                                      tiling = tiling] {
        emitter.store(tiling.tiles, wordAddress(group, kTileWord), kWordBytes);
        emitter.store(tiling.blockMs, wordAddress(group, kBlockMWord),
                      kWordBytes);
      });
  };
  emitter.loop(emitter.index(0), emitter.index(share), ptxas::kCutAtOnce,
               tilePart);
  // Lanes have read the entry behind the last group, too.
  emitter.warpBarrier();
  Tilings tilings;
  for (int64_t i = 0; i < share; ++i) {
    I32 group = first + i;
    tilings.add(emitter.choose(
        group < shape.problem().groups,
        [&] {
          I32 blockMs = emitter.loadWord(wordAddress(group, kBlockMWord));
          I32 tiles = emitter.loadWord(wordAddress(group, kTileWord));
          return Sm90MTiling{blockMs, tiles};
        },
        [&] { return Sm90MTiling{emitter.i32(0), emitter.i32(0)}; }));
  }
  return tilings;
}

/// Weights are not copied before this, so that latency counts. If all groups
/// have one tile or none, as with few tokens, no division by a runtime value is
/// needed.
Sm90GroupTable::Tilings Sm90GroupTable::tileGroups(ArrayRef<I32> counts,
                                                   I32 first) {
  I32 largest = counts.front();
  for (I32 count : counts.drop_front())
    largest = max(largest, count);
  // Uniform over the lanes.
  I32 higher =
      emitter.countLanes(emitter.i32(shape.tile().getMaxBlockM()) < largest);
  return emitter.choose(
      higher == 0,
      [&] {
        Tilings tilings;
        for (I32 count : counts) {
          I32 blockM = packBlockM(roundToBlockM(count));
          tilings.add({blockM, ifTaken(count, min(count, 1))});
        }
        return tilings;
      },
      [&] {
        auto share = int64_t(counts.size());
        if (share > ptxas::kCutAtOnce)
          return tileInTurn(share, first);
        Tilings tilings;
        for (I32 count : counts)
          tilings.add(tileGroup(count));
        return tilings;
      });
}

Flag Sm90GroupTable::takesGroup(I32 count) {
  Flag takes;
  auto add = [&](arith::CmpIPredicate predicate, std::optional<uint64_t> rows) {
    if (!rows)
      return;
    // No group has more rows.
    constexpr uint64_t most = std::numeric_limits<int32_t>::max();
    I32 bound = emitter.i32(int64_t(std::min(*rows, most)));
    Flag isInside = count.compare(predicate, bound);
    takes = takes.isNull() ? isInside : takes & isInside;
  };
  add(arith::CmpIPredicate::sge, op.getMinGroupRows());
  add(arith::CmpIPredicate::sle, op.getMaxGroupRows());
  return takes;
}

I32 Sm90GroupTable::ifTaken(I32 count, I32 tiles) {
  // Whole clusters, whose last tile may have no rows.
  if (int64_t together = shape.tile().getClusterTiles(); together > 1)
    tiles = divideUp(tiles, together) * together;
  Flag takes = takesGroup(count);
  return takes.isNull() ? tiles : select(takes, tiles, 0);
}
