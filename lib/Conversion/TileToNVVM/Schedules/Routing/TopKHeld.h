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

/// A warp has the keys of a row in registers, a few per lane. All of a row is
/// asked for at once, biases before the launch that makes the logits has ended.
/// What the weights are made of is computed again, of the few that are
/// selected, by the lanes that have their slots.
class TopKHeld : public TopKEmission {
public:
  /// `mayWait`: the kernel waits for the launch before it where this says.
  TopKHeld(tile::TopKOp op, WarpEmitter &emitter, bool mayWait);

private:
  /// 32 neighbours of a row.
  struct Part {
    mlir::Value firstExpert;
    /// Null where all lanes have an expert.
    mlir::Value mask;
    /// What is added for the selection; null where there is none.
    mlir::Value bias;
    int64_t group;
  };
  /// What a lane has found, i32: the place of an expert in the row, and the
  /// token's slot that gets it, topK or more where it has none.
  struct Found {
    mlir::Value place, slot;
  };

  // Values and keys (TopKHeld.cpp).
  void makeParts();
  void loadBiases();
  mlir::Value readRow(mlir::Value token) override;
  /// Whether the order of the scores is that of the keys, so that no share of
  /// the softmax has to be known before the selection.
  bool isOrderedByScore() const;
  mlir::Value keysOfScores(llvm::ArrayRef<mlir::Value> scores);
  void divideBySum(llvm::MutableArrayRef<mlir::Value> scores);

  // Selection (TopKHeldSelect.cpp).
  void select(mlir::Value token) override;
  void keepBestGroups();
  mlir::Value groupKey(int64_t group);
  /// The largest key of a lane.
  mlir::Value largestHeld(mlir::ValueRange held);
  /// One slot after the other gets the place of the largest key that is left.
  Found selectOneByOne();
  /// The place of the largest key, the first of equals.
  mlir::Value findBest(mlir::ValueRange held);
  /// Each lane counts how many of the few keys come before its own.
  Found selectByRank();
  /// A key that at least topK are not below, and most are.
  mlir::Value findBound();
  /// Puts keys of at least `bound`, as many as there is room for, into the
  /// table, in the order of their places. How many there are, i32.
  mlir::Value collect(mlir::Value bound);
  Found rankCollected(mlir::Value count);

  void weighRow(mlir::Value token) override;
  mlir::Value isSlot() { return warp.isLess(found.slot, emitter.i32(topK)); }

  WarpEmitter &warp;
  llvm::SmallVector<Part> parts;
  /// The keys of each part.
  llvm::SmallVector<mlir::Value> keys;
  Found found;
  /// The lane's expert, an index.
  mlir::Value expert;
  /// Shared: keys that are left, and their places; null where none are ranked.
  mlir::Value leftKeys, leftPlaces;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_TOPKHELD_H
