//===- RunOrder.h - serializes runs in one workspace ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_RUNORDER_H
#define MOERT_SRC_EXECUTOR_RUNORDER_H

#include "moert/Device.h"

#include <memory>
#include <mutex>
#include <optional>

namespace moert {

/// Serializes the runs that use one workspace, whatever streams and threads
/// they come from. A run on another stream than the previous run waits for it
/// on the device. Captured runs wait only for runs of the same capture: the
/// caller orders replays of the graph.
class RunOrder {
public:
  static Result<std::unique_ptr<RunOrder>> create(Device &device);

  /// Calls `give`, which enqueues a run on `stream`, under a lock.
  template <typename Give>
  Status run(Stream &stream, const StreamState &state, Give give) {
    std::lock_guard<std::mutex> lock(mutex);
    Latest &latest = state.capture ? captured : done;
    if (Status status = wait(latest, stream, state); !status)
      return status;
    Status given = give();
    // Record even on failure: steps already enqueued use the workspace.
    Status recorded = record(latest, stream, state);
    return given ? recorded : given;
  }

  /// Makes `stream` wait for the latest run outside of graphs.
  Status await(Stream &stream);

private:
  /// The latest run, of captured runs or of all others.
  struct Latest {
    std::unique_ptr<Event> end;
    bool isRecorded = false;
    StreamState stream;
  };

  explicit RunOrder(Device &device) : device(device) {}

  Status wait(const Latest &latest, Stream &stream, const StreamState &state);
  Status record(Latest &latest, Stream &stream, const StreamState &state);

  Device &device;
  std::mutex mutex;
  Latest done, captured;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_RUNORDER_H
