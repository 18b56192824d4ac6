//===- SplitLargeGroups.h - what is asked of a schedule ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_SPLITLARGEGROUPS_H
#define MOEC_SCHEDULES_REWRITES_SPLITLARGEGROUPS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A gemm schedule on a GPU whose code can select groups by their number of
/// rows.
class SplitsLargeGroups {
public:
  virtual ~SplitsLargeGroups() = default;
  /// Least number of rows of a group that may have a launch of its own, behind
  /// that of a gemm with a config of this schedule.
  virtual int64_t getLargeGroupRows(tile::GemmOp product,
                                    tile::LoadAttr load) const = 0;
  /// The fastest config of `large`, which is `product` for only the groups with
  /// a `min` in `group_rows`; the config of `product` if none is faster.
  virtual tile::ConfigAttr chooseLargeGroups(tile::GemmOp product,
                                             tile::GemmOp large,
                                             tile::LoadAttr load,
                                             const Target &target) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_SPLITLARGEGROUPS_H
