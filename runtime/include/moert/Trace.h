//===- Trace.h - when each step of a run was under way ----------*- C++ -*-===//
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
  /// The kernel's; of a collective its kind and axis: "all_gather dp". Of two
  /// micro-batches it begins with "a: " or "b: ".
  std::string name;
  /// The plan's stream that it was given to; streams of the second micro-batch
  /// are numbered behind those of the first.
  int64_t stream = 0;
  /// Seconds since the run began: when the stream came to it, and when it was
  /// done.
  double begin = 0;
  double end = 0;
};

} // namespace moert

#endif // MOERT_TRACE_H
