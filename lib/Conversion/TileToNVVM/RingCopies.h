//===- RingCopies.h - steps that threads copy to a ring ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Pipelined copies of scattered rows by many threads (cp.async), with several k
// tiles in flight. Each thread signals the arrival of its part of a k tile as
// late as possible: when no stage is free for another k tile, or when the
// maximum is in flight.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_RINGCOPIES_H
#define MOEC_LIB_CONVERSION_TILETONVVM_RINGCOPIES_H

#include "AsyncEmitter.h"

#include <functional>

namespace moec {

/// Pipeline state, of stages or of other circular buffers; both are i32. The
/// parity flips each time around.
struct RingPlace {
  mlir::Value stage, parity;
};

/// The next state in a pipeline of `size` stages.
RingPlace nextPlace(AsyncEmitter &emitter, RingPlace place, int64_t size);

class RingCopies {
public:
  /// Loop-carried state of a thread.
  struct State {
    RingPlace place;
    /// The stage of the oldest copies in flight, and the number of k tiles in
    /// flight; i32.
    mlir::Value oldest, open;

    llvm::SmallVector<mlir::Value> pack() const {
      return {place.stage, place.parity, oldest, open};
    }
    static State unpack(mlir::ValueRange values) {
      return {{values[0], values[1]}, values[2], values[3]};
    }
  };

  /// For a pipeline of `stages`; `fullBarrier` gives a stage's barrier, at
  /// which each thread arrives.
  RingCopies(AsyncEmitter &emitter, int64_t stages,
             std::function<mlir::Value(mlir::Value stage)> fullBarrier)
      : emitter(emitter), stages(stages), fullBarrier(std::move(fullBarrier)) {}

  /// Initial state: nothing in flight.
  State begin(RingPlace place);
  /// One k tile: `wait` waits for a free stage, then `copy` issues its copies.
  /// `hasSpace` (i1) tells each lane whether a stage is free. All lanes of a
  /// warp.
  State emitStep(State state, llvm::function_ref<mlir::Value()> hasSpace,
                 llvm::function_ref<void()> wait,
                 llvm::function_ref<void()> copy);
  /// Waits for everything in flight.
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
