//===- RunLane.cpp - the latest run on one set of streams -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunLane.h"
#include "../support/Check.h"

namespace moert {

Result<RunLane> RunLane::create(std::shared_ptr<const LoadedLayer> layer) {
  Result<RunStreams> streams = RunStreams::create(layer->device, layer->plan);
  if (!streams)
    return streams.status();
  RunLane made(std::move(layer));
  made.ownStreams = std::move(*streams);
  return made;
}

Result<int64_t> RunLane::layOut(int64_t tokens) {
  if (tokens != layoutTokens) {
    const Plan &plan = layer->plan;
    Result<WorkspaceLayout> made =
        layoutWorkspace(plan, plan.variants[plan.findVariant(tokens)], tokens);
    if (!made)
      return made.status();
    layout = std::move(*made);
    layoutTokens = tokens;
  }
  return layout.bytes;
}

static Status checkWorkspace(const RunRequest &request, int64_t bytes) {
  const WorkspaceView &workspace = request.workspace;
  if (workspace.bytes < bytes)
    return invalidArgument(
        "run: the workspace has " + std::to_string(workspace.bytes) +
        " bytes, " + std::to_string(request.tokens) + " tokens need " +
        std::to_string(bytes) + "; allocate what workspaceBytes() returns");
  auto base = reinterpret_cast<uintptr_t>(workspace.data);
  if (bytes > 0 && (base == 0 || base % kWorkspaceAlignment != 0))
    return invalidArgument("run: the workspace's address " +
                           std::to_string(base) + " is not a multiple of " +
                           std::to_string(kWorkspaceAlignment));
  return Status::ok();
}

Status RunLane::resolve(const Bindings &bindings, RunRequest request,
                        TensorMapCache &maps) {
  if (latest && version == bindings.version().layout &&
      latest->serves(request) && latest->moveArguments(request.addresses))
    return Status::ok();
  Result<int64_t> bytes = layOut(request.tokens);
  if (!bytes)
    return bytes.status();
  MOERT_CHECK(checkWorkspace(request, *bytes));
  Result<ResolvedRun> made =
      resolveRun(layer, bindings, layout, std::move(request), maps);
  if (!made)
    return made.status();
  latest = std::move(*made);
  version = bindings.version().layout;
  return Status::ok();
}

} // namespace moert
