//===- FollowPhase.h - which phases share a kernel --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_FOLLOWPHASE_H
#define MOEC_SCHEDULES_REWRITES_FOLLOWPHASE_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A schedule on a GPU whose phases may follow another one in one kernel
/// without a barrier between CTAs.
class FollowsPhase {
public:
  virtual ~FollowsPhase() = default;
  /// Configs with which both can be phases of one kernel for `load`, so that a
  /// CTA in `second`, which has a config of this schedule, needs at most its
  /// own share of the results of `first`. Nothing if there are none.
  virtual std::optional<JoinedConfigs> follow(mlir::Operation *first,
                                              mlir::Operation *second,
                                              tile::LoadAttr load) const = 0;
  /// Reason why the present configs of both are not of this kind; empty if they
  /// are.
  virtual std::string whyApart(mlir::Operation *first, mlir::Operation *second,
                               tile::LoadAttr load) const = 0;
  /// Whether a phase of this schedule reads no result of the phase that it
  /// follows. That phase may then run before earlier launches have ended.
  virtual bool isIndependent() const { return false; }
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_FOLLOWPHASE_H
