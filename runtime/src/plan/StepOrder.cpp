//===- StepOrder.cpp - order of a variant's steps ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepOrder.h"

#include <algorithm>

namespace moert {

StepOrder::StepOrder(int64_t numStreams, int64_t numEvents)
    : counts(numStreams), streamClocks(numStreams, Clock(numStreams)),
      eventClocks(numEvents) {}

bool StepOrder::append(const Step &step) {
  Clock &clock = streamClocks[step.stream];
  if (step.kind == Step::Kind::WaitEvent) {
    const Clock &recorded = eventClocks[step.event];
    if (recorded.empty())
      return false;
    for (size_t i = 0; i < clock.size(); ++i)
      clock[i] = std::max(clock[i], recorded[i]);
  }
  stepClocks.push_back(clock);
  stepStreams.push_back(step.stream);
  stepNumbers.push_back(++counts[step.stream]);
  clock[step.stream] = counts[step.stream];
  if (step.kind == Step::Kind::RecordEvent)
    eventClocks[step.event] = clock;
  return true;
}

bool StepOrder::before(size_t a, size_t b) const {
  return stepClocks[b][stepStreams[a]] >= stepNumbers[a];
}

bool StepOrder::beforeNext(size_t a, int64_t stream) const {
  return streamClocks[stream][stepStreams[a]] >= stepNumbers[a];
}

} // namespace moert
