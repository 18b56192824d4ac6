//===- Sm90TileScheduler.cpp - the tiles of a CTA ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// With the static tile scheduler, tiles are known in advance, but if tiles
// differ in height, or CTAs in speed, the CTAs diverge: tiles that share
// weights run at different times, and read them from memory again.
//
// With the dynamic scheduler a CTA takes the next free tile, by a counter in
// memory, so that at any time all CTAs are in one short stretch of the list. A
// CTA's first tile is its own index. One thread of the warps that copy rows
// draws the next index after it has issued the last copies of a tile; earlier,
// tiles would not begin in the order in which they are drawn. It publishes the
// index to all warps in one of two stages in shared memory. As many indices are
// drawn as there are tiles; the thread that draws the last one resets the
// counter.

#include "Sm90TileScheduler.h"

#include "moec/Analysis/CtaOrder.h"

using namespace mlir;
using namespace moec;

Sm90TileScheduler::Sm90TileScheduler(tile::ContractOp op, AsyncEmitter &emitter,
                                     const Sm90Shape &shape, Value shared,
                                     Sm90TileScheduler *before)
    : table(op, emitter, shape, shared), op(op), emitter(emitter), b(emitter.b),
      shape(shape), before(before),
      numbers(emitter, emitter.advance(shared, shape.getNumberOffset()), shared,
              {Sm90Shape::kTaken, Sm90Shape::kNumberBytes, /*firstStage=*/0,
               shape.getQueueOffset()}) {}

//===----------------------------------------------------------------------===//
// The list of tiles
//===----------------------------------------------------------------------===//

I32 Sm90TileScheduler::getCtaOrder(I32 ctas) {
  I32 cta = emitter.toI32(emitter.cta());
  // In a single gemm the first CTAs have a tile more, so that CTAs of the next
  // launch start on the SMs of the others first.
  plan::ExprAttr grid = op->getParentOfType<tile::KernelOp>().getGridAttr();
  if (!sm90::getPartner(op) || !grid || !grid.getExpr().isConstant())
    return cta;
  // The factor is prime to the number of CTAs, so that indices are unique.
  return cta * getCtaFactor(grid.getExpr().constantValue()) % ctas;
}

Sm90TileScheduler::Items Sm90TileScheduler::getItems() {
  I32 tiles = table.countTiles();
  I32 ctas = emitter.numCtas();
  I32 first = getCtaOrder(ctas);
  if (before) {
    // The order continues across the gemms: a CTA with one tile less of the
    // first gemm begins with the second, whose weights need no wait.
    I32 last = tiles * before->shape.getPanels() % ctas;
    first = (first + ctas - last) % ctas;
  }
  return {first, tiles * shape.getPanels(), ctas};
}

Sm90Tile Sm90TileScheduler::findTile(I32 item) {
  int64_t panels = shape.getPanels();
  I32 group = table.findGroup(item / panels);
  Sm90GroupTable::Entry begin = table.load(group);
  I32 endTile = table.load(group + 1).tile;
  I32 tiles = endTile - begin.tile;

  I32 inGroup = item - begin.tile * panels;
  I32 firstTile;
  if (int64_t most = shape.getRasterGroupTiles()) {
    I32 rasterGroup = inGroup / (most * panels);
    inGroup = inGroup % (most * panels);
    firstTile = rasterGroup * most;
    tiles = min(emitter.i32(most), tiles - firstTile);
  }
  I32 panel = inGroup / tiles;
  I32 tile = inGroup % tiles;
  if (!isDynamic()) {
    // The last M tile of an N tile may be lower. Each round of the CTAs starts
    // at another tile, so that no CTA takes all the low ones.
    I32 ctas = emitter.numCtas();
    I32 round = (item - tile) / ctas;
    tile = (tile + round) % tiles;
  }
  if (firstTile)
    tile = firstTile + tile;
  Sm90GroupTable::Heights heights = table.unpackHeights(begin.heights);
  I32 height = heights.low;
  I32 first = multiplyNoWrap(tile, height);
  if (shape.hasTwoHeights()) {
    I32 passed = min(tile, heights.higher);
    first = first + multiplyNoWrap(passed, heights.more);
    Flag isHigher = tile < heights.higher;
    height = height + select(isHigher, heights.more, 0);
  }
  I32 left = begin.rows - first;
  I32 firstColumn = multiplyNoWrap(panel, emitter.i32(shape.n));
  if (Value launchColumn = emitter.operand(op.getFirstColumn()))
    firstColumn = firstColumn + I64(b, launchColumn).toI32();
  return {group, firstColumn, begin.row + first, min(left, height)};
}

//===----------------------------------------------------------------------===//
// The dynamic scheduler
//===----------------------------------------------------------------------===//

void Sm90TileScheduler::initBarriers() {
  if (!isDynamic())
    return;
  // Readers: the consumers, the warp that copies boxes, and those that copy
  // rows.
  int64_t consumers = shape.getConsumers() * Sm90Shape::kWarpgroup;
  int64_t producers =
      Sm90Shape::kWarp + shape.hasRowThreads() * Sm90Shape::kRowThreads;
  numbers.init(1, (consumers + producers) / Sm90Shape::kWarp);
}

Value Sm90TileScheduler::counter() {
  return emitter.address(emitter.operand(op.getTickets()), {emitter.index(0)});
}

void Sm90TileScheduler::draw(const Items &items, Flag draws, I32 turn) {
  emitter.ifThen(draws, [&] {
    int64_t ticket = sm90::getQuantization(op) ? Sm90Shape::kTicket : 1;
    I32 drawn = emitter.getAndAdd(emitter.i32(ticket), counter());
    if (ticket > 1)
      drawn = drawn / ticket;
    I32 before = parityAt(turn) ^ 1, stage = stageAt(turn);
    numbers.empty(stage).wait(before);
    emitter.store(drawn + items.step, numbers.stageAddress(stage),
                  Sm90Shape::kNumberBytes);
    numbers.full(stage).arrive();
    emitter.ifThen(drawn + 1 == items.end, [&] {
      emitter.getAndAdd(0 - items.end * ticket, counter());
    });
  });
}

I32 Sm90TileScheduler::take(I32 turn, bool isConsumer) {
  I32 stage = stageAt(turn);
  // A consumer knows the index without a wait: threads that copy rows arrive
  // for the last stage of a tile after the draw, and the consumer has waited
  // for that stage.
  bool isKnown = isConsumer && shape.hasRowThreads();
  if (!isKnown)
    numbers.full(stage).wait(parityAt(turn));
  I32 taken = emitter.loadWord(numbers.stageAddress(stage));
  emitter.warpBarrier();
  emitter.ifThen(emitter.lane() == 0, [&] { numbers.empty(stage).arrive(); });
  return taken;
}
