//===- RunOrder.h - runs of one workspace follow each other --- -*- C++ -*-===//
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

/// Orders the runs that use one workspace, whatever streams and threads give
/// them. A run on another stream than the run before waits for that run, on the
/// device. Runs that are captured wait for runs of the same capture alone: the
/// caller orders replays of the graph.
class RunOrder {
public:
  static Result<std::unique_ptr<RunOrder>> create(Device &device);

  /// Calls `give`, which gives a run to `stream`. Threads take turns.
  template <typename Give>
  Status run(Stream &stream, const StreamState &state, Give give) {
    std::lock_guard<std::mutex> lock(mutex);
    Latest &latest = state.capture ? captured : done;
    if (Status status = wait(latest, stream, state); !status)
      return status;
    Status given = give();
    // Also where steps are missing: those that were given use the workspace.
    Status recorded = record(latest, stream, state);
    return given ? recorded : given;
  }

  /// Lets `stream` wait for the latest run outside of graphs.
  Status await(Stream &stream);

private:
  /// The latest run of a kind.
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
