//===- TopKHeld.h - routing of rows in registers ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_TOPKHELD_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_TOPKHELD_H

#include "../../../Emission/TopKEmission.h"
#include "../../WarpEmitter.h"

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
    mlir::Value firstExpert;
    /// Null if all lanes have an expert.
    mlir::Value mask;
    /// Selection bias; null if there is none.
    mlir::Value bias;
    int64_t group;
  };
  /// A lane's selection, i32: the index of an expert in the row, and the
  /// token's slot for it, topK or more if none.
  struct Found {
    mlir::Value place, slot;
  };

  // Values and keys (TopKHeld.cpp).
  void makeParts();
  void loadBiases();
  mlir::Value readRow(mlir::Value token) override;
  /// Whether scores and keys have one order, so that the selection needs no
  /// softmax.
  bool isOrderedByScore() const;
  mlir::Value keysOfScores(llvm::ArrayRef<mlir::Value> scores);
  void divideBySum(llvm::MutableArrayRef<mlir::Value> scores);

  // Selection (TopKHeldSelect.cpp).
  void select(mlir::Value token) override;
  void keepBestGroups();
  mlir::Value groupKey(int64_t group);
  /// The largest key of a lane.
  mlir::Value largestHeld(mlir::ValueRange held);
  /// Selects the index of the largest remaining key for one slot after the
  /// other.
  Found selectOneByOne();
  /// The index of the largest key, the first of equals.
  mlir::Value findBest(mlir::ValueRange held);
  /// Each lane counts the keys, among few, that come before its own.
  Found selectByRank();
  /// A bound that at least topK keys reach, and few others.
  mlir::Value findBound();
  /// Compacts keys of at least `bound`, up to the capacity, into the table, in
  /// the order of their indices. Returns their number, i32.
  mlir::Value collect(mlir::Value bound);
  Found rankCollected(mlir::Value count);

  void weighRow(mlir::Value token) override;
  mlir::Value isSlot() { return warp.isLess(found.slot, emitter.i32(topK)); }

  WarpEmitter &warp;
  llvm::SmallVector<Part> parts;
  /// The keys of each part.
  llvm::SmallVector<mlir::Value> keys;
  Found found;
  /// The lane's expert, index.
  mlir::Value expert;
  /// Shared memory: the compacted keys and their indices; null if none are
  /// ranked.
  mlir::Value leftKeys, leftPlaces;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_TOPKHELD_H
