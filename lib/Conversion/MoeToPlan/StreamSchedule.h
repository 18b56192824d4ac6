//===- StreamSchedule.h - which kernel runs when and where ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_MOETOPLAN_STREAMSCHEDULE_H
#define MOEC_LIB_CONVERSION_MOETOPLAN_STREAMSCHEDULE_H

#include "LayerFunction.h"

namespace moec {

/// A step of the plan, before its IR is created.
struct ScheduledStep {
  enum class Kind { Launch, Record, Wait };
  Kind kind;
  /// The kernel's index for a launch, else the event's.
  int64_t index;
  int64_t stream;
};

/// Orders the kernels of `layer`. Kernels that only the addend of a sum depends
/// on (the shared expert) go to stream 1 as soon as their inputs are available,
/// if stream 0 has work to overlap; the rest stays on stream 0 in program
/// order. If both a dispatch and a combine overlap with it, its last gemm
/// begins with the combine.
llvm::SmallVector<ScheduledStep> scheduleStreams(const LayerFunction &layer);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_MOETOPLAN_STREAMSCHEDULE_H
