//===- LatestRun.cpp - the latest run of an executor ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LatestRun.h"
#include "../support/Check.h"

namespace moert {

Result<std::unique_ptr<LatestRun>>
LatestRun::create(std::shared_ptr<const LoadedLayer> layer) {
  Result<RunLane> lane = RunLane::create(layer);
  if (!lane)
    return lane.status();
  return std::unique_ptr<LatestRun>(
      new LatestRun(std::move(layer), std::move(*lane)));
}

void LatestRun::forget() {
  key = Key();
  runsHalves = false;
  lane.forget();
  if (halves)
    halves->forget();
}

Status LatestRun::checkReady(const Bindings &bindings, const LayerRanks &ranks,
                             int64_t tokens) const {
  if (isResolvedFor(bindings, tokens))
    return Status::ok();
  Status status = ranks.checkTokens(tokens);
  if (status)
    status = bindings.checkReady(tokens);
  return status.withContext("run(" + std::to_string(tokens) + ")");
}

bool LatestRun::haveResultsMoved() const {
  return runsHalves ? halves->haveResultsMoved()
                    : lane.run()->haveResultsMoved();
}

Result<int64_t> LatestRun::resolveWhole(Bindings &bindings,
                                        RunRequest request) {
  MOERT_CHECK(lane.resolve(bindings, std::move(request), bindings.mapCache()));
  return lane.run()->workspace.bytes;
}

Result<int64_t> LatestRun::resolveHalves(const Bindings &bindings,
                                         const RunRequest &request) {
  if (!halves) {
    Result<std::unique_ptr<MicroBatchRunner>> made =
        MicroBatchRunner::create(layer);
    if (!made)
      return made.status();
    halves = std::move(*made);
  }
  return halves->resolve(bindings, request);
}

Status LatestRun::resolve(Bindings &bindings, const LayerRanks &ranks,
                          int64_t tokens, WorkspaceView workspace) {
  if (isResolvedFor(bindings, tokens) &&
      key.bindings.moves == bindings.version().moves &&
      workspace.data == key.workspace.data &&
      workspace.bytes >= key.workspace.bytes && !haveResultsMoved())
    return Status::ok();
  MOERT_CHECK(checkReady(bindings, ranks, tokens));
  Result<bool> isHalved = ranks.isHalved(tokens);
  if (!isHalved)
    return isHalved.status();
  key = Key();
  runsHalves = *isHalved;
  RunRequest request;
  request.tokens = tokens;
  request.workspace = workspace;
  request.addresses = bindings.findAddresses();
  request.communicator = ranks.communicator.get();
  request.resultBytes = ranks.resultBytes;
  Result<int64_t> bytes = runsHalves
                              ? resolveHalves(bindings, request)
                              : resolveWhole(bindings, std::move(request));
  if (!bytes)
    return bytes.status();
  workspace.bytes = *bytes;
  MOERT_CHECK(bindings.checkOverlap(tokens, workspace));
  key = {tokens, workspace, bindings.version()};
  return Status::ok();
}

Status LatestRun::enqueue(Stream &first) {
  bool isPoisoned = layer->options.poison;
  if (runsHalves) {
    if (isPoisoned)
      MOERT_CHECK(halves->poison(first));
    return halves->enqueue(first);
  }
  if (isPoisoned)
    MOERT_CHECK(lane.run()->poison(first));
  return lane.run()->enqueue(lane.streams(), first);
}

Status LatestRun::giveSteps(Stream &first, const GiveStep &give) {
  if (runsHalves)
    return halves->giveSteps(first, give);
  const ResolvedRun &run = *lane.run();
  for (size_t i = 0; i < run.steps.size(); ++i)
    MOERT_CHECK(give(run, i, lane.streams(), first));
  return Status::ok();
}

bool LatestRun::hasReplaced(Replaced made) const {
  if (key.tokens < 0)
    return false;
  return runsHalves ? halves->hasReplaced(made) : lane.run()->hasReplaced(made);
}

Status LatestRun::enqueueReplaced(Replaced made, Stream &stream) const {
  if (key.tokens < 0)
    return Status::ok();
  return runsHalves ? halves->enqueueReplaced(made, stream)
                    : lane.run()->enqueueReplaced(made, stream);
}

} // namespace moert
