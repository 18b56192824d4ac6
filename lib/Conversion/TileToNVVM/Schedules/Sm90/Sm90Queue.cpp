//===- Sm90Queue.cpp - which tiles a CTA of sm90.contract takes -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Dynamic tile scheduler. With the static scheduler a CTA takes every
// gridDim-th tile of the list. Tiles are known in advance, but if tiles differ
// in height, or CTAs in speed, the CTAs diverge: tiles that share weights run
// at different times, and read them from memory again.
//
// With the dynamic scheduler a CTA takes the next free tile, by a counter in
// memory, so that at any time all CTAs are in one short stretch of the list. A
// CTA's first tile is its own index. One thread of the warps that copy rows
// draws the next index after it has issued the last copies of a tile; earlier,
// tiles would not begin in the order in which they are drawn. It publishes the
// index to all warps in one of two slots in shared memory, each with a barrier
// for "written" and one for "read by all warps". As many indices are drawn as
// there are tiles; the thread that draws the last one resets the counter.

#include "Sm90Contract.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;
using sm90::Contract;

namespace {

/// Published tile indices in shared memory; `turn` (i32) counts them.
class TileQueue {
public:
  TileQueue(Sm90Contract &contract, const Sm90Contract::Items &items)
      : contract(contract), emitter(contract.emitter), b(contract.b),
        items(items) {}

  /// The thread that `draws` (i1): takes the next index and publishes it.
  void draw(Value draws, Value turn);
  /// Whole warps, including that of the drawing thread: reads the published
  /// index.
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
  // Readers: the consumers, the warp that copies boxes, and those that copy
  // rows.
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
  // The index is known without a wait: threads that copy rows arrive for the
  // last stage of a tile after the draw, and a consumer has waited for that
  // stage.
  bool isKnown = isConsumer && shape.hasRowThreads();
  Items items = getItems();
  if (!op.getTickets())
    return forItems(items, init, body);
  TileQueue queue(*this, items);
  // Carries the tile index, the count of published ones, and the values of
  // `body`.
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
