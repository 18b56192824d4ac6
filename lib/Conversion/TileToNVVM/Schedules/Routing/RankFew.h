//===- RankFew.h - ranks few slots in one pass ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_RANKFEW_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_RANKFEW_H

#include "../../../Emission/RankIds.h"
#include "../../ThreadEmitter.h"

namespace moec {

/// Arguments of `tile.rank`, with slots flattened to one row.
struct RankArguments {
  mlir::Value ids, weights, offsets, position, source, rowWeight;
};

/// Sorts the first `numSlots` slots (index) by expert in one CTA: at most
/// `maxSlots`, which is at most the number of threads. `table`: scratch memory
/// for as many i32.
void emitRankFew(ThreadEmitter &emitter, RankIds &experts,
                 const RankArguments &args, mlir::Value numSlots,
                 int64_t maxSlots, int64_t topK, int64_t numLocal,
                 mlir::Value table);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_RANKFEW_H
