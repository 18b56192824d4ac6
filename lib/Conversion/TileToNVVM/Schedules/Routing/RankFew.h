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

/// The arguments of a rank; those of slots as one row of them.
struct RankArguments {
  mlir::Value ids, weights, offsets, position, source, rowWeight;
};

/// Ranks the first `numSlots` slots (of type index), at most `maxSlots`, which
/// are no more than there are threads, with one CTA. `table` is scratch memory
/// for as many i32.
void emitRankFew(ThreadEmitter &emitter, RankIds &experts,
                 const RankArguments &args, mlir::Value numSlots,
                 int64_t maxSlots, int64_t topK, int64_t numLocal,
                 mlir::Value table);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_ROUTING_RANKFEW_H
