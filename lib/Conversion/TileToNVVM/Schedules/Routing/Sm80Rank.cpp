//===- Sm80Rank.cpp - the schedule sm80.rank --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The stable sort by expert. Slots, in the order of (token, slot), are split
// into a chunk per CTA, and a chunk into runs, one per warp. To place its
// slots, a CTA also counts all others, so that CTAs need not communicate, or
// adds up the counts of their chunks, if an earlier launch has stored these.
//
// Row 0 of the counters has the slots before the chunk, row `r` the slots of
// run `r - 1`, and the last row, with the last run, the slots after the chunk.
// Sums over rows and experts give the positions of each run's slots. A warp
// assigns these 32 slots at a time: lanes with the same expert find each other
// by a match and are ranked by lane. Counters are integers, so the order of
// atomic additions does not affect the result. If there are counters for
// `panel` experts only, all of this repeats for each panel. The first CTA alone
// sorts few slots in one pass (RankFew.h).

#include "../../Emit.h"
#include "RankChunk.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;
using sm80::kWarp;

RankChunk::RankChunk(tile::RankOp op, ThreadEmitter &emitter,
                     const sm80::Rank &shape)
    : op(op), emitter(emitter), b(emitter.b), shape(shape),
      topK(getColumns(op.getIds())), numRuns(shape.getRuns()),
      otherLoads(shape.hasPanels() ? ptxas::kRankedPanelLoads
                                   : ptxas::kRankedLoads),
      counters(emitter, op, shape.panel),
      ids(flattenSlots(emitter, emitter.operand(op.getIds()))),
      weights(flattenSlots(emitter, emitter.operand(op.getWeights()))),
      counts(emitter.operand(op.getCounts())),
      offsets(emitter.operand(op.getOffsets())),
      position(flattenSlots(emitter, emitter.operand(op.getPosition()))),
      source(emitter.operand(op.getSource())),
      rowWeight(emitter.operand(op.getRowWeight())) {
  table = emitter.scratch(shape.getWords(numRuns), b.getI32Type());
  allSlots = emitter.tokens() * topK;
  numTokens = emitter.validTokens(op.getNumValidTokens());
  numSlots = numTokens * topK;
}

//===----------------------------------------------------------------------===//
// Work distribution
//===----------------------------------------------------------------------===//

/// The grid has a CTA for each chunk, whatever the token count.
void RankChunk::findChunk() {
  chunkTokens = emitChunkTokens(emitter, shape.chunks);
  Index size = chunkTokens * topK;
  Index begin = emitter.cta() * size;
  chunk = {begin, min(begin + size, allSlots)};
}

void RankChunk::clearInvalid() {
  if (!op.getNumValidTokens())
    return;
  emitter.forThreads(
      emitter.max(chunk.begin, numSlots), chunk.end,
      [&](Value slot) { emitter.storeI32(emitter.i32(-1), position, slot); });
}

/// Runs are multiples of 32 slots, except the last. Warps without counters get
/// empty runs.
void RankChunk::findRun() {
  int64_t round = kWarp * numRuns;
  Index size = divideUp(chunk.end - chunk.begin, round) * kWarp;
  Index warp = numberOfWarp();
  Index begin = min(chunk.begin + warp * size, chunk.end);
  own = {begin, min(begin + size, chunk.end)};
}

void RankChunk::run() {
  findChunk();
  clearInvalid();
  int64_t few = shape.getFewSlots();
  if (!few)
    return rankChunk();
  if (shape.isAlwaysFew())
    return rankFew();
  Flag isFew = numSlots <= few;
  auto rankOnce = [&] { rankFew(); };
  auto rankShare = [&] { rankChunk(); };
  emitter.ifThen(isFew, rankOnce, rankShare);
}

void RankChunk::rankFew() {
  emitter.ifThen(isFirstCta(), [&] {
    emitRankFew(emitter, counters.getExperts(),
                {ids, weights, offsets, position, source, rowWeight}, numSlots,
                shape.getFewSlots(), topK, shape.numLocal, table);
  });
}

/// Computed in i32, since a 64-bit division is slow.
Value RankChunk::countChunks() {
  Value size = emitter.toI32(chunkTokens);
  Value last = minus(addI32(emitter.toI32(numTokens), size), emitter.i32(1));
  return arith::DivUIOp::create(b, last, size);
}

void RankChunk::rankChunk() {
  if (counts)
    numChunks = countChunks();
  Index begin = min(chunk.begin, numSlots);
  chunk = {begin, min(chunk.end, numSlots)};
  Value hasSlots = isBelow(chunk.begin, chunk.end);
  Value isNeeded = arith::OrIOp::create(b, hasSlots, isFirstCta());
  emitter.ifThen(isNeeded, [&] {
    findRun();
    rankExperts();
  });
}

void RankChunk::rankExperts() {
  if (shape.hasPanels())
    emitter.ifThen(isFirst(emitter.thread()), [&] {
      emitter.storeI32(emitter.i32(0), table, earlierAt());
    });
  counters.forPanels([&] { rankPanel(); });
}

void RankChunk::rankPanel() {
  // All loads are in flight at once.
  RankedSlot first = loadFirstSlot();
  SmallVector<Value> others;
  if (!counts)
    others = loadFirstBatch();
  clearCounters();
  emitter.barrier();
  if (counts)
    addCounts();
  countRun(first);
  if (!counts)
    countOthers(others);
  emitter.barrier();
  sumRows();
  emitter.barrier();
  sumGroups();
  emitter.barrier();
  writeOffsets();
  placeRun(first);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

WarpSums RankChunk::scanWarp(Value value) {
  Value sum = value, lane = emitter.lane();
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    Value other = emitter.shuffleUp(sum, distance);
    Value isAlone = emitter.isLess(lane, emitter.i32(distance));
    sum = addI32(sum, select(isAlone, emitter.i32(0), other));
  }
  return {minus(sum, value), emitter.broadcast(sum, kWarp - 1)};
}

/// Per expert: a scan over rows, for the first position of each run. Then a
/// scan over the 32 experts of a group.
void RankChunk::sumRows() {
  Value lane = emitter.lane();
  Value begin = emitter.mul(numberOfWarp(), kWarp);
  emitter.forLoop(
      begin, emitter.index(shape.getStride()), shape.threads, [&](Value first) {
        Value counter = emitter.add(first, emitter.toIndex(lane));
        SmallVector<Value> counted;
        for (int64_t i = 0; i <= numRuns; ++i)
          counted.push_back(
              emitter.loadI32(table, emitter.add(row(i), counter)));
        Value sum = counted.front();
        for (int64_t i = 0; i < numRuns; ++i) {
          emitter.storeI32(sum, table, emitter.add(row(i), counter));
          sum = addI32(sum, counted[i + 1]);
        }
        WarpSums sums = scanWarp(sum);
        emitter.storeI32(sums.before, table,
                         emitter.add(row(numRuns), counter));
        emitter.ifThen(isFirst(lane), [&] {
          Value group = arith::DivUIOp::create(b, first, emitter.index(kWarp));
          emitter.storeI32(sums.total, table, groupAt(group));
        });
      });
}

/// The first warp scans over groups, 32 at a time.
void RankChunk::sumGroups() {
  emitter.ifThen(isFirst(emitter.warp()), [&] {
    Value earlier = shape.hasPanels() ? emitter.loadI32(table, earlierAt())
                                      : emitter.i32(0);
    SmallVector<Value> all = emitter.forLoop(
        emitter.index(0), emitter.index(shape.getGroups()), kWarp, earlier,
        [&](Value first, ValueRange carried) -> SmallVector<Value> {
          Value at =
              groupAt(emitter.add(first, emitter.toIndex(emitter.lane())));
          WarpSums sums = scanWarp(emitter.loadI32(table, at));
          emitter.storeI32(addI32(carried[0], sums.before), table, at);
          return {addI32(carried[0], sums.total)};
        });
    // All lanes must have read the value that lane 0 overwrites for the next
    // panel.
    if (shape.hasPanels())
      emitter.warpBarrier();
    emitter.ifThen(isFirst(emitter.lane()), [&] {
      emitter.ifThen(isFirstCta(), [&] {
        emitter.storeI32(all[0], offsets,
                         counters.localOf(counters.getNumCounters()));
      });
      if (shape.hasPanels())
        emitter.storeI32(all[0], table, earlierAt());
    });
  });
}

Value RankChunk::firstOf(Value counter) {
  Value inGroup = emitter.loadI32(table, emitter.add(row(numRuns), counter));
  Value group = arith::DivUIOp::create(b, counter, emitter.index(kWarp));
  return addI32(inGroup, emitter.loadI32(table, groupAt(group)));
}

void RankChunk::writeOffsets() {
  emitter.ifThen(isFirstCta(), [&] {
    emitter.forThreads(emitter.index(0), counters.getNumCounters(),
                       [&](Value counter) {
                         emitter.storeI32(firstOf(counter), offsets,
                                          counters.localOf(counter));
                       });
  });
}

//===----------------------------------------------------------------------===//
// Placement
//===----------------------------------------------------------------------===//

RankedSlot RankChunk::loadSlot(Value first) {
  Value slot = emitter.add(first, emitter.toIndex(emitter.lane()));
  Value at = select(isBelow(slot, own.end), slot, first);
  return {emitter.loadI32(ids, at), emitter.loadF32(weights, at)};
}

/// Loads nothing in warps without slots.
RankedSlot RankChunk::loadFirstSlot() {
  auto branch =
      scf::IfOp::create(b, TypeRange{b.getI32Type(), b.getF32Type()},
                        isBelow(own.begin, own.end), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.thenBlock());
  RankedSlot slot = loadSlot(own.begin);
  scf::YieldOp::create(b, ValueRange{slot.id, slot.weight});
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, ValueRange{emitter.i32(0), emitter.f32(0.0)});
  return {branch.getResult(0), branch.getResult(1)};
}

/// A lane prefetches its next slot while it places the current one.
void RankChunk::placeRun(RankedSlot firstSlot) {
  Value lane = emitter.lane();
  Value row = this->row(numberOfWarp());
  SmallVector<Value> init{firstSlot.id, firstSlot.weight};
  auto body = [&](Value first, ValueRange carried) -> SmallVector<Value> {
    Value slot = emitter.add(first, emitter.toIndex(lane));
    Value exists = isBelow(slot, own.end);
    Value id = carried[0], weight = carried[1];
    Value after = emitter.add(first, kWarp);
    RankedSlot next = loadSlot(select(isBelow(after, own.end), after, first));
    // A lane without a slot repeats the first one, as a slot without an expert.
    SlotChoice choice = counters.choose(id, exists);

    // Slots of the same expert: in lower lanes, and in all lanes.
    Value same = emitter.matchAny(choice.counter);
    Value bit = arith::ShLIOp::create(b, emitter.i32(1), lane);
    Value lower =
        math::CtPopOp::create(b, both(same, minus(bit, emitter.i32(1))));

    // A slot that is not here loads a value that is not used.
    Value counter =
        emitter.toIndex(select(choice.isHere, choice.counter, emitter.i32(0)));
    Value inRun = emitter.add(row, counter);
    Value begin = emitter.loadI32(table, inRun);
    Value place = addI32(addI32(firstOf(counter), begin), lower);
    emitter.warpBarrier();
    emitter.ifThen(
        choice.isHere,
        [&] {
          Value to = emitter.toIndex(place);
          emitter.storeI32(place, position, slot);
          emitter.storeI32(emitter.divide(emitter.toI32(slot), topK), source,
                           to);
          emitter.storeF32(weight, rowWeight, {to, emitter.index(0)});
          emitter.ifThen(isFirst(lower), [&] {
            Value slots = math::CtPopOp::create(b, same);
            emitter.storeI32(addI32(begin, slots), table, inRun);
          });
        },
        [&] {
          emitter.ifThen(choice.isElsewhere, [&] {
            emitter.storeI32(counters.getExperts().positionOfOther(id),
                             position, slot);
          });
        });
    emitter.warpBarrier();
    return {next.id, next.weight};
  };
  emitter.forLoop(own.begin, own.end, kWarp, init, body);
}

LogicalResult moec::emitSm80Rank(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto op = cast<tile::RankOp>(phase);
  if (Value counter = emitter.operand(op.getCounter())) {
    Value number =
        emitter.scale(emitter.toI32(emitter.cta()), emitter.getNumThreads());
    Value one = emitter.i32(1);
    Value isFirst = emitter.isLess(
        arith::AddIOp::create(emitter.b, number, emitter.thread()), one);
    emitter.ifThen(isFirst, [&] {
      emitter.storeI32(emitter.i32(0), counter, emitter.index(0));
    });
  }
  RankChunk(op, emitter, sm80::Rank(op, op.getConfigAttr())).run();
  return success();
}
