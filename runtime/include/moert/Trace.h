//===- Trace.h - times of the steps of a run --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_TRACE_H
#define MOERT_TRACE_H

#include <cstdint>
#include <string>

namespace moert {

/// A launch or a collective of a run.
struct TracedStep {
  /// The kernel's name, or the kind and axis of a collective: "all_gather dp".
  /// With two micro-batches the name begins with "a: " or "b: ".
  std::string name;
  /// Index of the plan's stream; streams of the second micro-batch are numbered
  /// after those of the first.
  int64_t stream = 0;
  /// Seconds since the begin of the run at which the stream reached the step
  /// and at which the step ended.
  double begin = 0;
  double end = 0;
};

} // namespace moert

#endif // MOERT_TRACE_H
