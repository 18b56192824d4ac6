//===- SortByExpert.cpp - the schedule gpu.sort_by_expert -------*- C++ -*-===//
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
// `expertsAtOnce` experts only, all of this repeats in each round. The first
// CTA alone sorts few slots in one pass (SortFew.h).

#include "Schedules/Interface/Emit.h"
#include "SortChunk.h"
#include "moec/Schedules/PtxasLimits.h"

using namespace mlir;
using namespace moec;

SortChunk::SortChunk(tile::SortByExpertOp op, ThreadEmitter &emitter,
                     const anygpu::SortByExpert &shape)
    : op(op), emitter(emitter), shape(shape), topK(getColumns(op.getIds())),
      numRuns(shape.getRuns()),
      otherLoads(shape.hasRounds() ? ptxas::kRankedRoundLoads
                                   : ptxas::kRankedLoads),
      counters(emitter, op, shape.expertsAtOnce),
      ids(flattenSlots(emitter, emitter.operand(op.getIds()))),
      weights(flattenSlots(emitter, emitter.operand(op.getWeights()))),
      counts(emitter.operand(op.getCounts())),
      offsets(emitter.operand(op.getOffsets())),
      position(flattenSlots(emitter, emitter.operand(op.getPosition()))),
      source(emitter.operand(op.getSource())),
      rowWeight(emitter.operand(op.getRowWeight())) {
  table = emitter.scratch(shape.getWords(numRuns), emitter.b.getI32Type());
  allSlots = emitter.tokens() * topK;
  numTokens = emitter.validTokens(op.getNumValidTokens());
  numSlots = numTokens * topK;
}

//===----------------------------------------------------------------------===//
// Work distribution
//===----------------------------------------------------------------------===//

/// The grid has a CTA for each chunk, whatever the token count.
void SortChunk::findChunk() {
  chunkTokens = emitChunkTokens(emitter, shape.chunks);
  Index size = chunkTokens * topK;
  Index begin = emitter.cta() * size;
  chunk = {begin, min(begin + size, allSlots)};
}

void SortChunk::clearInvalid() {
  if (!op.getNumValidTokens())
    return;
  emitter.forThreads(max(chunk.begin, numSlots), chunk.end, [&](Index slot) {
    emitter.storeI32(emitter.i32(-1), position, slot);
  });
}

/// Runs are multiples of 32 slots, except the last. Warps without counters get
/// empty runs.
void SortChunk::findRun() {
  int64_t round = kWarp * numRuns;
  Index size = divideUp(chunk.end - chunk.begin, round) * kWarp;
  Index warp = numberOfWarp();
  Index begin = min(chunk.begin + warp * size, chunk.end);
  own = {begin, min(begin + size, chunk.end)};
}

void SortChunk::run() {
  findChunk();
  clearInvalid();
  int64_t few = shape.getFewSlots();
  if (!few)
    return sortChunk();
  if (shape.isAlwaysFew())
    return sortFew();
  emitter.ifThen(numSlots <= few, [&] { sortFew(); }, [&] { sortChunk(); });
}

void SortChunk::sortFew() {
  emitter.ifThen(isFirstCta(), [&] {
    emitSortFew(emitter, counters.getExperts(),
                {ids, weights, offsets, position, source, rowWeight}, numSlots,
                shape.getFewSlots(), topK, shape.numLocal, table);
  });
}

/// Computed in i32, since a 64-bit division is slow.
I32 SortChunk::countChunks() {
  I32 size = chunkTokens.toI32();
  return divideUp(numTokens.toI32(), size);
}

void SortChunk::sortChunk() {
  if (counts)
    numChunks = countChunks();
  Index begin = min(chunk.begin, numSlots);
  chunk = {begin, min(chunk.end, numSlots)};
  emitter.ifThen((chunk.begin < chunk.end) | isFirstCta(), [&] {
    findRun();
    rankExperts();
  });
}

void SortChunk::rankExperts() {
  if (shape.hasRounds())
    emitter.ifThen(isFirst(emitter.thread()), [&] {
      emitter.storeI32(emitter.i32(0), table, earlierAt());
    });
  counters.forRounds([&] { sortRound(); });
}

void SortChunk::sortRound() {
  // All loads are in flight at once.
  RankedSlot first = loadFirstSlot();
  Batch others;
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

WarpSums SortChunk::scanWarp(I32 value) {
  ImplicitLocOpBuilder &b = emitter.b;
  I32 sum = value, none = emitter.i32(0);
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    I32 other(b, emitter.shuffleUp(sum, distance));
    sum = sum + select(emitter.lane() < distance, none, other);
  }
  I32 before = sum - value;
  return {before, {b, emitter.broadcast(sum, kWarp - 1)}};
}

/// Per expert: a scan over rows, for the first position of each run. Then a
/// scan over the 32 experts of a group.
void SortChunk::sumRows() {
  I32 lane = emitter.lane();
  Index begin = numberOfWarp() * kWarp;
  emitter.loop(
      begin, emitter.index(shape.getStride()), shape.threads, [&](Index first) {
        Index counter = first + emitter.toIndex(lane);
        SmallVector<I32> counted;
        for (int64_t i = 0; i <= numRuns; ++i)
          counted.push_back(emitter.loadI32(table, {row(i) + counter}));
        I32 sum = counted.front();
        for (int64_t i = 0; i < numRuns; ++i) {
          emitter.storeI32(sum, table, {row(i) + counter});
          sum = sum + counted[i + 1];
        }
        WarpSums sums = scanWarp(sum);
        emitter.storeI32(sums.before, table, {row(numRuns) + counter});
        emitter.ifThen(isFirst(lane), [&] {
          emitter.storeI32(sums.total, table, {groupAt(first / kWarp)});
        });
      });
}

/// The first warp scans over groups, 32 at a time.
void SortChunk::sumGroups() {
  emitter.ifThen(isFirst(emitter.warp()), [&] {
    I32 earlier = shape.hasRounds() ? emitter.loadI32(table, {earlierAt()})
                                    : emitter.i32(0);
    I32 all =
        emitter.loop(emitter.index(0), emitter.index(shape.getGroups()), kWarp,
                     earlier, [&](Index first, I32 before) {
                       Index at =
                           groupAt(first + emitter.toIndex(emitter.lane()));
                       WarpSums sums = scanWarp(emitter.loadI32(table, at));
                       emitter.storeI32(before + sums.before, table, at);
                       return before + sums.total;
                     });
    // All lanes must have read the value that lane 0 overwrites for the next
    // round.
    if (shape.hasRounds())
      emitter.warpBarrier();
    emitter.ifThen(isFirst(emitter.lane()), [&] {
      emitter.ifThen(isFirstCta(), [&] {
        emitter.storeI32(all, offsets,
                         {counters.localOf(counters.getNumCounters())});
      });
      if (shape.hasRounds())
        emitter.storeI32(all, table, {earlierAt()});
    });
  });
}

I32 SortChunk::firstOf(Index counter) {
  I32 inGroup = emitter.loadI32(table, {row(numRuns) + counter});
  return inGroup + emitter.loadI32(table, {groupAt(counter / kWarp)});
}

void SortChunk::writeOffsets() {
  emitter.ifThen(isFirstCta(), [&] {
    emitter.forThreads(emitter.index(0), counters.getNumCounters(),
                       [&](Index counter) {
                         emitter.storeI32(firstOf(counter), offsets,
                                          {counters.localOf(counter)});
                       });
  });
}

//===----------------------------------------------------------------------===//
// Placement
//===----------------------------------------------------------------------===//

RankedSlot SortChunk::loadSlot(Index first) {
  Index slot = first + emitter.toIndex(emitter.lane());
  Index at = select(slot < own.end, slot, first);
  return {emitter.loadI32(ids, at), emitter.loadF32(weights, at)};
}

/// Loads nothing in warps without slots.
RankedSlot SortChunk::loadFirstSlot() {
  return emitter.choose(
      own.begin < own.end, [&] { return loadSlot(own.begin); },
      [&]() -> RankedSlot { return {emitter.i32(0), emitter.f32(0.0)}; });
}

/// A lane prefetches its next slot while it places the current one.
void SortChunk::placeRun(RankedSlot firstSlot) {
  I32 lane = emitter.lane();
  Index row = this->row(numberOfWarp());
  auto body = [&](Index first, RankedSlot current) {
    Index slot = first + emitter.toIndex(lane);
    Flag exists = slot < own.end;
    Index after = first + kWarp;
    RankedSlot next = loadSlot(select(after < own.end, after, first));
    // A lane without a slot repeats the first one, as a slot without an expert.
    SlotChoice choice = counters.choose(current.id, exists);

    // Slots of the same expert: in lower lanes, and in all lanes.
    I32 same = emitter.matchAny(choice.counter);
    I32 bit = emitter.i32(1) << lane;
    I32 lower = (same & (bit - 1)).popcount();

    // A slot that is not here loads a value that is not used.
    Index counter = emitter.toIndex(select(choice.isHere, choice.counter, 0));
    Index inRun = row + counter;
    I32 begin = emitter.loadI32(table, inRun);
    I32 place = firstOf(counter) + begin + lower;
    emitter.warpBarrier();
    emitter.ifThen(
        choice.isHere,
        [&] {
          Index to = emitter.toIndex(place);
          emitter.storeI32(place, position, slot);
          emitter.storeI32(slot.toI32() / topK, source, to);
          emitter.storeF32(current.weight, rowWeight, {to, emitter.index(0)});
          emitter.ifThen(isFirst(lower), [&] {
            emitter.storeI32(begin + same.popcount(), table, inRun);
          });
        },
        [&] {
          emitter.ifThen(choice.isElsewhere, [&] {
            emitter.storeI32(counters.getExperts().positionOfOther(current.id),
                             position, slot);
          });
        });
    emitter.warpBarrier();
    return next;
  };
  emitter.loop(own.begin, own.end, kWarp, firstSlot, body);
}

/// The last CTA copies what each CTA has in its own memory to that of the
/// launch, for later launches.
static void copyPrivate(tile::SortByExpertOp op, ThreadEmitter &emitter,
                        func::FuncOp func) {
  // The only barrier between the sort and the phase behind it.
  emitter.barrier()->setAttr(kBetweenPhasesAttr, emitter.b.getUnitAttr());
  auto copy = [&](Value argument, Index count) {
    Value to = func.getArgument(cast<BlockArgument>(argument).getArgNumber());
    auto flatten = [&](Value memref) {
      return cast<MemRefType>(memref.getType()).getRank() == 1
                 ? memref
                 : flattenSlots(emitter, memref);
    };
    to = flatten(to);
    Value from = flatten(emitter.operand(argument));
    emitter.forThreads(emitter.index(0), count, [&](Index i) {
      emitter.b.create<memref::StoreOp>(
          emitter.b.create<memref::LoadOp>(from, ValueRange(i)), to,
          ValueRange(i));
    });
  };
  I32 last = emitter.numCtas() + -1;
  emitter.ifThen(emitter.ownCta().toI32() == last, [&] {
    int64_t experts = anygpu::getNumLocalExperts(op);
    Index rows = emitter.loadIndex(emitter.operand(op.getOffsets()),
                                   emitter.index(experts));
    Index slots = emitter.tokens() * getColumns(op.getIds());
    for (Value ofSlots : {op.getIds(), op.getWeights(), op.getPosition()})
      copy(ofSlots, slots);
    copy(op.getOffsets(), emitter.index(experts + 1));
    for (Value ofRows : {op.getSource(), op.getRowWeight()})
      copy(ofRows, rows);
  });
}

LogicalResult moec::emitGpuSortByExpert(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto op = cast<tile::SortByExpertOp>(phase);
  bool isPrivate = body.kernel.getPrivateRowsOf(op.getOffsets());
  if (isPrivate)
    emitter.becomeFirstCta();
  if (Value counter = emitter.operand(op.getCounter())) {
    I32 firstThread = emitter.cta().toI32() * emitter.getNumThreads();
    emitter.ifThen(firstThread + emitter.thread() < 1, [&] {
      emitter.storeI32(emitter.i32(0), counter, {emitter.index(0)});
    });
  }
  SortChunk(op, emitter, anygpu::SortByExpert(op, op.getConfigAttr())).run();
  if (isPrivate)
    copyPrivate(op, emitter, body.func);
  return success();
}
