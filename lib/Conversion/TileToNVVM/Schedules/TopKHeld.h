//===- TopKHeld.h - routing of rows in registers ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_TOPKHELD_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_TOPKHELD_H

#include "../../Emission/TopKEmission.h"
#include "../WarpEmitter.h"

namespace moec {

/// A warp has the values and keys of a row in registers, a few of each per
/// lane, and lane s what becomes of slot s. All of a row is asked for at once,
/// biases before the launch that makes the logits has ended. Shared memory only
/// carries values from the lanes that have them to those of their slots.
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
  void makeParts();
  void loadBiases();

  mlir::Value readRow(mlir::Value token) override;
  void divideBySum(llvm::MutableArrayRef<mlir::Value> scores);

  void select(mlir::Value token) override;
  void keepBestGroups();
  mlir::Value groupKey(int64_t group);
  /// The place of the largest key, the first of equals.
  mlir::Value findBest(mlir::ValueRange held);
  void storeValues();

  void weighRow(mlir::Value token) override;
  mlir::Value isSlot();

  WarpEmitter &warp;
  llvm::SmallVector<Part> parts;
  /// Of each part.
  llvm::SmallVector<mlir::Value> values, keys;
  /// The value of the lane's slot, and the scale of its expert.
  mlir::Value chosen, scale;
  /// Shared: values of a row.
  mlir::Value table;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_TOPKHELD_H
