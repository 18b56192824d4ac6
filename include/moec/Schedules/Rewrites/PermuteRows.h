//===- PermuteRows.h - what permute-rows asks of a schedule -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_PERMUTEROWS_H
#define MOEC_SCHEDULES_REWRITES_PERMUTEROWS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A gemm schedule on a GPU that can load permuted rows by tensor maps.
class PermutesRows {
public:
  virtual ~PermutesRows() = default;
  /// The config with rows by tensor maps, and whether a config has them.
  virtual tile::ConfigAttr withMaps(tile::ConfigAttr config) const = 0;
  virtual bool hasMaps(tile::ConfigAttr config) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_PERMUTEROWS_H
