//===- TopKStreamed.h - routing of rows that do not fit ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_TOPKSTREAMED_H
#define MOEC_LIB_SCHEDULES_ROUTING_TOPKSTREAMED_H

#include "KernelBuilder/WarpEmitter.h"
#include "TopKEmission.h"

namespace moec {

/// Routing of rows of any length by a warp without scratch memory. Values and
/// keys are recomputed from the logits in every round of the selection; experts
/// up to the latest selected one, in the order of keys, count as selected.
/// Between selection and weights, ids and values of a token's slots are kept in
/// the results; only lane l accesses slots l, l + 32, ...
class TopKStreamed : public TopKEmission {
public:
  TopKStreamed(tile::TopKOp op, WarpEmitter &emitter);

private:
  /// Key and number of an expert or group. Ordered by descending key, then by
  /// ascending number.
  struct Place {
    I32 key, number;
    auto fields() { return std::tie(key, number); }
  };
  Place beforeAll();
  static Flag isAfter(I32 key, I32 number, Place last);

  Flag readRow(Index token) override;
  void readSoftmax(Index token);
  /// Scores of 32 experts from `expert` on.
  Scored scoresAt(Index token, Index expert, Flag mask);

  void selectExperts(Index token) override;
  /// The best expert after `last`: of all kept groups if `group` is null, else
  /// of that group.
  Place best(Index token, Index group, Place last);
  void selectBest(Index token, Index group, Index firstSlot, int64_t count);
  void selectByHash(Index token);
  /// Takes the ids that the caller gives.
  void takeGiven(Index token);
  /// Gives a lane's slot the expert of an id, which may be of none.
  void takeId(Index token, Index slot, I32 id);
  void selectSparseMixer(Index token);
  /// The last group that is kept.
  Place lastGroup(Index token);
  I32 groupKey(Index token, Index group);
  void take(Index token, Index slot, I32 id, F32 value);

  void weighRow(Index token) override;
  /// Loops over the lane's slots with `body(slot, chosen, carried)`.
  F32 forSlots(Index token, double init,
               llvm::function_ref<F32(Index, F32, F32)> body);
  F32 expertScaleAt(Index token, Index slot);

  WarpEmitter &warp;
  /// Null if all groups are kept.
  Place floor;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_TOPKSTREAMED_H
