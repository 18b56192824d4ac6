//===- TopKHeld.h - routing of rows in registers ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_TOPKHELD_H
#define MOEC_LIB_SCHEDULES_ROUTING_TOPKHELD_H

#include "KernelBuilder/WarpEmitter.h"
#include "TopKEmission.h"

namespace moec {

/// Routing with the keys of a row in a warp's registers, a few per lane. All of
/// a row is loaded at once, biases before the launch that computes the logits
/// has ended. Inputs of the weights are recomputed for the few selected
/// experts, by the lanes that have their slots.
class TopKHeld : public TopKEmission {
public:
  /// `mayWait`: the kernel waits for the launch before it where this class
  /// decides.
  TopKHeld(tile::TopKOp op, WarpEmitter &emitter, bool mayWait);

private:
  /// 32 adjacent experts of a row.
  struct Part {
    Index firstExpert;
    /// Null if all lanes have an expert.
    Flag mask;
    /// Selection bias; null if there is none.
    F32 bias;
    int64_t group;
  };
  /// A lane's selection: the index of an expert in the row, and the token's
  /// slot for it, topK or more if none.
  struct Found {
    I32 place, slot;
    auto fields() { return std::tie(place, slot); }
  };

  // Values and keys (TopKHeld.cpp).
  void makeParts();
  void loadBiases();
  Flag readRow(Index token) override;
  /// Whether scores and keys have one order, so that the selection needs no
  /// softmax.
  bool isOrderedByScore() const;
  Flag keysOfScores(llvm::ArrayRef<F32> scores);
  void divideBySum(llvm::MutableArrayRef<F32> scores);

  // Selection (TopKHeldSelect.cpp).
  void selectExperts(Index token) override;
  /// Takes the ids that the caller gives.
  void takeGiven(Index token);
  void keepBestGroups();
  I32 groupKey(int64_t group);
  /// The largest key of a lane.
  static I32 largestHeld(llvm::ArrayRef<I32> held);
  /// Selects the index of the largest remaining key for one slot after the
  /// other.
  Found selectOneByOne();
  /// The index of the largest key, the first of equals.
  I32 findBest(llvm::ArrayRef<I32> held);
  /// Each lane counts the keys, among few, that come before its own.
  Found selectByRank();
  /// A bound that at least topK keys reach, and few others.
  I32 findBound();
  /// Compacts keys of at least `bound`, up to the capacity, into the table, in
  /// the order of their indices. Returns their number.
  I32 collect(I32 bound);
  Found rankCollected(I32 count);

  void weighRow(Index token) override;
  Flag isSlot() { return found.slot < topK; }

  WarpEmitter &warp;
  llvm::SmallVector<Part> parts;
  /// The keys of each part.
  llvm::SmallVector<I32> keys;
  Found found;
  /// The lane's expert; with given ids, whether there is one.
  Index expert;
  Flag isGivenExpert;
  /// Shared memory: the compacted keys and their indices; null if none are
  /// ranked.
  mlir::Value leftKeys, leftPlaces;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_TOPKHELD_H
