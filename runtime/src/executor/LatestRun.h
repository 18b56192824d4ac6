//===- LatestRun.h - the latest run of an executor --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_LATESTRUN_H
#define MOERT_SRC_EXECUTOR_LATESTRUN_H

#include "LayerRanks.h"
#include "MicroBatchRunner.h"

#include <cstdint>
#include <memory>

namespace moert {

/// The latest run of an executor, as a whole or as two micro-batches: resolved
/// once, and enqueued as often as it is called for. Calls are made one at a
/// time.
class LatestRun {
public:
  static Result<std::unique_ptr<LatestRun>>
  create(std::shared_ptr<const LoadedLayer> layer);

  /// Success if a run of `tokens` tokens has all that it needs, except a
  /// workspace; an error names the run.
  Status checkReady(const Bindings &bindings, const LayerRanks &ranks,
                    int64_t tokens) const;
  /// Resolves the run, unless the latest one is the same. After a failure
  /// nothing can be enqueued.
  Status resolve(Bindings &bindings, const LayerRanks &ranks, int64_t tokens,
                 WorkspaceView workspace);
  /// Drops the latest run, whose memory is about to be freed.
  void forget();

  /// Token count of the latest run, -1 if there is none.
  int64_t tokens() const { return key.tokens; }
  /// Whether the latest run is two micro-batches.
  bool isHalved() const { return runsHalves; }
  /// The latest run, unless it is halved or there is none; else null.
  const ResolvedRun *whole() const { return runsHalves ? nullptr : lane.run(); }
  const RunStreams &streams() const { return lane.streams(); }

  Status enqueue(Stream &first);
  /// Calls `give` for each step.
  Status giveSteps(Stream &first, const GiveStep &give);
  bool hasReplaced(Replaced made) const;
  Status enqueueReplaced(Replaced made, Stream &stream) const;

private:
  /// Tokens and memory that the latest run was resolved for.
  struct Key {
    int64_t tokens = -1;
    WorkspaceView workspace = {};
    BindingsVersion bindings = {};
  };

  explicit LatestRun(std::shared_ptr<const LoadedLayer> layer, RunLane lane)
      : layer(std::move(layer)), lane(std::move(lane)) {}

  bool isResolvedFor(const Bindings &bindings, int64_t tokens) const {
    return key.tokens >= 0 && tokens == key.tokens &&
           key.bindings.layout == bindings.version().layout;
  }
  bool haveResultsMoved() const;
  /// Returns the bytes used of the workspace.
  Result<int64_t> resolveWhole(Bindings &bindings, RunRequest request);
  Result<int64_t> resolveHalves(const Bindings &bindings,
                                const RunRequest &request);

  std::shared_ptr<const LoadedLayer> layer;
  /// For runs as a whole.
  RunLane lane;
  /// Null before the first run as two micro-batches.
  std::unique_ptr<MicroBatchRunner> halves;
  bool runsHalves = false;
  Key key;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_LATESTRUN_H
