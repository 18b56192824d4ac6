//===- MicroBatches.h - a run as two halves of a batch ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_MICROBATCHES_H
#define MOERT_SRC_EXECUTOR_MICROBATCHES_H

#include "../plan/BatchHalves.h"
#include "moert/Executor.h"

#include <array>
#include <memory>
#include <vector>

namespace moert {

/// The two halves of an executor's batches, each a clone with rows and streams
/// of its own. Collectives of the halves alternate: one half communicates while
/// the other computes.
class MicroBatches {
public:
  /// Makes halves of `whole`, which owns them and destroys them when state that
  /// clones share with it changes.
  static Result<std::unique_ptr<MicroBatches>> create(const Executor &whole);

  /// Binds the halves of the rows bound to `whole`, and resolves their runs in
  /// separate parts of `workspace`; returns the bytes used.
  Result<int64_t> resolve(const Executor &whole, int64_t tokens,
                          WorkspaceView workspace);

  /// Executor::haveResultsMoved() of either half.
  bool haveResultsMoved() const;

  /// Enqueues the resolved halves. `first` is the caller's stream and the first
  /// stream of the first half: both halves begin after its earlier work, and
  /// its later work begins after both.
  Status run(Stream &first);
  /// Like run(), with `give` called for each step.
  Status giveSteps(Stream &first, const Executor::GiveStep &give);

  bool hasReplaced(Replaced made) const;
  Status runReplaced(Replaced made, Stream &stream);

private:
  MicroBatches() = default;

  Status bindRows(const Executor &whole, const BatchHalves &cut);
  Status bindRows(const Executor &whole, size_t tensor, int64_t tokens,
                  const BatchHalves &cut);
  /// The index after the last collective of the group that begins at step
  /// `begin`; the number of steps if there is no collective.
  size_t findTurnEnd(size_t half, size_t begin) const;
  /// Makes a stream of `half` wait until the other half's latest collectives
  /// can begin; once for each of the streams in `waiting`.
  Status awaitLaunches(size_t half, Stream &stream,
                       std::vector<const Stream *> &waiting);
  Status giveTurn(size_t half, size_t begin, size_t end, Stream &first,
                  const Executor::GiveStep &give);

  std::array<std::unique_ptr<Executor>, 2> halves;
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

#endif // MOERT_SRC_EXECUTOR_MICROBATCHES_H
