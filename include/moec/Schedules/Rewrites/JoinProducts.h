//===- JoinProducts.h - what join-products asks of a schedule ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_JOINPRODUCTS_H
#define MOEC_SCHEDULES_REWRITES_JOINPRODUCTS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A gemm schedule on a GPU that can join two gemms in one kernel.
class JoinsProducts {
public:
  virtual ~JoinsProducts() = default;
  /// Configs that join two gemms, which have configs of this schedule: the
  /// fastest for the load or, with `areFixed`, their present ones. Nothing if
  /// there are none, or if scales are copied with each k tile without
  /// `mayCopyScales`.
  virtual std::optional<JoinedConfigs>
  join(tile::GemmOp first, tile::GemmOp second, tile::LoadAttr load,
       bool areFixed, bool mayCopyScales, const Target &target) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_JOINPRODUCTS_H
