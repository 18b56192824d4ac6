//===- SortChunk.h - one CTA of gpu.sort_by_expert --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_SORTCHUNK_H
#define MOEC_LIB_SCHEDULES_ROUTING_SORTCHUNK_H

#include "Shape.h"
#include "SlotCounters.h"
#include "SortFew.h"

namespace moec {

/// A lane's slot, or its warp's first slot if the lane has none.
struct RankedSlot {
  I32 id;
  F32 weight;
  auto fields() { return std::tie(id, weight); }
};

/// Sums over the lower lanes of a warp, and over all lanes.
struct WarpSums {
  I32 before, total;
};

/// One CTA of the sort by expert. Roles, sums and positions are in
/// GpuSortByExpert.cpp, counting in SortCount.cpp.
class SortChunk {
public:
  SortChunk(tile::SortByExpertOp op, ThreadEmitter &emitter,
            const anygpu::SortByExpert &shape);

  void run();

private:
  void findChunk();
  void findRun();
  void clearInvalid();

  /// For few slots, in the first CTA.
  void sortFew();
  I32 countChunks();
  void sortChunk();
  /// Gives positions to the slots of all experts, or of the experts that have
  /// counters now.
  void rankExperts();
  void sortRound();
  void clearCounters();
  /// `first`: the lane's slot among the first 32.
  void countRun(RankedSlot first);
  /// Ids of the thread's slots, `threads` apart, of a batch.
  using Batch = llvm::SmallVector<I32>;
  /// The batch at `begin`. `isWhole`: all of its slots exist.
  Batch loadBatch(Index begin, bool isWhole);
  Batch loadFirstBatch();
  /// Counts slots of other chunks; the thread already has the first batch.
  void countOthers(const Batch &first);
  void countBatch(Index begin, const Batch &batch);
  /// Adds the counts of other chunks; of a batch of chunks from `first` on.
  void addCounts();
  void addCountsOf(I32 first, Index counter);
  int64_t getCountWidth() const;
  int64_t getCountLoads() const;
  /// The counts of `getCountWidth()` experts from a counter's on, in a chunk.
  I32 loadCounts(Index chunk, Index counter);
  void addCountsTo(Index row, Index counter, I32 numbers);
  void sumRows();
  void sumGroups();
  void writeOffsets();
  /// The lane's slot among the 32 of the run from `first` on.
  RankedSlot loadSlot(Index first);
  RankedSlot loadFirstSlot();
  void placeRun(RankedSlot first);

  void count(const SlotChoice &choice, Index row) {
    counters.count(choice, table, row, nowhereAt());
  }
  void addTo(Index row, Index counter, I32 number) {
    emitter.addAtomically(number, table, row + counter);
  }
  WarpSums scanWarp(I32 value);
  /// The first position of a counter's expert.
  I32 firstOf(Index counter);

  Index numberOfWarp() { return emitter.toIndex(emitter.warp()); }
  Flag isFirst(I32 number) { return number < 1; }
  Flag isFirstCta() { return emitter.cta() == 0; }
  /// Offset of a row in `table`, and of a group.
  Index row(Index number) { return number * shape.getStride(); }
  Index row(int64_t number) {
    return emitter.index(number * shape.getStride());
  }
  Index groupAt(Index group) {
    return group + (numRuns + 1) * shape.getStride();
  }
  /// Offsets of the counter of slots without an expert, and of the slots of
  /// earlier rounds.
  Index nowhereAt() { return groupAt(emitter.index(shape.getGroups())); }
  Index earlierAt() { return groupAt(emitter.index(shape.getGroups() + 1)); }
  /// Index of the thread's slot `i` of the batch at `begin`.
  Index slotOfBatch(Index begin, int64_t i) {
    return begin + emitter.toIndex(emitter.thread()) + i * shape.threads;
  }

  tile::SortByExpertOp op;
  ThreadEmitter &emitter;
  anygpu::SortByExpert shape;
  int64_t topK, numRuns;
  /// Loads of slots of other chunks in flight.
  int64_t otherLoads;
  SlotCounters counters;
  mlir::Value ids, weights, counts, offsets, position, source, rowWeight;
  /// Rows of counters. By sums over rows they become the positions of runs
  /// relative to their expert's first; the last row becomes the first position
  /// relative to the group's. Behind them are the first positions of groups
  /// and, with several rounds, the slots of earlier ones.
  mlir::Value table;
  /// Number of valid tokens, and tokens of a chunk.
  Index numTokens, chunkTokens;
  /// All slots, the valid ones, the CTA's chunk of these, the warp's run.
  Index allSlots, numSlots;
  RowRange chunk, own;
  /// Whether there are other chunks.
  Flag hasOthers;
  /// The number of chunks with valid slots, if they have been counted.
  I32 numChunks;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_SORTCHUNK_H
