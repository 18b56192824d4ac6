//===- RunLane.h - the latest run on one set of streams ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_RUNLANE_H
#define MOERT_SRC_EXECUTOR_RUNLANE_H

#include "ResolvedRun.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace moert {

/// Streams for one run at a time, and the latest run that was resolved for
/// them, kept since the next one is usually the same. Calls are made one at a
/// time.
class RunLane {
public:
  static Result<RunLane> create(std::shared_ptr<const LoadedLayer> layer);

  /// Lays out the workspace and returns its bytes.
  Result<int64_t> layOut(int64_t tokens);
  /// Resolves the run, unless the latest one differs at most in addresses of
  /// inputs and outputs that it can take. A failure keeps the latest run.
  Status resolve(const Bindings &bindings, RunRequest request,
                 TensorMapCache &maps);

  /// Null before the first run.
  const ResolvedRun *run() const { return latest ? &*latest : nullptr; }
  const RunStreams &streams() const { return ownStreams; }
  /// Drops the latest run, whose memory is about to be freed.
  void forget() { latest.reset(); }

private:
  explicit RunLane(std::shared_ptr<const LoadedLayer> layer)
      : layer(std::move(layer)) {}

  std::shared_ptr<const LoadedLayer> layer;
  RunStreams ownStreams;
  std::optional<ResolvedRun> latest;
  /// BindingsVersion::layout of the latest run.
  uint64_t version = 0;
  /// For `layoutTokens` tokens, -1 if there is none yet.
  WorkspaceLayout layout;
  int64_t layoutTokens = -1;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_RUNLANE_H
