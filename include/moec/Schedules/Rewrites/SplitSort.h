//===- SplitSort.h - what split-sort asks of a schedule ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_SPLITSORT_H
#define MOEC_SCHEDULES_REWRITES_SPLITSORT_H

#include "moec/Schedules/Schedules.h"
#include "moec/Schedules/TokenChunks.h"

namespace moec {

/// A schedule of `tile.sort_by_expert` on a GPU whose code reads `counts`.
class ReadsCounts {
public:
  virtual ~ReadsCounts() = default;
  /// The chunks whose slots a `tile.count_slots` may count for a ranking with a
  /// config of this schedule; nothing if that would not pay. `isRouted`:
  /// counted in the kernel that routes these tokens.
  virtual std::optional<TokenChunks> chunks(tile::SortByExpertOp op,
                                            tile::ConfigAttr config,
                                            bool isRouted) const = 0;
  /// Tokens of the chunks whose counts code with `config` reads.
  virtual int64_t getChunkTokens(tile::ConfigAttr config) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_SPLITSORT_H
