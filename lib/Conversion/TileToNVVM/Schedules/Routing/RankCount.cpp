//===- RankCount.cpp - how many slots each expert has -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Counting for the sort by expert: slots of a warp's run, and slots of other
// chunks, either all of them or by the counts of an earlier launch.

#include "RankChunk.h"

using namespace mlir;
using namespace moec;
using sm80::kWarp;

/// Loads in flight per thread while it counts the slots of its run.
static constexpr int64_t kRunLoads = 4;

void RankChunk::clearCounters() {
  emitter.forThreads(emitter.index(0), earlierAt(), [&](Value i) {
    emitter.storeI32(emitter.i32(0), table, i);
  });
}

void RankChunk::countRun(RankedSlot firstSlot) {
  Value begin = emitter.add(own.begin, emitter.toIndex(emitter.lane()));
  Value row = this->row(emitter.add(numberOfWarp(), 1));
  count(counters.choose(firstSlot.id, isBelow(begin, own.end)), row);
  auto body = [&](Value first) {
    SmallVector<Value> exist, loaded;
    for (int64_t i = 0; i < kRunLoads; ++i) {
      Value slot = emitter.add(first, i * kWarp);
      exist.push_back(isBelow(slot, own.end));
      loaded.push_back(emitter.loadI32(ids, select(exist[i], slot, first)));
    }
    for (auto [exists, id] : llvm::zip(exist, loaded))
      count(counters.choose(id, exists), row);
  };
  emitter.forLoop(emitter.add(begin, kWarp), own.end, kRunLoads * kWarp, body);
}

/// Slots past the last one load slot 0.
SmallVector<Value> RankChunk::loadBatch(Value begin, bool isWhole) {
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < otherLoads; ++i) {
    Value slot = slotOfBatch(begin, i);
    if (!isWhole)
      slot = select(isBelow(slot, numSlots), slot, emitter.index(0));
    loaded.push_back(emitter.loadI32(ids, slot));
  }
  return loaded;
}

SmallVector<Value> RankChunk::loadFirstBatch() {
  hasOthers = isBelow(minus(chunk.end, chunk.begin), numSlots);
  return emitter.choose(
      hasOthers, getBatchTypes(),
      [&] { return loadBatch(emitter.index(0), false); },
      [&] { return SmallVector<Value>(otherLoads, emitter.i32(0)); });
}

/// Most batches lie entirely before or after the chunk.
void RankChunk::countBatch(Value begin, ValueRange ids) {
  Value end = emitter.add(begin, otherLoads * shape.threads);
  Value isBefore = isAtMost(end, chunk.begin);
  Value isAfter = both(isAtMost(chunk.end, begin), isAtMost(end, numSlots));
  emitter.ifThen(
      arith::OrIOp::create(b, isBefore, isAfter),
      [&] {
        Value row = select(isBefore, this->row(0), this->row(numRuns));
        for (Value id : ids)
          count(counters.choose(id, /*exists=*/Value()), row);
      },
      [&] {
        for (auto [i, id] : llvm::enumerate(ids)) {
          Value slot = slotOfBatch(begin, static_cast<int64_t>(i));
          Value comesBefore = isBelow(slot, chunk.begin);
          Value comesAfter =
              both(isAtMost(chunk.end, slot), isBelow(slot, numSlots));
          count(counters.choose(
                    id, arith::OrIOp::create(b, comesBefore, comesAfter)),
                select(comesBefore, row(0), row(numRuns)));
        }
      });
}

/// Prefetches the next ids while it counts the current ones.
void RankChunk::countOthers(ValueRange ids) {
  int64_t size = otherLoads * shape.threads;
  Value end = select(hasOthers, numSlots, emitter.index(0));
  auto body = [&](Value begin, ValueRange carried) {
    Value next = emitter.add(begin, size);
    SmallVector<Value> nextIds = emitter.choose(
        isAtMost(emitter.add(next, size), numSlots), getBatchTypes(),
        [&] { return loadBatch(next, true); },
        [&] { return loadBatch(next, false); });
    countBatch(begin, carried);
    return nextIds;
  };
  emitter.forLoop(emitter.index(0), end, size, ids, body);
}

int64_t RankChunk::getCountLoads() const {
  return getCountWidth() == 1 ? ptxas::kCountLoads : ptxas::kWideCountLoads;
}

/// The vector width, in experts, of a load of counts: 1 if there are fewer
/// experts than threads, so that all threads have some.
int64_t RankChunk::getCountWidth() const {
  constexpr int64_t width = 4;
  bool isAligned = shape.numLocal % width == 0 && shape.panel % width == 0;
  return isAligned && shape.getStride() >= shape.threads ? width : 1;
}

Value RankChunk::loadCounts(Value chunk, Value counter) {
  SmallVector<Value> at{chunk, counters.localOf(counter)};
  int64_t width = getCountWidth();
  if (width == 1)
    return emitter.loadI32(counts, at);
  return vector::LoadOp::create(b, VectorType::get(width, b.getI32Type()),
                                counts, at, /*nontemporal=*/false,
                                llvm::MaybeAlign(4 * width));
}

void RankChunk::addCountsTo(Value row, Value counter, Value numbers) {
  if (!isa<VectorType>(numbers.getType()))
    return addTo(row, counter, numbers);
  for (int64_t i = 0, width = getCountWidth(); i < width; ++i)
    addTo(row, emitter.add(counter, i),
          vector::ExtractOp::create(b, numbers, i));
}

/// Most batches lie entirely before or after the CTA's chunk. Absent chunks
/// load the CTA's own.
void RankChunk::addCountsOf(Value first, Value counter) {
  Value begin = emitter.toIndex(first);
  Value untilOwn = minus(emitter.toI32(emitter.cta()), first);
  Value untilEnd = minus(numChunks, first);
  Value none = emitter.i32(0), all = emitter.i32(getCountLoads());
  Value noCounts =
      getCountWidth() == 1 ? none : emitter.splatI32(0, getCountWidth());
  Value areBefore = isAtMost(all, untilOwn);
  Value areAfter = both(isBelow(untilOwn, none), isAtMost(all, untilEnd));
  emitter.ifThen(
      arith::OrIOp::create(b, areBefore, areAfter),
      [&] {
        Value sum = noCounts;
        for (int64_t i = 0; i < getCountLoads(); ++i)
          sum = addI32(sum, loadCounts(emitter.add(begin, i), counter));
        addCountsTo(select(areBefore, row(0), row(numRuns)), counter, sum);
      },
      [&] {
        Value before = noCounts, after = noCounts;
        for (int64_t i = 0; i < getCountLoads(); ++i) {
          Value number = emitter.i32(i);
          Value exists = isBelow(number, untilEnd);
          Value found = loadCounts(
              select(exists, emitter.add(begin, i), emitter.cta()), counter);
          Value comesAfter = both(exists, isBelow(untilOwn, number));
          before = addI32(before,
                          select(isBelow(number, untilOwn), found, noCounts));
          after = addI32(after, select(comesAfter, found, noCounts));
        }
        addCountsTo(row(0), counter, before);
        addCountsTo(row(numRuns), counter, after);
      });
}

/// The threads of a warp add up the counts of adjacent experts, in the same
/// chunks.
void RankChunk::addCounts() {
  int64_t width = getCountWidth();
  int64_t columns = std::min(shape.getStride() / width, shape.threads);
  int64_t parts = shape.threads / columns;
  Value part = emitter.divide(emitter.thread(), columns);
  Value column = emitter.toIndex(
      emitter.scale(emitter.remainder(emitter.thread(), columns), width));
  auto add = [&] {
    Value begin = emitter.scale(part, getCountLoads());
    emitter.forLoop(
        column, counters.getNumCounters(), columns * width, [&](Value counter) {
          emitter.forLoop(begin, numChunks, parts * getCountLoads(),
                          [&](Value first) { addCountsOf(first, counter); });
        });
  };
  if (parts * columns == shape.threads)
    return add();
  emitter.ifThen(emitter.isLess(part, emitter.i32(parts)), add);
}
