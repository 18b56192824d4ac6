//===- RingCopies.h - k tiles that threads copy to a pipeline ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Pipelined copies of scattered rows by many threads (cp.async), with several k
// tiles in flight. Each thread signals the arrival of its part of a k tile as
// late as possible: when no stage is empty for another k tile, or when the
// maximum is in flight.
//
// Warps may copy k tiles in turn, each all of a k tile. A thread then arrives
// in place of those of the other warps too.

#ifndef MOEC_LIB_KERNELBUILDER_RINGCOPIES_H
#define MOEC_LIB_KERNELBUILDER_RINGCOPIES_H

#include "Pipeline.h"

namespace moec {

class RingCopies {
public:
  /// Loop-carried state of a thread.
  struct State {
    PipelineState place;
    /// The stage of the oldest copies in flight, and the number of k tiles in
    /// flight.
    I32 oldest, open;

    auto fields() { return std::tie(place, oldest, open); }
  };

  /// Each thread arrives at the stages' "full" barriers. It copies one of
  /// `turns` successive k tiles.
  RingCopies(AsyncEmitter &emitter, const Pipeline &pipeline, int64_t turns = 1)
      : emitter(emitter), pipeline(pipeline), turns(turns) {}

  /// Initial state: nothing in flight.
  State begin(PipelineState place);
  /// One k tile: waits until its stage is empty, then `copy` issues the copies.
  /// `empty` and `before`: the stage's barrier, and the parity to wait for.
  /// `finish`: what the thread does with its copies in a stage when they have
  /// arrived. All lanes of a warp.
  State emitStep(State state, const Barrier &empty, I32 before,
                 llvm::function_ref<void()> copy,
                 llvm::function_ref<void(I32)> finish = nullptr);
  /// Waits for everything in flight.
  State publishAll(State state, llvm::function_ref<void(I32)> finish = nullptr);

private:
  /// The thread's k tile behind one.
  PipelineState next(PipelineState place);
  I32 nextStage(I32 stage);

  AsyncEmitter &emitter;
  const Pipeline &pipeline;
  int64_t turns;
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_RINGCOPIES_H
