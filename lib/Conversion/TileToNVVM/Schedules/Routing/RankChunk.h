//===- RankChunk.h - one CTA of sm80.rank -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_RANKCHUNK_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_RANKCHUNK_H

#include "RankFew.h"
#include "SlotCounters.h"
#include "moec/Analysis/Sm80.h"

namespace moec {

/// A lane's slot, or its warp's first slot if the lane has none.
struct RankedSlot {
  mlir::Value id, weight;
};

/// Sums over the lower lanes of a warp, and over all lanes.
struct WarpSums {
  mlir::Value before, total;
};

/// One CTA of the sort by expert. Roles, sums and positions are in
/// Sm80Rank.cpp, counting in RankCount.cpp.
class RankChunk {
public:
  RankChunk(tile::RankOp op, ThreadEmitter &emitter, const sm80::Rank &shape);

  void run();

private:
  void findChunk();
  void findRun();
  void clearInvalid();

  /// For few slots, in the first CTA.
  void rankFew();
  mlir::Value countChunks();
  void rankChunk();
  /// Gives positions to the slots of all experts, or of the experts that have
  /// counters now.
  void rankExperts();
  void rankPanel();
  void clearCounters();
  /// `first`: the lane's slot among the first 32.
  void countRun(RankedSlot first);
  /// Ids of the thread's slots, `threads` apart, of the batch at `begin`.
  /// `isWhole`: all of them exist.
  llvm::SmallVector<mlir::Value> loadBatch(mlir::Value begin, bool isWhole);
  llvm::SmallVector<mlir::Value> loadFirstBatch();
  /// Counts slots of other chunks; the thread already has the ids of the first
  /// batch.
  void countOthers(mlir::ValueRange ids);
  void countBatch(mlir::Value begin, mlir::ValueRange ids);
  /// Adds the counts of other chunks; of a batch of chunks from `first` (i32)
  /// on.
  void addCounts();
  void addCountsOf(mlir::Value first, mlir::Value counter);
  int64_t getCountWidth() const;
  int64_t getCountLoads() const;
  mlir::Value loadCounts(mlir::Value chunk, mlir::Value counter);
  void addCountsTo(mlir::Value row, mlir::Value counter, mlir::Value numbers);
  void sumRows();
  void sumGroups();
  void writeOffsets();
  /// The lane's slot among the 32 of the run from `first` on.
  RankedSlot loadSlot(mlir::Value first);
  RankedSlot loadFirstSlot();
  void placeRun(RankedSlot first);

  void count(const SlotChoice &choice, mlir::Value row) {
    counters.count(choice, table, row, nowhereAt());
  }
  void addTo(mlir::Value row, mlir::Value counter, mlir::Value number) {
    emitter.addAtomically(number, table, emitter.add(row, counter));
  }
  WarpSums scanWarp(mlir::Value value);
  /// The first position of a counter's expert; the counter is of type index.
  mlir::Value firstOf(mlir::Value counter);

  Index numberOfWarp() { return emitter.toIndex(emitter.warp()); }
  mlir::Value isFirst(mlir::Value number) {
    return emitter.isLess(number, emitter.i32(1));
  }
  mlir::Value isFirstCta() {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::eq,
                                       emitter.cta(), emitter.index(0));
  }
  /// Offset of a row in `table`, and of a group.
  mlir::Value row(mlir::Value number) {
    return emitter.mul(number, shape.getStride());
  }
  mlir::Value row(int64_t number) {
    return emitter.index(number * shape.getStride());
  }
  mlir::Value groupAt(mlir::Value group) {
    return emitter.add(group, (numRuns + 1) * shape.getStride());
  }
  /// Offsets of the counter of slots without an expert, and of the slots of
  /// earlier panels.
  mlir::Value nowhereAt() { return groupAt(emitter.index(shape.getGroups())); }
  mlir::Value earlierAt() {
    return groupAt(emitter.index(shape.getGroups() + 1));
  }
  mlir::Value addI32(mlir::Value x, mlir::Value y) {
    return mlir::arith::AddIOp::create(b, x, y);
  }
  mlir::Value both(mlir::Value x, mlir::Value y) {
    return mlir::arith::AndIOp::create(b, x, y);
  }
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y) {
    return mlir::arith::SelectOp::create(b, condition, x, y);
  }
  mlir::Value isBelow(mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::slt, x,
                                       y);
  }
  mlir::Value isAtMost(mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::sle, x,
                                       y);
  }
  /// The types of a batch of ids.
  llvm::SmallVector<mlir::Type> getBatchTypes() {
    return llvm::SmallVector<mlir::Type>(otherLoads, b.getI32Type());
  }
  /// Index of the thread's slot `i` of the batch at `begin`.
  mlir::Value slotOfBatch(mlir::Value begin, int64_t i) {
    mlir::Value mine = emitter.add(begin, emitter.toIndex(emitter.thread()));
    return emitter.add(mine, i * shape.threads);
  }
  mlir::Value minus(mlir::Value x, mlir::Value y) {
    return mlir::arith::SubIOp::create(b, x, y);
  }

  tile::RankOp op;
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm80::Rank shape;
  int64_t topK, numRuns;
  /// Loads of slots of other chunks in flight.
  int64_t otherLoads;
  SlotCounters counters;
  mlir::Value ids, weights, counts, offsets, position, source, rowWeight;
  /// Rows of counters. By sums over rows they become the positions of runs
  /// relative to their expert's first; the last row becomes the first position
  /// relative to the group's. Behind them are the first positions of groups
  /// and, with several panels, the slots of earlier ones.
  mlir::Value table;
  /// Number of valid tokens, and tokens of a chunk.
  Index numTokens, chunkTokens;
  /// All slots, the valid ones, the CTA's chunk of these, the warp's run.
  Index allSlots, numSlots;
  RowRange chunk, own;
  /// Whether there are other chunks; the number (i32) of chunks with valid
  /// slots, if they have been counted.
  mlir::Value hasOthers, numChunks;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_RANKCHUNK_H
