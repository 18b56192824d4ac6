//===- SlotCounters.h - chunks of slots, counters of them -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// What sm80.count_slots and sm80.rank have in common.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_SLOTCOUNTERS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_SLOTCOUNTERS_H

#include "../../../Emission/RankIds.h"
#include "../../ThreadEmitter.h"
#include "moec/Analysis/TokenChunks.h"

namespace moec {

/// The tokens of each chunk but the last, of type index.
mlir::Value emitChunkTokens(ThreadEmitter &emitter, TokenChunks chunks);

/// A `T x k` argument as one row of slots.
mlir::Value flattenSlots(ThreadEmitter &emitter, mlir::Value memref);

/// What becomes of a slot. Numbers are i32.
struct SlotChoice {
  /// The counter of its expert, and whether it has one now.
  mlir::Value counter, isHere;
  /// Whether no counter is its expert's, now or ever.
  mlir::Value isElsewhere;
};

/// Counters in shared memory for `panel` local experts: for all, or for one
/// panel of them after the other.
class SlotCounters {
public:
  SlotCounters(ThreadEmitter &emitter, RankExperts all, int64_t panel);

  bool hasPanels() const { return panel < numLocal; }
  /// Goes through the panels. With several, each begins with a barrier: the one
  /// before reads its counters until there.
  void forPanels(llvm::function_ref<void()> body);

  /// The number of the panel's experts, of type index.
  mlir::Value getNumCounters() const { return numCounters; }
  /// The local expert whose counter that is, of type index.
  mlir::Value localOf(mlir::Value counter);

  /// What becomes of a slot with that id. Null means that the slot exists.
  SlotChoice choose(mlir::Value id, mlir::Value exists);
  /// Adds one to the slot's counter, behind `row` of `table`, or to that at
  /// `nowhere`, which nobody reads: that is faster than a branch.
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
  /// The first expert of the panel, of type index; null for one panel, which
  /// has all.
  mlir::Value firstLocal;
  mlir::Value numCounters;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_SLOTCOUNTERS_H
