//===- SplitHeavy.h - what split-heavy asks of a schedule -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_REWRITES_SPLITHEAVY_H
#define MOEC_ANALYSIS_REWRITES_SPLITHEAVY_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// Of a schedule of products on a GPU whose code tells groups apart by their
/// rows.
class SplitsHeavy {
public:
  virtual ~SplitsHeavy() = default;
  /// From how many rows on a group has a launch of its own, behind that of a
  /// product with a config of this schedule, if `splitHeavy` says so.
  virtual int64_t getHeavyRows(tile::ContractOp product,
                               tile::LoadAttr load) const = 0;
  /// The config of `heavy`, which is `product` for groups with
  /// `min_group_rows` or more alone; null if it is not expected to take less
  /// time for such groups, or if one more launch is expected to take too much
  /// where there are none. That is not asked for with `always`.
  virtual tile::ConfigAttr splitHeavy(tile::ContractOp product,
                                      tile::ContractOp heavy,
                                      tile::LoadAttr load, bool always,
                                      const Target &target) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_REWRITES_SPLITHEAVY_H
