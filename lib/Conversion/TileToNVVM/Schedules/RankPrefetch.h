//===- RankPrefetch.h - weights of chosen experts, ahead --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_RANKPREFETCH_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_RANKPREFETCH_H

#include "../../Emission/RankIds.h"
#include "../ThreadEmitter.h"

namespace moec {

/// Where there are few slots: lets the CTAs behind the first one, which ranks
/// them, ask for what `prefetch` of the op names. `ids` are all slots' in a
/// row, of which the first `numSlots` (of type index) count.
void emitRankPrefetch(tile::RankOp op, ThreadEmitter &emitter, RankIds &experts,
                      mlir::Value ids, mlir::Value numSlots);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_RANKPREFETCH_H
