//===- TopKStored.h - routing with rows in scratch memory -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_TOPKSTORED_H
#define MOEC_LIB_SCHEDULES_ROUTING_TOPKSTORED_H

#include "TopKEmission.h"

namespace moec {

/// Routing with the values and keys of a row in scratch memory.
class TopKStored : public TopKEmission {
public:
  TopKStored(tile::TopKOp op, KernelEmitter &emitter, int64_t lanes);

private:
  Flag readRow(Index token) override;
  /// Stores exp(score - max) to `values`; returns the sum, in all lanes.
  F32 softmaxRow(Index token);

  // Selects, with a value per slot in `chosen` and `scales`.
  void selectExperts(Index token) override;
  void selectBest(Index token, Index firstSlot, int64_t count, Index begin,
                  Index end);
  void selectByHash(Index token);
  void selectSparseMixer(Index token);
  F32 mixerSum(F32 largest);
  void take(Index token, Index slot, Index position, F32 value);
  /// Takes the ids that the caller gives.
  void takeGiven(Index token);
  /// Gives a slot the expert of an id, which may be of none.
  void takeId(Index token, Index slot, I32 id);

  void weighRow(Index token) override;

  KeyTable keys;
  /// Lanes of the vector that holds all slots of a token.
  int64_t slotLanes;
  /// Scratch: f32 per position, and f32 per slot.
  mlir::Value values, chosen, scales;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_TOPKSTORED_H
