//===- TileScheduler.cpp - the tiles of a CTA -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// With the static tile scheduler, tiles are known in advance, but if tiles
// differ in BLOCK_M, or CTAs in speed, the CTAs diverge: tiles that share
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

#include "TileScheduler.h"

#include "moec/Schedules/CtaOrder.h"

using namespace mlir;
using namespace moec;

Sm90TileScheduler::Sm90TileScheduler(tile::GemmOp op, AsyncEmitter &emitter,
                                     const sm90::GemmShape &shape, Value shared,
                                     Sm90TileScheduler *before)
    : table(op, emitter, shape, shared), op(op), emitter(emitter), b(emitter.b),
      shape(shape), before(before),
      numbers(emitter,
              emitter.advance(shared, shape.shared().getNumberOffset()), shared,
              {sm90::kTaken, sm90::kNumberBytes, /*firstStage=*/0,
               shape.shared().getSchedulerOffset()}) {}

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
    I32 last = tiles * before->shape.tile().getNTiles() % ctas;
    first = (first + ctas - last) % ctas;
  }
  return {first, tiles * shape.tile().getNTiles(), ctas};
}

Sm90Tile Sm90TileScheduler::findTile(I32 item) {
  int64_t nTiles = shape.tile().getNTiles();
  I32 group = table.findGroup(item / nTiles);
  Sm90GroupTable::Entry begin = table.load(group);
  I32 endTile = table.load(group + 1).tile;
  I32 tiles = endTile - begin.tile;

  I32 inGroup = item - begin.tile * nTiles;
  I32 firstTile;
  if (int64_t most = shape.tile().getRasterGroupTiles()) {
    I32 rasterGroup = inGroup / (most * nTiles);
    inGroup = inGroup % (most * nTiles);
    firstTile = rasterGroup * most;
    tiles = min(emitter.i32(most), tiles - firstTile);
  }
  I32 nTile = inGroup / tiles;
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
  Sm90GroupTable::BlockMPair blockMs = table.unpackBlockMs(begin.blockMs);
  I32 blockM = blockMs.low;
  I32 first = multiplyNoWrap(tile, blockM);
  if (shape.tile().hasTwoBlockMs()) {
    I32 passed = min(tile, blockMs.higher);
    first = first + multiplyNoWrap(passed, blockMs.more);
    Flag isHigher = tile < blockMs.higher;
    blockM = blockM + select(isHigher, blockMs.more, 0);
  }
  I32 left = begin.rows - first;
  I32 firstColumn = multiplyNoWrap(nTile, emitter.i32(shape.tile().blockN));
  if (Value launchColumn = emitter.operand(op.getFirstColumn()))
    firstColumn = firstColumn + I64(b, launchColumn).toI32();
  return {group, firstColumn, begin.row + first, min(left, blockM)};
}

//===----------------------------------------------------------------------===//
// The dynamic scheduler
//===----------------------------------------------------------------------===//

void Sm90TileScheduler::initBarriers() {
  if (!isDynamic())
    return;
  // Readers: the consumers, the warp that copies boxes, and those that copy
  // rows.
  int64_t consumers = shape.tile().getConsumers() * kWarpgroup;
  int64_t producers = kWarp + shape.hasRowThreads() * sm90::kRowThreads;
  numbers.init(1, (consumers + producers) / kWarp);
}

Value Sm90TileScheduler::counter() {
  return emitter.address(emitter.operand(op.getTileCounter()),
                         {emitter.index(0)});
}

void Sm90TileScheduler::draw(const Items &items, Flag draws, I32 iteration) {
  emitter.ifThen(draws, [&] {
    int64_t increment = sm90::getTileIncrement(op);
    I32 drawn = emitter.getAndAdd(emitter.i32(increment), counter());
    if (increment > 1)
      drawn = drawn / increment;
    I32 before = parityAt(iteration) ^ 1, stage = stageAt(iteration);
    numbers.empty(stage).wait(before);
    emitter.store(drawn + items.step, numbers.stageAddress(stage),
                  sm90::kNumberBytes);
    numbers.full(stage).arrive();
    emitter.ifThen(drawn + 1 == items.end, [&] {
      emitter.getAndAdd(0 - items.end * increment, counter());
    });
  });
}

I32 Sm90TileScheduler::take(I32 iteration, bool isConsumer) {
  I32 stage = stageAt(iteration);
  // A consumer knows the index without a wait: threads that copy rows arrive
  // for the last stage of a tile after the draw, and the consumer has waited
  // for that stage.
  bool isKnown = isConsumer && shape.hasRowThreads();
  if (!isKnown)
    numbers.full(stage).wait(parityAt(iteration));
  I32 taken = emitter.loadWord(numbers.stageAddress(stage));
  emitter.warpBarrier();
  emitter.ifThen(emitter.lane() == 0, [&] { numbers.empty(stage).arrive(); });
  return taken;
}
