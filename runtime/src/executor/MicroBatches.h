//===- MicroBatches.h - a run as two halves of its batch --------*- C++ -*-===//
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

/// The two halves of an executor's batches, each a clone of it with the rows
/// and the streams of its own. Their collectives take turns: what one exchanges
/// is on its way beside what the other computes.
class MicroBatches {
public:
  /// Of `whole`, which owns them and says when they are of no more use: when
  /// what clones share with it is another.
  static Result<std::unique_ptr<MicroBatches>> create(const Executor &whole);

  /// Binds the halves of what `whole` is bound to, and resolves their runs side
  /// by side in `workspace`; answers how much of that they take.
  Result<int64_t> resolve(const Executor &whole, int64_t tokens,
                          WorkspaceView workspace);

  /// Executor::haveResultsMoved() of any of them.
  bool haveResultsMoved() const;

  /// Gives the halves that are resolved to streams. `first` is that of the
  /// first half, and of the caller: all begins behind what it has, and what it
  /// is given next begins behind all.
  Status run(Stream &first);
  /// The same, with `give` for each step.
  Status giveSteps(Stream &first, const Executor::GiveStep &give);

  bool hasReplaced(Replaced made) const;
  Status runReplaced(Replaced made, Stream &stream);

private:
  MicroBatches() = default;

  Status bindRows(const Executor &whole, const BatchHalves &cut);
  Status bindRows(const Executor &whole, size_t tensor, int64_t tokens,
                  const BatchHalves &cut);
  /// Behind the last collective of the turn that begins at step `begin`; all
  /// steps, where there is none.
  size_t findTurnEnd(size_t half, size_t begin) const;
  /// Lets a stream of `half` wait until the other one's latest turn can begin;
  /// once, for those that are `waiting` do.
  Status awaitLaunches(size_t half, Stream &stream,
                       std::vector<const Stream *> &waiting);
  Status giveTurn(size_t half, size_t begin, size_t end, Stream &first,
                  const Executor::GiveStep &give);

  std::array<std::unique_ptr<Executor>, 2> halves;
  /// Recorded where a run begins, behind the latest turn, and where the second
  /// half ends.
  std::unique_ptr<Event> begun, met, ended;
  /// Recorded by each half behind all launches ahead of its latest turn.
  std::array<std::unique_ptr<Event>, 2> launched;
  /// What has been recorded in this run.
  bool hasMet = false;
  std::array<bool, 2> hasLaunched = {};
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_MICROBATCHES_H
