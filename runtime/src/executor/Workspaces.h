//===- Workspaces.h - workspaces of an executor -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_WORKSPACES_H
#define MOERT_SRC_EXECUTOR_WORKSPACES_H

#include "RunOrder.h"
#include "moert/SharedWorkspace.h"

#include <cstdint>
#include <memory>

namespace moert {

/// Memory of an executor's own, for runs of up to `tokens` tokens.
struct OwnWorkspace {
  std::shared_ptr<Buffer> buffer;
  int64_t tokens = -1;

  bool serves(int64_t count) const { return buffer && count <= tokens; }
  WorkspaceView view() const {
    return {buffer->data(), static_cast<int64_t>(buffer->size())};
  }
};

/// The workspaces that an executor's runs use if the caller gives none, and the
/// order of its runs.
struct Workspaces {
  /// Orders runs for which the caller gives no workspace.
  RunOrder &orderOfRuns() const {
    return shared ? shared->order(slot) : *order;
  }

  /// Orders runs in the executor's own workspaces and in the caller's.
  std::unique_ptr<RunOrder> order;
  /// For runs outside graphs, and for captured runs.
  OwnWorkspace own, captured;
  /// Replaces both unless it is null.
  std::shared_ptr<SharedWorkspace> shared;
  int slot = 0;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_WORKSPACES_H
