//===- StepOrder.h - what happens before what in a variant ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_STEPORDER_H
#define MOEC_SCHEDULES_STEPORDER_H

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

  /// Whether every step that accesses `first` ends before any step that
  /// accesses `second` begins. True if one of them is not accessed at all.
  bool endsBefore(mlir::Value first, mlir::Value second) const;

  /// Whether no step before this one accesses `memory`.
  bool isFirst(mlir::Operation *step, mlir::Value memory) const;

  /// Whether every other step that accesses `memory` ends before this one
  /// begins.
  bool isUsedUp(mlir::Value memory, mlir::Operation *step) const;

  /// Whether the first step that accesses it is a launch that depends on no
  /// launch before it: it reads no buffer.
  bool isMadeFromInputs(mlir::Value buffer) const;

private:
  llvm::DenseMap<mlir::Operation *, unsigned> indices;
  /// Per step, the steps that have ended when it begins.
  llvm::SmallVector<llvm::BitVector> predecessors;
  /// Per buffer or tensor, the steps that access it.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<unsigned>> uses;
  /// Launches that read no buffer.
  llvm::BitVector readsInputs;
};

} // namespace moec

#endif // MOEC_SCHEDULES_STEPORDER_H
