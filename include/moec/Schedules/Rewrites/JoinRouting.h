//===- JoinRouting.h - what join-routing asks of schedules ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_JOINROUTING_H
#define MOEC_SCHEDULES_REWRITES_JOINROUTING_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A schedule of sorts on a GPU that each CTA of a kernel can run for itself,
/// behind the routing of the same tokens.
class SortsInEachCta {
public:
  struct Configs {
    tile::ConfigAttr routing, sort;
    /// Static shared memory of both phases, without their results.
    int64_t sharedBytes;
  };

  virtual ~SortsInEachCta() = default;
  /// Configs for CTAs of `threads` that each route and sort all of up to
  /// `tokens` tokens; nothing if there are none.
  virtual std::optional<Configs> sortInEachCta(tile::TopKOp routing,
                                               tile::SortByExpertOp sort,
                                               int64_t tokens,
                                               int64_t threads) const = 0;
};

/// A gemm schedule on a GPU whose CTAs can build their tables from a sort that
/// each has made in its own memory.
class FollowsSort {
public:
  virtual ~FollowsSort() = default;
  /// The config with less shared memory; null if there is none.
  virtual tile::ConfigAttr shrink(tile::GemmOp op) const = 0;
};

/// A gemm schedule on a GPU that sets `cleared` to 0.
class ClearsCounters {
public:
  virtual ~ClearsCounters() = default;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_JOINROUTING_H
