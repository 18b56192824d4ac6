//===- SortFew.h - ranks few slots in one pass ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_SORTFEW_H
#define MOEC_LIB_SCHEDULES_ROUTING_SORTFEW_H

#include "KernelBuilder/ThreadEmitter.h"
#include "SortIds.h"

namespace moec {

/// Arguments of `tile.sort_by_expert`, with slots flattened to one row.
struct RankArguments {
  mlir::Value ids, weights, offsets, position, source, rowWeight;
};

/// Sorts the first `numSlots` slots by expert in one CTA: at most
/// `maxSlots`, which is at most the number of threads. `table`: scratch memory
/// for as many i32.
void emitSortFew(ThreadEmitter &emitter, SortIds &experts,
                 const RankArguments &args, Index numSlots, int64_t maxSlots,
                 int64_t topK, int64_t numLocal, mlir::Value table);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_SORTFEW_H
