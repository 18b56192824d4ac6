//===- Sm90Tiles.cpp - how sm90.contract cuts rows into tiles ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// M tiling on the device. A group's rows are split into tiles of about equal
// height, each of which runs at the lowest BLOCK_M that holds it. The fewest
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

#include "Sm90Contract.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace moec;

constexpr int64_t kUnit = sm90::Contract::kHeightUnit;

namespace {

/// Arithmetic on one group's rows.
class TileHeights {
public:
  TileHeights(Sm90Contract &contract, Value count)
      : contract(contract), emitter(contract.emitter), b(contract.b),
        shape(contract.shape), count(count) {}

  Sm90Contract::Cut choose();

private:
  Value select(Value flag, Value then, Value otherwise) {
    return arith::SelectOp::create(b, flag, then, otherwise);
  }
  /// The cost of a tile of `rows`, at least 1 and at most the greatest height.
  Value costOf(Value rows);
  /// Adds a tiling of at most `tiles` tiles of about equal height, or of two
  /// heights.
  void addEven(Value tiles);
  /// Adds a tiling of tiles of the largest BLOCK_M and a rest; `tiles` in all.
  void addHighest(Value tiles);
  /// Adds a candidate. `tiles` is 0 if all tiles but the last have one height,
  /// from which their number follows.
  void add(Sm90Contract::Cut cut, Value cost);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  Value count;
  Sm90Contract::Cut best;
  Value bestCost;
};

Value TileHeights::costOf(Value rows) {
  ArrayRef<int64_t> tileRows = shape.tileRows;
  Value cost = emitter.i32(shape.getTileCost(tileRows.back()));
  for (int64_t height : llvm::reverse(tileRows.drop_back()))
    cost = select(arith::CmpIOp::create(b, arith::CmpIPredicate::sle, rows,
                                        emitter.i32(height)),
                  emitter.i32(shape.getTileCost(height)), cost);
  return cost;
}

void TileHeights::add(Sm90Contract::Cut cut, Value cost) {
  if (!bestCost) {
    best = cut;
    bestCost = cost;
    return;
  }
  Value isLess = emitter.isLess(cost, bestCost);
  best.heights = select(isLess, cut.heights, best.heights);
  best.tiles = select(isLess, cut.tiles, best.tiles);
  bestCost = select(isLess, cost, bestCost);
}

void TileHeights::addEven(Value tiles) {
  Value mean = contract.divideUp(count, tiles);
  Value height = contract.roundHeight(mean);
  Sm90Contract::Cut cut{contract.packHeight(height), emitter.i32(0)};
  Value cost = b.createOrFold<arith::MulIOp>(tiles, costOf(height));
  for (size_t i = 1; i < shape.tileRows.size(); ++i) {
    int64_t low = shape.tileRows[i - 1], high = shape.tileRows[i];
    if (!shape.mixesHeights(low, high))
      continue;
    // Between the two, and few enough for their bits in the entry.
    Value isBetween = arith::AndIOp::create(
        b,
        arith::AndIOp::create(b, emitter.isLess(emitter.i32(low), mean),
                              emitter.isLess(mean, emitter.i32(high + 1))),
        emitter.isLess(tiles, emitter.i32(sm90::Contract::kMaxHigher)));
    Value missing = arith::SubIOp::create(b, count, emitter.scale(tiles, low));
    int64_t more = high - low;
    Value higher = emitter.divide(emitter.scale(missing, 1, more - 1), more);
    int64_t lowCost = shape.getTileCost(low);
    cut.heights =
        select(isBetween, contract.packHeights(low, high, higher), cut.heights);
    cut.tiles = select(isBetween, tiles, cut.tiles);
    cost = select(isBetween,
                  contract.addI32(
                      emitter.scale(tiles, lowCost),
                      emitter.scale(higher, shape.getTileCost(high) - lowCost)),
                  cost);
  }
  add(cut, cost);
}

void TileHeights::addHighest(Value tiles) {
  int64_t height = shape.getMaxHeight();
  Value whole = emitter.divide(count, height);
  Value rest = emitter.remainder(count, height);
  Value restCost = select(contract.isEqual(rest, emitter.i32(0)),
                          emitter.i32(0), costOf(rest));
  Value cost = contract.addI32(emitter.scale(whole, shape.getTileCost(height)),
                               restCost);
  if (!shape.hasQueue)
    cost = contract.addI32(cost,
                           emitter.divide(cost, sm90::Contract::kUnevenShare));
  add({contract.packHeight(emitter.i32(height)), tiles}, cost);
}

Sm90Contract::Cut TileHeights::choose() {
  bool isOne = shape.tileRows.size() == 1;
  bool mayBeUneven = !isOne && (shape.rowsOnM || shape.hasQueue);
  Value fewest = emitter.divide(
      emitter.scale(count, 1, shape.getMaxHeight() - 1), shape.getMaxHeight());
  // An empty group has no tiles; its BLOCK_M is not read.
  Value tiles = arith::MaxUIOp::create(b, fewest, emitter.i32(1));
  addEven(tiles);
  if (mayBeUneven)
    addHighest(fewest);
  if (!isOne && !shape.rowsOnM) {
    // Splitting a single tile would add an item to each N tile.
    Value isSingle = contract.isEqual(tiles, emitter.i32(1));
    addEven(select(isSingle, tiles, emitter.scale(tiles, 1, 1)));
  }
  Value height = contract.unpackHeights(best.heights).low;
  Value counted = contract.divideUp(count, height);
  Value isKnown = emitter.isLess(emitter.i32(0), best.tiles);
  best.tiles = mayBeUneven ? select(isKnown, best.tiles, counted) : counted;
  return best;
}

} // namespace

Sm90Contract::Cut Sm90Contract::cutGroup(Value count) {
  Cut cut = TileHeights(*this, count).choose();
  return {cut.heights, ifTaken(count, cut.tiles)};
}

Value Sm90Contract::roundHeight(Value rows) {
  Value height = emitter.scale(
      emitter.divide(emitter.scale(rows, 1, kUnit - 1), kUnit), kUnit);
  return arith::MaxUIOp::create(b, height, emitter.i32(kUnit));
}

//===----------------------------------------------------------------------===//
// Two values of BLOCK_M in a word
//===----------------------------------------------------------------------===//

/// Multiples of 8: the lower BLOCK_M, and the difference to the higher one;
/// then the number of tiles with that.
constexpr int64_t kHeightBits = 6;
static_assert(sm90::Contract::kMaxHeight / kUnit < 1 << kHeightBits);
static_assert(sm90::Contract::kMaxHigher == int64_t(1)
                                                << (31 - 2 * kHeightBits));

Value Sm90Contract::packHeight(Value height) {
  return shape.hasTwoHeights() ? emitter.divide(height, kUnit) : height;
}

Value Sm90Contract::packHeights(int64_t low, int64_t high, Value higher) {
  int64_t heights = low / kUnit + ((high - low) / kUnit << kHeightBits);
  return emitter.scale(higher, int64_t(1) << 2 * kHeightBits, heights);
}

Sm90Contract::Heights Sm90Contract::unpackHeights(Value word) {
  if (!shape.hasTwoHeights())
    return {word, emitter.i32(0), emitter.i32(0)};
  constexpr int64_t all = int64_t(1) << kHeightBits;
  Value others = emitter.divide(word, all);
  return {emitter.scale(emitter.remainder(word, all), kUnit),
          emitter.scale(emitter.remainder(others, all), kUnit),
          emitter.divide(others, all)};
}

//===----------------------------------------------------------------------===//
// All groups
//===----------------------------------------------------------------------===//

/// Results go through the table, whose entries have space: the code for one
/// group is long.
Sm90Contract::Cuts Sm90Contract::cutInTurn(int64_t share, Value first,
                                           LoadCount loadCount) {
  Value groups = emitter.i32(shape.groups);
  emitter.forLoop(
      emitter.index(0), emitter.index(share), ptxas::kCutAtOnce,
      [&](Value part) {
        SmallVector<Value> own, counts;
        for (int64_t i = 0; i < ptxas::kCutAtOnce; ++i) {
          own.push_back(
              addI32(first, emitter.scale(emitter.toI32(part), 1, i)));
          counts.push_back(loadCount(own.back()));
        }
        SmallVector<Cut> cuts;
        for (Value count : counts)
          cuts.push_back(cutGroup(count));
        for (auto [group, cut] : llvm::zip(own, cuts))
          emitter.ifThen(emitter.isLess(group, groups), [&, group = group,
                                                         cut = cut] {
            emitter.store(cut.tiles, wordAddress(group, kTileWord), kWordBytes);
            emitter.store(cut.heights, wordAddress(group, kHeightsWord),
                          kWordBytes);
          });
      });
  // Lanes have read the entry behind the last group, too.
  emitter.warpBarrier();
  Cuts cuts;
  for (int64_t i = 0; i < share; ++i) {
    Value group = emitter.scale(first, 1, i);
    Type i32 = b.getI32Type();
    SmallVector<Value> cut = emitter.choose(
        emitter.isLess(group, groups), {i32, i32},
        [&]() -> SmallVector<Value> {
          auto load = [&](int64_t word) {
            return emitter.load(i32, wordAddress(group, word), kWordBytes);
          };
          return {load(kHeightsWord), load(kTileWord)};
        },
        [&]() -> SmallVector<Value> {
          return {emitter.i32(0), emitter.i32(0)};
        });
    cuts.heights.push_back(cut[0]);
    cuts.tiles.push_back(cut[1]);
  }
  return cuts;
}

/// Weights are not copied before this, so that latency counts. If all groups
/// have one tile or none, as with few tokens, no division by a runtime value is
/// needed.
Sm90Contract::Cuts Sm90Contract::cutGroups(ArrayRef<Value> counts, Value first,
                                           LoadCount loadCount) {
  auto flatten = [](Cuts cuts) {
    llvm::append_range(cuts.heights, cuts.tiles);
    return cuts.heights;
  };
  auto emitSingle = [&] {
    Cuts cuts;
    for (Value count : counts) {
      cuts.heights.push_back(packHeight(roundHeight(count)));
      cuts.tiles.push_back(ifTaken(count, minI32(count, emitter.i32(1))));
    }
    return flatten(cuts);
  };
  auto emitAny = [&] {
    int64_t share = counts.size();
    if (share > ptxas::kCutAtOnce)
      return flatten(cutInTurn(share, first, loadCount));
    Cuts cuts;
    for (Value count : counts) {
      Cut cut = cutGroup(count);
      cuts.heights.push_back(cut.heights);
      cuts.tiles.push_back(cut.tiles);
    }
    return flatten(cuts);
  };
  Value largest = counts.front();
  for (Value count : counts.drop_front())
    largest = arith::MaxSIOp::create(b, largest, count);
  // Uniform over the lanes.
  Value higher = emitter.countLanes(
      emitter.isLess(emitter.i32(shape.getMaxHeight()), largest));
  SmallVector<Type> types(2 * counts.size(), b.getI32Type());
  SmallVector<Value> all = emitter.choose(isEqual(higher, emitter.i32(0)),
                                          types, emitSingle, emitAny);
  ArrayRef<Value> values = all;
  return {llvm::to_vector(values.take_front(counts.size())),
          llvm::to_vector(values.drop_front(counts.size()))};
}

Value Sm90Contract::takesGroup(Value count) {
  Value takes;
  auto add = [&](arith::CmpIPredicate predicate, std::optional<uint64_t> rows) {
    if (!rows)
      return;
    // No group has more rows.
    constexpr uint64_t most = std::numeric_limits<int32_t>::max();
    Value bound = emitter.i32(int64_t(std::min(*rows, most)));
    Value isInside = arith::CmpIOp::create(b, predicate, count, bound);
    takes = takes ? arith::AndIOp::create(b, takes, isInside) : isInside;
  };
  add(arith::CmpIPredicate::sge, op.getMinGroupRows());
  add(arith::CmpIPredicate::sle, op.getMaxGroupRows());
  return takes;
}

Value Sm90Contract::ifTaken(Value count, Value tiles) {
  Value takes = takesGroup(count);
  return takes ? arith::SelectOp::create(b, takes, tiles, emitter.i32(0))
               : tiles;
}
