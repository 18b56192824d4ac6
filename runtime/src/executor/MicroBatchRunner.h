//===- MicroBatchRunner.h - runs two halves interleaved ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_MICROBATCHRUNNER_H
#define MOERT_SRC_EXECUTOR_MICROBATCHRUNNER_H

#include "../plan/BatchHalves.h"
#include "RunLane.h"

#include <array>
#include <functional>
#include <memory>
#include <vector>

namespace moert {

/// Executes step number `size_t` of a run on its streams, with `Stream` as the
/// first of them.
using GiveStep = std::function<Status(const ResolvedRun &, size_t,
                                      const RunStreams &, Stream &)>;

/// Runs a batch as two halves, each a resolved run on streams of its own.
/// Collectives of the halves alternate: one half communicates while the other
/// computes. Calls are made one at a time.
class MicroBatchRunner {
public:
  static Result<std::unique_ptr<MicroBatchRunner>>
  create(std::shared_ptr<const LoadedLayer> layer);

  /// Resolves both halves of the rows at `whole.addresses`, in separate parts
  /// of the workspace; returns the bytes used.
  Result<int64_t> resolve(const Bindings &bindings, const RunRequest &whole);

  /// ResolvedRun::haveResultsMoved() of either half.
  bool haveResultsMoved() const;
  /// ResolvedRun::hasReplaced() of either half.
  bool hasReplaced(Replaced made) const;

  /// Enqueues the resolved halves. `first` is the caller's stream and the first
  /// stream of the first half: both halves begin after its earlier work, and
  /// its later work begins after both.
  Status enqueue(Stream &first);
  /// Like enqueue(), with `give` called for each step.
  Status giveSteps(Stream &first, const GiveStep &give);
  Status enqueueReplaced(Replaced made, Stream &stream) const;
  Status poison(Stream &first) const;
  void forget();

private:
  explicit MicroBatchRunner(std::shared_ptr<const LoadedLayer> layer)
      : layer(std::move(layer)) {}

  /// Per half: the addresses of its rows.
  Result<std::array<std::vector<void *>, 2>>
  splitRows(const Bindings &bindings, const RunRequest &whole,
            const BatchHalves &halves) const;
  Status checkWorkspace(const RunRequest &whole,
                        const std::array<int64_t, 2> &bytes) const;
  const ResolvedRun &run(size_t half) const { return *lanes[half].run(); }
  /// The index after the last collective of the group that begins at step
  /// `begin`; the number of steps if there is no collective.
  size_t findGroupEnd(size_t half, size_t begin) const;
  /// Makes a stream of `half` wait until the other half's latest collectives
  /// can begin; once for each of the streams in `waiting`.
  Status awaitLaunches(size_t half, Stream &stream,
                       std::vector<const Stream *> &waiting);
  Status giveGroup(size_t half, size_t begin, size_t end, Stream &first,
                   const GiveStep &give);

  std::shared_ptr<const LoadedLayer> layer;
  std::vector<RunLane> lanes;
  /// Per half, since their rows and workspaces differ.
  std::array<TensorMapCache, 2> maps;
  /// Recorded at the begin of a run, after the latest group of collectives, and
  /// at the end of the second half.
  std::unique_ptr<Event> begun, met, ended;
  /// Recorded by each half after all launches ahead of its latest group of
  /// collectives.
  std::array<std::unique_ptr<Event>, 2> launched;
  /// Events recorded in this run.
  bool hasMet = false;
  std::array<bool, 2> hasLaunched = {};
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_MICROBATCHRUNNER_H
