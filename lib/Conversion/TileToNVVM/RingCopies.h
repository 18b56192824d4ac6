//===- RingCopies.h - steps that threads copy to a ring ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Rows that lie anywhere are copied by instructions of many threads (cp.async),
// of which several steps are on their way at once. Each thread tells that its
// part of a step has arrived as late as it may: when there is no space for
// another step, or as many are open as it keeps so.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_RINGCOPIES_H
#define MOEC_LIB_CONVERSION_TILETONVVM_RINGCOPIES_H

#include "AsyncEmitter.h"

#include <functional>

namespace moec {

/// A place in a ring, of stages or of what else takes turns; both are i32. The
/// parity changes with every turn.
struct RingPlace {
  mlir::Value stage, parity;
};

/// The place behind one in a ring of `size`.
RingPlace nextPlace(AsyncEmitter &emitter, RingPlace place, int64_t size);

class RingCopies {
public:
  /// What a thread carries from step to step.
  struct State {
    RingPlace place;
    /// The stage of the oldest copies that have not arrived, and how many steps
    /// have not; i32.
    mlir::Value oldest, open;

    llvm::SmallVector<mlir::Value> pack() const {
      return {place.stage, place.parity, oldest, open};
    }
    static State unpack(mlir::ValueRange values) {
      return {{values[0], values[1]}, values[2], values[3]};
    }
  };

  /// Of a ring of `stages`; `fullBarrier` is that of a stage, which each thread
  /// arrives at.
  RingCopies(AsyncEmitter &emitter, int64_t stages,
             std::function<mlir::Value(mlir::Value stage)> fullBarrier)
      : emitter(emitter), stages(stages), fullBarrier(std::move(fullBarrier)) {}

  /// Nothing is open.
  State begin(RingPlace place);
  /// A step, which `copy` copies where `wait` has waited for space; `hasSpace`
  /// (i1) says whether there is some, to each lane. All lanes of a warp.
  State emitStep(State state, llvm::function_ref<mlir::Value()> hasSpace,
                 llvm::function_ref<void()> wait,
                 llvm::function_ref<void()> copy);
  /// Waits for all that is open.
  State publishAll(State state);

private:
  mlir::Value nextStage(mlir::Value stage) {
    return nextPlace(emitter, {stage, emitter.i32(0)}, stages).stage;
  }

  AsyncEmitter &emitter;
  int64_t stages;
  std::function<mlir::Value(mlir::Value)> fullBarrier;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_RINGCOPIES_H
