//===- SplitLargeGroups.h - what is asked of a schedule ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_REWRITES_SPLITLARGEGROUPS_H
#define MOEC_ANALYSIS_REWRITES_SPLITLARGEGROUPS_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// A schedule of products on a GPU whose code tells groups apart by their rows.
class SplitsLargeGroups {
public:
  virtual ~SplitsLargeGroups() = default;
  /// From how many rows on a group may have a launch of its own, behind that of
  /// a product with a config of this schedule.
  virtual int64_t getLargeGroupRows(tile::ContractOp product,
                                    tile::LoadAttr load) const = 0;
  /// The config of least time of `large`, which is `product` for groups with a
  /// `min` in `group_rows` alone; that of `product` where none takes less.
  virtual tile::ConfigAttr chooseLargeGroups(tile::ContractOp product,
                                             tile::ContractOp large,
                                             tile::LoadAttr load,
                                             const Target &target) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_REWRITES_SPLITLARGEGROUPS_H
