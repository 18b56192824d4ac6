//===- Emit.h - the schedules of the CPU ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Entry points of CPU emission: one function per op of the tile dialect, which
// writes the body of its kernel for one CTA.

#ifndef MOEC_LIB_SCHEDULES_CPU_EMIT_H
#define MOEC_LIB_SCHEDULES_CPU_EMIT_H

#include "KernelBuilder/KernelEmitter.h"
#include "KernelBuilder/Phase.h"

namespace moec {

/// Fails with a diagnostic unless `lanes` is a supported vector length: 4, 8 or
/// 16.
mlir::LogicalResult requireLanes(mlir::Operation *op, int64_t lanes);

// Schedules. Each emits the work of one CTA at the emitter's position, and
// fails with a diagnostic on a config that it cannot emit.
#define MOEC_CPU_SCHEDULE(NAME, OP)                                            \
  mlir::LogicalResult emit##NAME(tile::OP op, KernelEmitter &emitter);
#include "moec/Schedules/Schedules.def"

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_CPU_EMIT_H
