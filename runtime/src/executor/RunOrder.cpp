//===- RunOrder.cpp - serializes runs in one workspace ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunOrder.h"
#include "../support/Check.h"

namespace moert {

Result<std::unique_ptr<RunOrder>> RunOrder::create(Device &device) {
  std::unique_ptr<RunOrder> made(new RunOrder(device));
  for (Latest *latest : {&made->done, &made->captured}) {
    Result<std::unique_ptr<Event>> event = device.createEvent();
    if (!event)
      return event.status();
    latest->end = std::move(*event);
  }
  return made;
}

Status RunOrder::wait(const Latest &latest, Stream &stream,
                      const StreamState &state) {
  // An event can only be waited for in the capture in which it was recorded.
  bool isOrdered = !latest.isRecorded ||
                   latest.stream.capture != state.capture ||
                   (state.id != 0 && latest.stream.id == state.id);
  return isOrdered ? Status::ok() : device.wait(stream, *latest.end);
}

Status RunOrder::record(Latest &latest, Stream &stream,
                        const StreamState &state) {
  latest.isRecorded = false;
  MOERT_CHECK(device.record(stream, *latest.end));
  latest.stream = state;
  latest.isRecorded = true;
  return Status::ok();
}

Status RunOrder::await(Stream &stream) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!done.isRecorded)
    return Status::ok();
  Result<StreamState> state = device.inspect(stream);
  if (!state)
    return state.status();
  return wait(done, stream, *state);
}

} // namespace moert
