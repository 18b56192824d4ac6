//===- RunStreams.h - streams and events of one run -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_RUNSTREAMS_H
#define MOERT_SRC_EXECUTOR_RUNSTREAMS_H

#include "moert/Device.h"
#include "moert/Plan.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace moert {

/// The streams and events of a plan, for one run at a time: an executor has a
/// set, and so has each of its micro-batches. A caller's stream may stand in
/// for stream 0.
struct RunStreams {
  static Result<RunStreams> create(Device &device, const Plan &plan);

  Stream &first() const { return *streams[0]; }
  /// Stream `index` of a run whose first stream is `first`.
  Stream &find(int64_t index, Stream &first) const {
    return index == 0 ? first : *streams[static_cast<size_t>(index)];
  }

  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_RUNSTREAMS_H
