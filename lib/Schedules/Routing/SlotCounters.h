//===- SlotCounters.h - chunks of slots, counters of them -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Shared code of gpu.count_slots and gpu.sort_by_expert.

#ifndef MOEC_LIB_SCHEDULES_ROUTING_SLOTCOUNTERS_H
#define MOEC_LIB_SCHEDULES_ROUTING_SLOTCOUNTERS_H

#include "KernelBuilder/ThreadEmitter.h"
#include "SortIds.h"
#include "moec/Schedules/TokenChunks.h"

namespace moec {

/// Tokens of each chunk but the last.
Index emitChunkTokens(ThreadEmitter &emitter, TokenChunks chunks);

/// A `T x k` argument, flattened to one row of slots.
mlir::Value flattenSlots(ThreadEmitter &emitter, mlir::Value memref);

/// Classification of a slot.
struct SlotChoice {
  /// The counter of its expert, and whether there is one in this round.
  I32 counter;
  Flag isHere;
  /// Whether its expert has no counter in any round.
  Flag isElsewhere;
};

/// Counters in shared memory for `expertsAtOnce` local experts: for all at
/// once, or for some in each round.
class SlotCounters {
public:
  SlotCounters(ThreadEmitter &emitter, RankExperts all, int64_t expertsAtOnce);

  bool hasRounds() const { return expertsAtOnce < numLocal; }
  /// Iterates over the rounds. Each of several begins with a barrier, up to
  /// which the one before reads its counters.
  void forRounds(llvm::function_ref<void()> body);

  /// Number of experts of the round.
  Index getNumCounters() const { return numCounters; }
  /// The local expert of a counter.
  Index localOf(Index counter);

  /// Classifies a slot with that id. Null `exists`: the slot exists.
  SlotChoice choose(I32 id, Flag exists);
  /// Increments the slot's counter in `row` of `table`, or the unused counter
  /// at `nowhere`, which is faster than a branch.
  void count(const SlotChoice &choice, mlir::Value table, Index row,
             Index nowhere);

  SortIds &getExperts() { return experts; }

private:
  static mlir::Value makeLocalTable(ThreadEmitter &emitter, RankExperts all) {
    return all.local ? emitter.constantTable(SortIds::getLocalTable(all))
                     : mlir::Value();
  }

  ThreadEmitter &emitter;
  int64_t numLocal, expertsAtOnce;
  SortIds experts;
  /// The first expert of the round; null for a single round.
  Index firstLocal;
  Index numCounters;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_SLOTCOUNTERS_H
