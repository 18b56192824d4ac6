//===- ResolvedRun.h - a run, evaluated -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_RESOLVEDRUN_H
#define MOERT_SRC_EXECUTOR_RESOLVEDRUN_H

#include "Bindings.h"
#include "LoadedLayer.h"
#include "RunStreams.h"
#include "TensorMapCache.h"
#include "moert/Communicator.h"
#include "moert/SharedWorkspace.h"
#include "moert/Trace.h"
#include "moert/Workspace.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moert {

/// Tokens, memory and options that a run is resolved for.
struct RunRequest {
  /// The sum over all ranks with tokens of their own.
  int64_t tokens = 0;
  WorkspaceView workspace = {};
  /// Per plan tensor: Bindings::addressOf(), or where a half's rows begin.
  std::vector<void *> addresses = {};
  /// For the collectives; outlives the run. Null for a plan of one rank.
  Communicator *communicator = nullptr;
  /// Per axis, in bytes of the communicator's results(): where the run's part
  /// begins, and the size reserved.
  std::array<int64_t, 2> resultBegins = {}, resultBytes = {};
  /// For one of two micro-batches: which half.
  std::optional<size_t> half = {};
};

/// Prefix of the names of a run's steps.
inline const char *halfPrefix(std::optional<size_t> half) {
  return !half ? "" : *half == 0 ? "a: " : "b: ";
}

/// A step, fully evaluated.
struct ResolvedStep {
  Step::Kind kind = Step::Kind::Launch;
  /// Indices into RunStreams.
  int64_t stream = 0, event = -1;
  Kernel *kernel = nullptr;
  LaunchDims dims = {};
  /// Ranges of ResolvedRun::args and ResolvedRun::maps.
  size_t firstArg = 0, numArgs = 0;
  size_t firstMap = 0, numMaps = 0;
  /// For a collective; its parts are in ResolvedRun::parts.
  Collective collective = {};
  size_t firstPart = 0;
  /// For a launch: the results that the kernel of a collective may compute
  /// instead (Step::replacedStep).
  std::optional<Replaced> replaced = {};
  /// For a collective: a chunk of a larger collective, and not the last one.
  bool isFollowed = false;
};

/// The prepare steps, or a variant's steps for one count of tokens: offsets,
/// grids, scalars, addresses and tensor maps, resolved once and enqueued as
/// often as wanted. A value: copies are independent. Owns no memory that its
/// addresses refer to, and no stream. Like the calls of its communicator, those
/// that enqueue are made one at a time.
struct ResolvedRun {
  /// An argument slot that holds the address of an input or output.
  struct MovableArgument {
    size_t tensor;
    /// Index into `args`.
    size_t index;
  };

  /// Whether the run is the one that is requested, inputs and outputs possibly
  /// at other addresses.
  bool serves(const RunRequest &request) const;
  /// Whether results() of the communicator have moved since. All ranks use the
  /// newest results(), whatever each has resolved.
  bool haveResultsMoved() const;
  /// Takes other addresses of inputs and outputs. Returns false, and changes
  /// nothing, if tensor maps or collectives hold one of those that differ.
  bool moveArguments(const std::vector<void *> &moved);

  /// "variants[0].steps[4]", behind "a: " or "b: " for a half of a batch.
  std::string nameStep(size_t step) const {
    return where + "[" + std::to_string(step) + "]";
  }
  /// A launch or collective, without times.
  TracedStep describe(size_t step) const;
  /// Whether there are launches whose results, of that kind, collectives may
  /// compute instead.
  bool hasReplaced(Replaced made) const;

  /// Whether the step is skipped: it has no CTAs, or a collective does its work
  /// on the communicator as it is now.
  bool isLeftOut(const ResolvedStep &step) const;
  /// Whether ranks communicate in the step.
  bool isExchange(const ResolvedStep &step) const {
    return step.kind == Step::Kind::Collective && !isLeftOut(step);
  }

  /// Enqueues all steps; `first` stands in for stream 0.
  Status enqueue(const RunStreams &streams, Stream &first) const;
  Status enqueueStep(size_t step, const RunStreams &streams,
                     Stream &first) const;
  /// Enqueues only the launches that hasReplaced() asks for.
  Status enqueueReplaced(Replaced made, Stream &stream) const;
  /// Fills workspace and outputs with 0xFF bytes (NaN).
  Status poison(Stream &stream) const;

  std::shared_ptr<const LoadedLayer> layer;
  Communicator *communicator = nullptr;
  int64_t tokens = 0;
  /// Index into Plan::variants; -1 for the prepare steps.
  int64_t variant = -1;
  std::optional<size_t> half;
  /// "variants[0].steps" with the prefix of a half, or "prepare".
  std::string where;
  /// The part of the workspace that the run uses.
  WorkspaceView workspace;
  /// Per axis, in bytes of results(): the part that the run uses.
  std::array<int64_t, 2> resultBegins = {}, resultEnds = {};
  /// Per axis: the results() that the run uses; null if it uses none.
  std::array<void *, 2> results = {};
  /// Per plan tensor; null if the run does not use it.
  std::vector<void *> addresses;
  /// Per plan tensor: whether copy engines move it into results(), and whether
  /// tensor maps or collectives hold its address too.
  std::vector<bool> isCopied, isEncoded;
  std::vector<ResolvedStep> steps;
  /// 64-bit argument slots, tensor maps and parts of all steps.
  std::vector<uint64_t> args;
  std::vector<TensorMap> maps;
  std::vector<CollectivePart> parts;
  std::vector<MovableArgument> movable;

private:
  Status launch(const ResolvedStep &step, const LaunchDims &dims,
                Stream &stream) const;
};

/// Resolves a run whose workspace has the layout; tensor maps are taken from
/// the cache, or added to it. The tensors of `bindings` are ready
/// (Bindings::checkReady()).
Result<ResolvedRun> resolveRun(std::shared_ptr<const LoadedLayer> layer,
                               const Bindings &bindings,
                               const WorkspaceLayout &layout,
                               RunRequest request, TensorMapCache &maps);

/// Resolves the prepare steps.
Result<ResolvedRun> resolvePrepare(std::shared_ptr<const LoadedLayer> layer,
                                   const Bindings &bindings,
                                   TensorMapCache &maps);

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_RESOLVEDRUN_H
