//===- CountIds.h - what count-ids asks of a schedule -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_COUNTIDS_H
#define MOEC_SCHEDULES_REWRITES_COUNTIDS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

struct DeviceRates;

/// A gemm schedule on a GPU whose code can count `ids`.
class CountsIds {
public:
  virtual ~CountsIds() = default;
  /// Microseconds saved by a launch that counts `ids` ids and has started to
  /// copy weights when the launches before it end; negative if counting takes
  /// longer.
  virtual double predictSaved(int64_t ids, const DeviceRates &device) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_COUNTIDS_H
