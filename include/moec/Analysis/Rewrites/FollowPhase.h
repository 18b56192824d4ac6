//===- FollowPhase.h - which phases share a kernel --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_REWRITES_FOLLOWPHASE_H
#define MOEC_ANALYSIS_REWRITES_FOLLOWPHASE_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// A schedule on a GPU whose phases may run behind another one in one kernel,
/// each CTA by itself.
class FollowsPhase {
public:
  virtual ~FollowsPhase() = default;
  /// The configs with which a CTA needs, of all that the phase `first` makes,
  /// at most its own share when it goes on to `second`, which has a config of
  /// this schedule, so that both are phases of one kernel for `load`; nothing
  /// where there are none.
  virtual std::optional<JoinedConfigs> follow(mlir::Operation *first,
                                              mlir::Operation *second,
                                              tile::LoadAttr load) const = 0;
  /// Empty if the configs that both have are such, else why not.
  virtual std::string whyApart(mlir::Operation *first, mlir::Operation *second,
                               tile::LoadAttr load) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_REWRITES_FOLLOWPHASE_H
