//===- PermuteRows.h - what permute-rows asks of a schedule -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_REWRITES_PERMUTEROWS_H
#define MOEC_ANALYSIS_REWRITES_PERMUTEROWS_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// Of a schedule of products on a GPU that can read rows in order by maps.
class PermutesRows {
public:
  virtual ~PermutesRows() = default;
  /// The config of `permuted`, which is a product with a config of this
  /// schedule, but for its rows, which `gather` has brought into order; null if
  /// it cannot, or if it is expected to take longer than `product` does, which
  /// finds them by `source`. That is not asked for with `always`. With
  /// `isFixed` the config that it has, by tensor maps, and only with `always`.
  virtual tile::ConfigAttr
  permuteRows(tile::ContractOp product, tile::GatherRowsOp gather,
              tile::ContractOp permuted, tile::LoadAttr load, bool isFixed,
              bool always, const Target &target) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_REWRITES_PERMUTEROWS_H
