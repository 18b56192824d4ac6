//===- SumOrder.h - the order in which a config adds ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Batch invariance: the bits of a row do not depend on other rows if all
// configs that it may run with add in the same order.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_SUMORDER_H
#define MOEC_SCHEDULES_SUMORDER_H

#include "Schedules.h"

namespace moec {

/// A schedule of gemms that states in which order a config adds. Two configs
/// with equal orders must give a row equal bits, at any place in any tile.
class OrdersSums {
public:
  virtual ~OrdersSums() = default;
  /// Requires that `config` is legal for `op` apart from its `sum_order`.
  virtual tile::SumOrderAttr getSumOrder(tile::GemmOp op,
                                         tile::ConfigAttr config) const = 0;
};

/// The order of a gemm with that config; null if the schedule states none.
tile::SumOrderAttr getSumOrder(tile::GemmOp op, tile::ConfigAttr config,
                               const Target &target);

} // namespace moec

#endif // MOEC_SCHEDULES_SUMORDER_H
