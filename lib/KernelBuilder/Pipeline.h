//===- Pipeline.h - barriers and stages in shared memory --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Pipeline between threads that fill the stages of a circular buffer in shared
// memory and threads that read them: a producer waits until a stage is empty,
// fills it and arrives at its "full" barrier; a consumer waits until it is
// full, reads it and arrives at its "empty" barrier.

#ifndef MOEC_LIB_KERNELBUILDER_PIPELINE_H
#define MOEC_LIB_KERNELBUILDER_PIPELINE_H

#include "AsyncEmitter.h"

namespace moec {

/// An mbarrier. Its phases alternate in parity; the first one has parity 0.
class Barrier {
public:
  /// `address`: 8 bytes of shared memory, `!llvm.ptr<3>`.
  Barrier(AsyncEmitter &emitter, mlir::Value address)
      : emitter(emitter), b(emitter.b), address(address) {}

  mlir::Value getAddress() const { return address; }
  /// Makes phases end after `arrivals` arrivals. Before `fenceBarriers`.
  void init(int64_t arrivals) const;
  void arrive(int64_t times = 1) const;
  /// Arrives at the barrier at the same address of the CTA of that rank in the
  /// cluster, which may be this one. The thread's reads, and copies that it has
  /// waited for, are over for those that wait there, but its writes are not
  /// visible to them: scope cluster would cost a fence of the whole GPU.
  void arriveAt(I32 rank) const;
  /// Arrives there with a word that is written to `slot` of that CTA. The phase
  /// waits for the word.
  void send(I32 rank, I32 word, mlir::Value slot) const;
  /// Arrives, and makes the phase wait for so many copied bytes too.
  void arriveExpecting(int64_t bytes) const;
  /// Waits for the end of the phase with that parity.
  void wait(I32 parity) const;
  /// Whether the phase with that parity has ended.
  Flag test(I32 parity) const;

private:
  I32 i32(int64_t value) const;
  void arriveOn(mlir::Value of, mlir::Value count) const;
  void arriveOnExpecting(mlir::Value of, int64_t bytes) const;

  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value address;
};

/// A stage, and the parity of its barriers' phases in this round through the
/// stages.
struct PipelineState {
  I32 stage, parity;

  auto fields() { return std::tie(stage, parity); }
  /// The parity of the round before, for waits until a stage is empty: phases
  /// before the first one count as ended.
  I32 before() const { return parity ^ 1; }
};

/// Rows of a pattern of the swizzle.
inline constexpr int64_t kSwizzleRows = 8;
/// Index of a chunk of 16 bytes in a row of so many chunks, 8 or 4, as tensor
/// maps and tensor cores swizzle it: XORed with the row's index in a pattern of
/// 8 rows or, with 4 chunks, with the index of the pair of rows.
inline I32 swizzle(I32 row, I32 chunk, int64_t rowChunks = 8) {
  return chunk ^ row % kSwizzleRows / (kSwizzleRows / rowChunks);
}

class Pipeline {
public:
  /// Offsets of the first stage, from `stages`, and of the "full" barriers of
  /// all stages, from `barriers`. The "empty" ones follow.
  struct Layout {
    int64_t stages, stageBytes, firstStage, firstBarrier;
    /// CTAs of a cluster that fill and empty stages together.
    int64_t ctas = 1;
  };
  static constexpr int64_t kBarrierBytes = 8;

  /// `stages` and `barriers` are addresses in shared memory.
  Pipeline(AsyncEmitter &emitter, mlir::Value stages, mlir::Value barriers,
           Layout layout)
      : emitter(emitter), stages(stages), barriers(barriers), layout(layout) {}

  int64_t getStages() const { return layout.stages; }
  PipelineState first() const;
  PipelineState next(PipelineState state) const;
  /// The state `count` k tiles later; a variable count is below that of stages.
  PipelineState skip(PipelineState state, I32 count) const;
  PipelineState skip(PipelineState state, int64_t count) const;
  /// The address of a stage, plus `offset` bytes.
  mlir::Value stageAddress(I32 stage, int64_t offset = 0) const;
  Barrier full(I32 stage) const { return barrier(stage, 0); }
  Barrier empty(I32 stage) const { return barrier(stage, layout.stages); }
  /// One thread: initializes the barriers, whose phases end after so many
  /// arrivals.
  void init(int64_t fullArrivals, int64_t emptyArrivals) const;

  /// One warp that has read a stage: frees it in all CTAs that fill it.
  void release(I32 stage) const;
  void waitUntilFull(PipelineState state) const;
  Flag isFull(PipelineState state) const;
  /// Waits until consumers have read what the round before left in the stage.
  /// All stages are empty in the first round.
  void waitUntilEmpty(PipelineState state) const;

private:
  /// The barrier of a stage, behind `before` others.
  Barrier barrier(I32 stage, int64_t before) const;

  AsyncEmitter &emitter;
  mlir::Value stages, barriers;
  Layout layout;
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_PIPELINE_H
