//===- RunPhases.h - schedules whose code runs other phases too -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_RUNPHASES_H
#define MOEC_SCHEDULES_REWRITES_RUNPHASES_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A schedule on a GPU whose code may run two neighbouring phases of a kernel
/// together.
class RunsPhases {
public:
  virtual ~RunsPhases() = default;
  /// `before` or `phase`, which has a config of this schedule: the one whose
  /// code runs both. Null if `phase` cannot come after `before`.
  virtual mlir::Operation *findRunner(mlir::Operation *before,
                                      mlir::Operation *phase) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_RUNPHASES_H
