//===- CountIds.h - what count-ids asks of a schedule -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_REWRITES_COUNTIDS_H
#define MOEC_ANALYSIS_REWRITES_COUNTIDS_H

#include "moec/Analysis/Schedules.h"

namespace moec {

struct DeviceRates;

/// A schedule of products on a GPU whose code counts `ids` where it has them.
class CountsIds {
public:
  virtual ~CountsIds() = default;
  /// Microseconds that a launch saves which counts so many ids and has begun to
  /// copy weights when the launches before it end; less than 0 where counting
  /// takes longer.
  virtual double predictSaved(int64_t ids, const DeviceRates &device) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_REWRITES_COUNTIDS_H
