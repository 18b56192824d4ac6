//===- JoinSums.h - what join-sums asks of a schedule -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_JOINSUMS_H
#define MOEC_SCHEDULES_REWRITES_JOINSUMS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A gemm schedule on a GPU whose CTAs can wait for each other and then add the
/// rows of the result by token.
class JoinsSums {
public:
  virtual ~JoinsSums() = default;
  /// Reason why `sums` cannot be the last phase of the kernel of `product`;
  /// empty if it can. Both have a config.
  virtual std::string whyApart(tile::GemmOp product, tile::GatherReduceOp sums,
                               tile::LoadAttr load) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_JOINSUMS_H
