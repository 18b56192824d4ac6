//===- Sm90Queue.cpp - which tiles a CTA of sm90.contract takes -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Without a queue a CTA takes every gridDim-th tile of the list. That is known
// ahead, but tiles of different height, or CTAs of different speed, come apart
// for good: tiles that share weights run far from each other, and read them
// from memory again.
//
// With a queue it takes the next tile that nobody has, by a counter in memory,
// so that at any time all CTAs are in one short stretch of the list. Its first
// tile has the number of the CTA. One thread, of the warps that copy rows,
// draws the next number when it has started the last copies of a tile (before,
// tiles would not begin in the order in which they are drawn), and tells it to
// all warps: in one of two places in shared memory, with a barrier for "is
// there" and one for "has been read by all warps". Who draws the last number,
// as many are drawn as there are tiles, sets the counter back.

#include "Sm90Contract.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;
using sm90::Contract;

namespace {

/// The numbers of tiles in shared memory; `turn` (i32) counts those that were
/// told.
class TileQueue {
public:
  TileQueue(Sm90Contract &contract, const Sm90Contract::Items &items)
      : contract(contract), emitter(contract.emitter), b(contract.b),
        items(items) {}

  /// The thread that `draws` (i1): the next number, which it tells all warps.
  void draw(Value draws, Value turn);
  /// Whole warps, the one that draws too: the number that it told.
  Value take(Value turn, bool isKnown);

private:
  Value place(Value turn) { return emitter.remainder(turn, Contract::kTaken); }
  Value parity(Value turn) {
    return emitter.remainder(emitter.divide(turn, Contract::kTaken), 2);
  }
  Value number(Value turn) {
    return emitter.advance(
        contract.sharedAddress(contract.shape.getNumberOffset()),
        emitter.scale(place(turn), Contract::kNumberBytes));
  }
  Value counter() {
    return emitter.address(emitter.operand(contract.op.getTickets()),
                           {emitter.index(0)});
  }

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const Sm90Contract::Items &items;
};

void TileQueue::draw(Value draws, Value turn) {
  emitter.ifThen(draws, [&] {
    int64_t ticket = contract.quantizesRows() ? Contract::kTicket : 1;
    Value drawn = emitter.getAndAdd(emitter.i32(ticket), counter());
    if (ticket > 1)
      drawn = emitter.divide(drawn, ticket);
    Value before = arith::XOrIOp::create(b, parity(turn), emitter.i32(1));
    emitter.waitBarrier(contract.readBarrier(place(turn)), before);
    emitter.store(contract.addI32(drawn, items.step), number(turn),
                  Contract::kNumberBytes);
    emitter.arrive(contract.drawnBarrier(place(turn)));
    Value isLast = contract.isEqual(emitter.scale(drawn, 1, 1), items.end);
    emitter.ifThen(isLast, [&] {
      Value back = arith::SubIOp::create(b, emitter.i32(0),
                                         emitter.scale(items.end, ticket));
      emitter.getAndAdd(back, counter());
    });
  });
}

Value TileQueue::take(Value turn, bool isKnown) {
  if (!isKnown)
    emitter.waitBarrier(contract.drawnBarrier(place(turn)), parity(turn));
  Value taken =
      emitter.load(b.getI32Type(), number(turn), Contract::kNumberBytes);
  emitter.warpBarrier();
  emitter.ifThen(contract.isEqual(emitter.lane(), emitter.i32(0)),
                 [&] { emitter.arrive(contract.readBarrier(place(turn))); });
  return taken;
}

} // namespace

void Sm90Contract::initQueue() {
  // The consumers, the warp that copies boxes, those that copy rows.
  int64_t consumers = shape.getConsumers() * Contract::kWarpgroup;
  int64_t producers =
      Contract::kWarp + shape.hasRowThreads() * Contract::kRowThreads;
  Value place = emitter.lane();
  emitter.ifThen(emitter.isLess(place, emitter.i32(Contract::kTaken)), [&] {
    emitter.initBarrier(drawnBarrier(place), 1);
    emitter.initBarrier(readBarrier(place),
                        (consumers + producers) / Contract::kWarp);
  });
}

SmallVector<Value> Sm90Contract::forItems(ValueRange init, Value draws,
                                          ItemBody body, bool isConsumer) {
  // Who copies rows arrives for the last stage of a tile when it has drawn, and
  // a consumer has waited for that stage.
  bool isKnown = isConsumer && shape.hasRowThreads();
  Items items = getItems();
  if (!op.getTickets())
    return forItems(items, init, body);
  TileQueue queue(*this, items);
  // Behind the number of the tile and the turn, what `body` carries.
  SmallVector<Value> all{items.first, emitter.i32(0)};
  llvm::append_range(all, init);
  SmallVector<Type> types(ValueRange(all).getTypes());
  SmallVector<Location> locations(types.size(), b.getLoc());
  auto loop = scf::WhileOp::create(b, types, all);
  OpBuilder::InsertionGuard guard(b);
  Block *before = b.createBlock(&loop.getBefore(), {}, types, locations);
  scf::ConditionOp::create(b, emitter.isLess(before->getArgument(0), items.end),
                           before->getArguments());
  Block *after = b.createBlock(&loop.getAfter(), {}, types, locations);
  Value turn = after->getArgument(1);
  Value next;
  auto findNext = [&] {
    if (draws)
      queue.draw(draws, turn);
    next = queue.take(turn, isKnown);
    return next;
  };
  SmallVector<Value> carried = body(
      after->getArgument(0), after->getArguments().drop_front(2), findNext);
  SmallVector<Value> yielded{next, emitter.scale(turn, 1, 1)};
  llvm::append_range(yielded, carried);
  scf::YieldOp::create(b, yielded);
  return SmallVector<Value>(loop.getResults().drop_front(2));
}

SmallVector<Value> Sm90Contract::forItems(const Items &items, ValueRange init,
                                          ItemBody body) {
  auto loop = scf::ForOp::create(b, items.first, items.end, items.step, init);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  Value item = loop.getInductionVar();
  SmallVector<Value> carried = body(item, loop.getRegionIterArgs(),
                                    [&] { return addI32(item, items.step); });
  scf::YieldOp::create(b, carried);
  return SmallVector<Value>(loop.getResults());
}

static SmallVector<Value> emitTile(Sm90Contract &contract, Value item,
                                   ValueRange carried,
                                   llvm::function_ref<Value()> findNext,
                                   Sm90Contract::TileBody body) {
  SmallVector<Value> all = body(contract.findTile(item), carried);
  findNext();
  return all;
}

SmallVector<Value> Sm90Contract::forTiles(ValueRange init, TileBody body,
                                          Value draws, bool isConsumer) {
  return forItems(
      init, draws,
      [&](Value item, ValueRange carried,
          llvm::function_ref<Value()> findNext) {
        return emitTile(*this, item, carried, findNext, body);
      },
      isConsumer);
}

SmallVector<Value> Sm90Contract::forTiles(const Items &items, ValueRange init,
                                          TileBody body) {
  return forItems(items, init,
                  [&](Value item, ValueRange carried,
                      llvm::function_ref<Value()> findNext) {
                    return emitTile(*this, item, carried, findNext, body);
                  });
}
