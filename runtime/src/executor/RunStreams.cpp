//===- RunStreams.cpp - streams and events of one run -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunStreams.h"

namespace moert {

Result<RunStreams> RunStreams::create(Device &device, const Plan &plan) {
  RunStreams made;
  for (int64_t i = 0; i < plan.numStreams; ++i) {
    Result<std::unique_ptr<Stream>> stream = device.createStream();
    if (!stream)
      return stream.status();
    made.streams.push_back(std::move(*stream));
  }
  for (int64_t i = 0; i < plan.numEvents; ++i) {
    Result<std::unique_ptr<Event>> event = device.createEvent();
    if (!event)
      return event.status();
    made.events.push_back(std::move(*event));
  }
  return made;
}

} // namespace moert
