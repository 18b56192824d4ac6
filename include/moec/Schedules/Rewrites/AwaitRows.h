//===- AwaitRows.h - what await-rows asks of a schedule ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_AWAITROWS_H
#define MOEC_SCHEDULES_REWRITES_AWAITROWS_H

#include "moec/Dialect/Tile/Tile.h"

#include <string>

namespace moec {

/// A gemm schedule that can begin with its rows while the launch of its
/// adapters still runs.
class AwaitsRows {
public:
  virtual ~AwaitsRows() = default;
  /// Reason why a gemm cannot; empty if it can.
  virtual std::string whyNotAwaited(tile::GemmOp gemm) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_AWAITROWS_H
