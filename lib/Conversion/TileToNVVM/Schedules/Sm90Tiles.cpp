//===- Sm90Tiles.cpp - how sm90.contract cuts rows into tiles ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A group's rows are cut into tiles of about equal height, each of which runs
// in the lowest body that holds it. As few tiles as there can be, but at least
// two, may all be padded to a high body where one tile more fits a lower one,
// so both are weighed.
//
// Unequal tiles, as high as the highest body and a low rest, have less padding;
// but then CTAs that take tiles in a fixed order come apart, and what one
// brings into the second-level cache is gone before the next needs it. So they
// are for CTAs with a queue; and with rows on M, where high bodies are 64 rows
// apart, for groups of little more than one tile, whose padding is the greater
// loss.

#include "Sm90Contract.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace moec;

namespace {

/// Arithmetic on one group's rows.
class TileHeights {
public:
  TileHeights(Sm90Contract &contract, Value count)
      : contract(contract), emitter(contract.emitter), b(contract.b),
        shape(contract.shape), count(count) {}

  Value choose();

private:
  /// The cost of a tile of `rows`, at least 1 and at most those of the highest
  /// body.
  Value costOf(Value rows);
  /// So many tiles of about equal height.
  void addEqual(Value tiles);
  /// Tiles of the highest body, and a rest.
  void addHighest();
  void add(Value height, Value cost);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  Value count;
  Value best, bestCost;
};

Value TileHeights::costOf(Value rows) {
  ArrayRef<int64_t> bodies = shape.bodies;
  Value cost = emitter.i32(shape.getTileCost(bodies.back()));
  for (int64_t body : llvm::reverse(bodies.drop_back()))
    cost = arith::SelectOp::create(
        b,
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, rows,
                              emitter.i32(body)),
        emitter.i32(shape.getTileCost(body)), cost);
  return cost;
}

void TileHeights::add(Value height, Value cost) {
  if (!best) {
    best = height;
    bestCost = cost;
    return;
  }
  Value isLess = emitter.isLess(cost, bestCost);
  best = arith::SelectOp::create(b, isLess, height, best);
  bestCost = arith::SelectOp::create(b, isLess, cost, bestCost);
}

void TileHeights::addEqual(Value tiles) {
  Value height = contract.roundHeight(contract.divideUp(count, tiles));
  add(height, b.createOrFold<arith::MulIOp>(tiles, costOf(height)));
}

void TileHeights::addHighest() {
  int64_t height = shape.getMaxBody();
  Value whole = emitter.divide(count, height);
  Value rest = emitter.remainder(count, height);
  Value restCost = arith::SelectOp::create(
      b, contract.isEqual(rest, emitter.i32(0)), emitter.i32(0), costOf(rest));
  Value cost = contract.addI32(emitter.scale(whole, shape.getTileCost(height)),
                               restCost);
  // Without a queue they have to save an eighth.
  constexpr int64_t share = 8;
  if (!shape.hasQueue)
    cost = contract.addI32(cost, emitter.divide(cost, share));
  add(emitter.i32(height), cost);
}

Value TileHeights::choose() {
  Value fewest = emitter.divide(emitter.scale(count, 1, shape.getMaxBody() - 1),
                                shape.getMaxBody());
  // An empty group has none; its height is not read.
  fewest = arith::MaxUIOp::create(b, fewest, emitter.i32(1));
  addEqual(fewest);
  if (shape.bodies.size() == 1)
    return best;
  if (shape.rowsOnM || shape.hasQueue)
    addHighest();
  if (shape.rowsOnM)
    return best;
  // Halves of a single tile would be one item more in each panel.
  Value isSingle = contract.isEqual(fewest, emitter.i32(1));
  addEqual(arith::SelectOp::create(b, isSingle, fewest,
                                   emitter.scale(fewest, 1, 1)));
  return best;
}

} // namespace

Value Sm90Contract::chooseHeight(Value count) {
  return TileHeights(*this, count).choose();
}

Value Sm90Contract::roundHeight(Value rows) {
  constexpr int64_t rows8 = 8;
  Value height = emitter.scale(
      emitter.divide(emitter.scale(rows, 1, rows8 - 1), rows8), rows8);
  return arith::MaxUIOp::create(b, height, emitter.i32(rows8));
}

/// No weight is copied before. So where all groups have a tile or none, as of
/// few tokens, that is found without divisions by what is not known.
Sm90Contract::Cuts Sm90Contract::cutGroups(ArrayRef<Value> counts) {
  auto emit = [&](bool areSingle) {
    SmallVector<Value> all;
    for (Value count : counts) {
      all.push_back(areSingle ? roundHeight(count) : chooseHeight(count));
      all.push_back(areSingle ? ifTaken(count, minI32(count, emitter.i32(1)))
                              : countTiles(count, all.back()));
    }
    return all;
  };
  Value largest = counts.front();
  for (Value count : counts.drop_front())
    largest = arith::MaxSIOp::create(b, largest, count);
  // The same in all lanes.
  Value higher = emitter.countLanes(
      emitter.isLess(emitter.i32(shape.getMaxBody()), largest));
  SmallVector<Type> types(2 * counts.size(), b.getI32Type());
  SmallVector<Value> all = emitter.choose(
      isEqual(higher, emitter.i32(0)), types, [&] { return emit(true); },
      [&] { return emit(false); });
  Cuts cuts;
  for (size_t i = 0; i < all.size(); i += 2) {
    cuts.heights.push_back(all[i]);
    cuts.tiles.push_back(all[i + 1]);
  }
  return cuts;
}

Value Sm90Contract::takesGroup(Value count) {
  Value takes;
  auto add = [&](arith::CmpIPredicate predicate, std::optional<uint64_t> rows) {
    if (!rows)
      return;
    // No group has more.
    constexpr uint64_t most = std::numeric_limits<int32_t>::max();
    Value bound = emitter.i32(int64_t(std::min(*rows, most)));
    Value isInside = arith::CmpIOp::create(b, predicate, count, bound);
    takes = takes ? arith::AndIOp::create(b, takes, isInside) : isInside;
  };
  add(arith::CmpIPredicate::sge, op.getMinGroupRows());
  add(arith::CmpIPredicate::sle, op.getMaxGroupRows());
  return takes;
}

Value Sm90Contract::countTiles(Value count, Value height) {
  return ifTaken(count, divideUp(count, height));
}

Value Sm90Contract::ifTaken(Value count, Value tiles) {
  Value takes = takesGroup(count);
  return takes ? arith::SelectOp::create(b, takes, tiles, emitter.i32(0))
               : tiles;
}
