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

#include <limits>

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
               shape.shared().getSchedulerOffset(),
               shape.tile().getClusterTiles()}) {}

//===----------------------------------------------------------------------===//
// The list of tiles
//===----------------------------------------------------------------------===//

I32 Sm90TileScheduler::countTakers() {
  I32 ctas = emitter.numCtas();
  int64_t together = shape.tile().splitK;
  return together == 1 ? ctas : ctas / together;
}

I32 Sm90TileScheduler::getCtaOrder() {
  I32 cta = emitter.toI32(emitter.cta());
  if (int64_t together = shape.tile().splitK; together > 1)
    return cta / together;
  // In a single gemm the first CTAs have a tile more, so that CTAs of the next
  // launch start on the SMs of the others first.
  plan::ExprAttr grid = op->getParentOfType<tile::KernelOp>().getGridAttr();
  if (!sm90::getPartner(op) || !grid || !grid.getExpr().isConstant())
    return cta;
  // The factor is prime to the number of CTAs, so that indices are unique. The
  // number is a constant here, as a division would delay the first copy; a grid
  // of another size, as ptx-mutate launches it, keeps its own order.
  int64_t ctas = grid.getExpr().constantValue();
  I32 swizzled = cta * getCtaFactor(ctas) % ctas;
  return select(emitter.numCtas() == ctas, swizzled, cta);
}

Sm90TileScheduler::Items Sm90TileScheduler::getItems() {
  I32 tiles = table.countTiles();
  I32 ctas = countTakers();
  I32 first = getCtaOrder();
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
    I32 ctas = countTakers();
    I32 round = (item - tile) / ctas;
    // Clusters keep their tiles together.
    if (int64_t together = shape.tile().getClusterTiles(); together > 1)
      round = round * together;
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
  bool hasCluster = shape.tile().getClusterTiles() > 1;
  Flag isEmpty;
  if (hasCluster) {
    isEmpty = left < 1;
    first = select(isEmpty, emitter.i32(1), first);
  }
  I32 firstRow = begin.row + first, rows = min(left, blockM);
  if (hasCluster)
    rows = select(isEmpty, emitter.i32(0), rows);
  return {group, firstColumn, firstRow, rows};
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
  int64_t ctas = shape.tile().getClusterTiles();
  numbers.init(1, (consumers + producers) / kWarp * ctas);
}

Value Sm90TileScheduler::counter() {
  return emitter.address(emitter.operand(op.getTileCounter()),
                         {emitter.index(0)});
}

void Sm90TileScheduler::publish(I32 index, I32 stage) {
  Value slot = numbers.stageAddress(stage);
  int64_t ctas = shape.tile().getClusterTiles();
  if (ctas == 1) {
    emitter.store(index, slot, sm90::kNumberBytes);
    return numbers.full(stage).arrive();
  }
  for (int64_t rank = 0; rank < ctas; ++rank)
    numbers.full(stage).send(emitter.i32(rank), index, slot);
}

void Sm90TileScheduler::draw(const Items &items, Flag draws, I32 iteration) {
  // One thread of a cluster draws for all its CTAs.
  int64_t ctas = shape.tile().getClusterTiles();
  if (ctas > 1)
    draws = draws & (emitter.clusterRank() == 0);
  emitter.ifThen(draws, [&] {
    int64_t increment = sm90::getTileIncrement(op);
    I32 drawn = emitter.getAndAdd(emitter.i32(increment * ctas), counter());
    if (increment > 1)
      drawn = drawn / increment;
    // The launch before has set the highest bit.
    if (sm90::awaitsRows(op))
      drawn = drawn & std::numeric_limits<int32_t>::max();
    I32 before = parityAt(iteration) ^ 1, stage = stageAt(iteration);
    numbers.empty(stage).wait(before);
    publish(drawn + items.step, stage);
    emitter.ifThen(drawn + ctas == items.end, [&] {
      emitter.getAndAdd(0 - items.end * increment, counter());
    });
  });
}

I32 Sm90TileScheduler::take(I32 iteration, bool isConsumer) {
  I32 stage = stageAt(iteration);
  // A consumer knows the index without a wait: threads that copy rows arrive
  // for the last stage of a tile after the draw, and the consumer has waited
  // for that stage. Rows that are awaited ahead of adapters arrive before.
  bool isKnown = isConsumer && shape.hasRowThreads() && !sm90::awaitsRows(op);
  if (!isKnown)
    numbers.full(stage).wait(parityAt(iteration));
  I32 taken = emitter.loadWord(numbers.stageAddress(stage));
  emitter.warpBarrier();
  bool hasCluster = shape.tile().getClusterTiles() > 1;
  emitter.ifThen(emitter.lane() == 0, [&] {
    Barrier empty = numbers.empty(stage);
    hasCluster ? empty.arriveAt(emitter.i32(0)) : empty.arrive();
  });
  return hasCluster ? taken + emitter.clusterRank() : taken;
}
