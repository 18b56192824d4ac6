//===- StepOrder.h - order of a variant's steps -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_STEPORDER_H
#define MOERT_SRC_PLAN_STEPORDER_H

#include "moert/Plan.h"

#include <cstdint>
#include <vector>

namespace moert {

/// The order of a variant's steps by streams and events, as vector clocks.
/// Built step by step; indices are in range.
class StepOrder {
public:
  StepOrder(int64_t numStreams, int64_t numEvents);

  /// Appends the next step; false if it waits for an event that no earlier step
  /// records.
  bool append(const Step &step);

  /// True if step `a` is complete before step `b` begins.
  bool before(size_t a, size_t b) const;

  /// True if the next step on `stream` would come after step `a`.
  bool beforeNext(size_t a, int64_t stream) const;

  /// True if `stream` has a step so far.
  bool started(int64_t stream) const { return counts[stream] > 0; }

private:
  /// Per stream, the number of its steps that are complete.
  using Clock = std::vector<int64_t>;

  std::vector<int64_t> counts;
  /// Per stream: the clock at the begin of its next step.
  std::vector<Clock> streamClocks;
  /// Per event: the clock of its latest record; empty before the first.
  std::vector<Clock> eventClocks;
  /// Per step.
  std::vector<Clock> stepClocks;
  std::vector<int64_t> stepStreams;
  std::vector<int64_t> stepNumbers;
};

} // namespace moert

#endif // MOERT_SRC_PLAN_STEPORDER_H
