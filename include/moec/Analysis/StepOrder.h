//===- StepOrder.h - what happens before what in a variant ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_STEPORDER_H
#define MOEC_ANALYSIS_STEPORDER_H

#include "moec/Dialect/Plan/Plan.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"

namespace moec {

/// The partial order of the steps of a `plan.variant`: steps of one stream run
/// in program order, and a wait comes after everything before the latest record
/// of its event. Steps that it does not order may run at the same time.
class StepOrder {
public:
  explicit StepOrder(plan::VariantOp variant);

  /// Whether every step that touches `first` is over before any step that
  /// touches `second` begins. True if one of them is not touched at all.
  bool endsBefore(mlir::Value first, mlir::Value second) const;

  /// Whether no step before this one touches `memory`.
  bool isFirst(mlir::Operation *step, mlir::Value memory) const;

  /// Whether every step that touches `memory`, but for this one, is over before
  /// this one begins.
  bool isUsedUp(mlir::Value memory, mlir::Operation *step) const;

  /// Whether the first step that touches it is a launch that needs nothing of
  /// the launches before it: it reads no buffer.
  bool isMadeFromInputs(mlir::Value buffer) const;

private:
  llvm::DenseMap<mlir::Operation *, unsigned> indices;
  /// For each step the steps that are over when it begins.
  llvm::SmallVector<llvm::BitVector> predecessors;
  /// For each buffer or tensor the steps that touch it.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<unsigned>> uses;
  /// Launches that read no buffer.
  llvm::BitVector readsInputs;
};

} // namespace moec

#endif // MOEC_ANALYSIS_STEPORDER_H
