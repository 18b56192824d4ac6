//===- SlotCounters.h - chunks of slots, counters of them -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Shared code of sm80.count_slots and sm80.rank.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_SLOTCOUNTERS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_SLOTCOUNTERS_H

#include "../../../Emission/RankIds.h"
#include "../../ThreadEmitter.h"
#include "moec/Analysis/TokenChunks.h"

namespace moec {

/// Tokens of each chunk but the last, index.
Index emitChunkTokens(ThreadEmitter &emitter, TokenChunks chunks);

/// A `T x k` argument, flattened to one row of slots.
mlir::Value flattenSlots(ThreadEmitter &emitter, mlir::Value memref);

/// Classification of a slot. Numbers are i32.
struct SlotChoice {
  /// The counter of its expert, and whether there is one in this panel.
  mlir::Value counter, isHere;
  /// Whether its expert has no counter in any panel.
  mlir::Value isElsewhere;
};

/// Counters in shared memory for `panel` local experts: for all at once, or for
/// one panel after the other.
class SlotCounters {
public:
  SlotCounters(ThreadEmitter &emitter, RankExperts all, int64_t panel);

  bool hasPanels() const { return panel < numLocal; }
  /// Iterates over the panels. Each of several begins with a barrier, up to
  /// which the one before reads its counters.
  void forPanels(llvm::function_ref<void()> body);

  /// Number of experts of the panel, index.
  mlir::Value getNumCounters() const { return numCounters; }
  /// The local expert of a counter, index.
  mlir::Value localOf(mlir::Value counter);

  /// Classifies a slot with that id. Null `exists`: the slot exists.
  SlotChoice choose(mlir::Value id, mlir::Value exists);
  /// Increments the slot's counter in `row` of `table`, or the unused counter
  /// at `nowhere`, which is faster than a branch.
  void count(const SlotChoice &choice, mlir::Value table, mlir::Value row,
             mlir::Value nowhere);

  RankIds &getExperts() { return experts; }

private:
  static mlir::Value makeLocalTable(ThreadEmitter &emitter, RankExperts all) {
    return all.local ? emitter.constantTable(RankIds::getLocalTable(all))
                     : mlir::Value();
  }

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  int64_t numLocal, panel;
  RankIds experts;
  /// The first expert of the panel, index; null for a single panel.
  mlir::Value firstLocal;
  mlir::Value numCounters;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_SLOTCOUNTERS_H
