//===- Sm90Tiles.cpp - how sm90.contract cuts rows into tiles ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A group's rows are cut into tiles of one height, of which the last may be
// lower; each runs in the lowest body that holds it. Tiles as high as the
// highest body leave a rest that may cost little or much; about equal ones are
// all padded to the next body; which is cheaper depends on the number of rows.
// So both are weighed, and the next lower bodies too.

#include "Sm90Contract.h"

#include <algorithm>

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
  /// Tiles of a constant height, and of one that makes all of them about equal.
  void addConstant(int64_t height);
  void addEqual();
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

void TileHeights::addConstant(int64_t height) {
  Value whole = emitter.divide(count, height);
  Value rest = emitter.remainder(count, height);
  Value restCost = arith::SelectOp::create(
      b, contract.isEqual(rest, emitter.i32(0)), emitter.i32(0), costOf(rest));
  add(emitter.i32(height),
      contract.addI32(emitter.scale(whole, shape.getTileCost(height)),
                      restCost));
}

void TileHeights::addEqual() {
  // As many whole rows of 8 as make as few tiles as there can be about equal.
  constexpr int64_t rows8 = 8;
  Value tiles = emitter.divide(emitter.scale(count, 1, shape.getMaxBody() - 1),
                               shape.getMaxBody());
  // An empty group has none; its height is not read.
  tiles = arith::MaxUIOp::create(b, tiles, emitter.i32(1));
  Value height = arith::DivUIOp::create(
      b, emitter.scale(contract.addI32(count, tiles), 1, -1), tiles);
  height = emitter.scale(
      emitter.divide(emitter.scale(height, 1, rows8 - 1), rows8), rows8);
  height = arith::MaxUIOp::create(b, height, emitter.i32(rows8));
  add(height, b.createOrFold<arith::MulIOp>(tiles, costOf(height)));
}

Value TileHeights::choose() {
  addEqual();
  // Lower bodies make many tiles; equal ones of a single body are the same.
  for (int64_t body : llvm::reverse(shape.bodies))
    if (shape.bodies.size() > 1 && 2 * body > shape.getMaxBody())
      addConstant(body);
  return best;
}

} // namespace

Value Sm90Contract::chooseHeight(Value count) {
  return TileHeights(*this, count).choose();
}
