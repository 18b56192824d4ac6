//===- SortCount.cpp - how many slots each expert has -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Counting for the sort by expert: slots of a warp's run, and slots of other
// chunks, either all of them or by the counts of an earlier launch.

#include "SortChunk.h"
#include "moec/Schedules/PtxasLimits.h"

using namespace mlir;
using namespace moec;

/// Loads in flight per thread while it counts the slots of its run.
static constexpr int64_t kRunLoads = 4;

void SortChunk::clearCounters() {
  emitter.forThreads(emitter.index(0), earlierAt(), [&](Index i) {
    emitter.storeI32(emitter.i32(0), table, i);
  });
}

void SortChunk::countRun(RankedSlot firstSlot) {
  Index begin = own.begin + emitter.toIndex(emitter.lane());
  Index row = this->row(numberOfWarp() + 1);
  count(counters.choose(firstSlot.id, begin < own.end), row);
  emitter.loop(begin + kWarp, own.end, kRunLoads * kWarp, [&](Index first) {
    SmallVector<Flag> exist;
    SmallVector<I32> loaded;
    for (int64_t i = 0; i < kRunLoads; ++i) {
      Index slot = first + i * kWarp;
      exist.push_back(slot < own.end);
      loaded.push_back(emitter.loadI32(ids, {select(exist[i], slot, first)}));
    }
    for (auto [exists, id] : llvm::zip(exist, loaded))
      count(counters.choose(id, exists), row);
  });
}

/// Slots past the last one load slot 0.
SortChunk::Batch SortChunk::loadBatch(Index begin, bool isWhole) {
  Batch loaded;
  for (int64_t i = 0; i < otherLoads; ++i) {
    Index slot = slotOfBatch(begin, i);
    if (!isWhole)
      slot = select(slot < numSlots, slot, 0);
    loaded.push_back(emitter.loadI32(ids, slot));
  }
  return loaded;
}

SortChunk::Batch SortChunk::loadFirstBatch() {
  hasOthers = chunk.end - chunk.begin < numSlots;
  return emitter.choose(
      hasOthers, [&] { return loadBatch(emitter.index(0), false); },
      [&] { return Batch(otherLoads, emitter.i32(0)); });
}

/// Most batches lie entirely before or after the chunk.
void SortChunk::countBatch(Index begin, const Batch &batch) {
  Index end = begin + otherLoads * shape.threads;
  Flag isBefore = end <= chunk.begin;
  Flag isAfter = (chunk.end <= begin) & (end <= numSlots);
  emitter.ifThen(
      isBefore | isAfter,
      [&] {
        Index row = select(isBefore, this->row(0), this->row(numRuns));
        for (I32 id : batch)
          count(counters.choose(id, /*exists=*/{}), row);
      },
      [&] {
        for (auto [i, id] : llvm::enumerate(batch)) {
          Index slot = slotOfBatch(begin, static_cast<int64_t>(i));
          Flag comesBefore = slot < chunk.begin;
          Flag comesAfter = (chunk.end <= slot) & (slot < numSlots);
          SlotChoice choice = counters.choose(id, comesBefore | comesAfter);
          count(choice, select(comesBefore, row(0), row(numRuns)));
        }
      });
}

/// Prefetches the next ids while it counts the current ones.
void SortChunk::countOthers(const Batch &first) {
  int64_t size = otherLoads * shape.threads;
  Index end = select(hasOthers, numSlots, 0);
  emitter.loop(
      emitter.index(0), end, size, first, [&](Index begin, const Batch &batch) {
        Index next = begin + size;
        Batch nextBatch = emitter.choose(
            next + size <= numSlots, [&] { return loadBatch(next, true); },
            [&] { return loadBatch(next, false); });
        countBatch(begin, batch);
        return nextBatch;
      });
}

int64_t SortChunk::getCountLoads() const {
  return getCountWidth() == 1 ? ptxas::kCountLoads : ptxas::kWideCountLoads;
}

/// The vector width, in experts, of a load of counts: 1 if there are fewer
/// experts than threads, so that all threads have some.
int64_t SortChunk::getCountWidth() const {
  constexpr int64_t width = 4;
  bool isAligned =
      shape.numLocal % width == 0 && shape.expertsAtOnce % width == 0;
  return isAligned && shape.getStride() >= shape.threads ? width : 1;
}

I32 SortChunk::loadCounts(Index chunk, Index counter) {
  Index local = counters.localOf(counter);
  int64_t width = getCountWidth();
  if (width == 1)
    return emitter.loadI32(counts, {chunk, local});
  return {emitter.b, emitter.loadElements(counts, {chunk, local}, width)};
}

void SortChunk::addCountsTo(Index row, Index counter, I32 numbers) {
  int64_t width = getCountWidth();
  if (width == 1)
    return addTo(row, counter, numbers);
  for (int64_t i = 0; i < width; ++i)
    addTo(row, counter + i, numbers.element(i));
}

/// Most batches lie entirely before or after the CTA's chunk. Absent chunks
/// load the CTA's own.
void SortChunk::addCountsOf(I32 first, Index counter) {
  Index begin = emitter.toIndex(first);
  I32 untilOwn = emitter.cta().toI32() - first;
  I32 untilEnd = numChunks - first;
  I32 all = emitter.i32(getCountLoads());
  I32 noCounts = getCountWidth() == 1 ? emitter.i32(0)
                                      : emitter.splatI32(0, getCountWidth());
  Flag areBefore = all <= untilOwn;
  Flag areAfter = (untilOwn < 0) & (all <= untilEnd);
  emitter.ifThen(
      areBefore | areAfter,
      [&] {
        I32 sum = noCounts;
        for (int64_t i = 0; i < getCountLoads(); ++i)
          sum = sum + loadCounts(begin + i, counter);
        addCountsTo(select(areBefore, row(0), row(numRuns)), counter, sum);
      },
      [&] {
        I32 before = noCounts, after = noCounts;
        for (int64_t i = 0; i < getCountLoads(); ++i) {
          I32 number = emitter.i32(i);
          Flag exists = number < untilEnd;
          I32 found =
              loadCounts(select(exists, begin + i, emitter.cta()), counter);
          Flag comesAfter = exists & (untilOwn < number);
          before = before + select(number < untilOwn, found, noCounts);
          after = after + select(comesAfter, found, noCounts);
        }
        addCountsTo(row(0), counter, before);
        addCountsTo(row(numRuns), counter, after);
      });
}

/// The threads of a warp add up the counts of adjacent experts, in the same
/// chunks.
void SortChunk::addCounts() {
  int64_t width = getCountWidth();
  int64_t columns = std::min(shape.getStride() / width, shape.threads);
  int64_t parts = shape.threads / columns;
  I32 part = emitter.thread() / columns;
  Index column = emitter.toIndex(emitter.thread() % columns * width);
  auto add = [&] {
    I32 begin = part * getCountLoads();
    emitter.loop(
        column, counters.getNumCounters(), columns * width, [&](Index counter) {
          emitter.loop(begin, numChunks, parts * getCountLoads(),
                       [&](I32 first) { addCountsOf(first, counter); });
        });
  };
  if (parts * columns == shape.threads)
    return add();
  emitter.ifThen(part < parts, add);
}
