//===- GatherReduce.h - sums by threads of another kernel -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_GATHERREDUCE_GATHERREDUCE_H
#define MOEC_LIB_SCHEDULES_GATHERREDUCE_GATHERREDUCE_H

#include "KernelBuilder/ThreadEmitter.h"

namespace moec {

/// What thread `thread` of CTA `cta` does in a launch of gpu.gather_reduce.
/// Whole warps.
void emitGatherReduceOf(tile::GatherReduceOp op, ThreadEmitter &emitter,
                        Index cta, I32 thread);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_GATHERREDUCE_GATHERREDUCE_H
