//===- SharedWorkspace.h - workspace that layers share ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SHAREDWORKSPACE_H
#define MOERT_SHAREDWORKSPACE_H

#include "moert/Device.h"
#include "moert/Workspace.h"

#include <array>
#include <cstdint>
#include <memory>

namespace moert {

class RunOrder;

/// Workspace that the caller owns, aligned to kWorkspaceAlignment.
struct WorkspaceView {
  void *data = nullptr;
  int64_t bytes = 0;
};

/// Workspace that the runtime owns and layers share: two slots, for two
/// overlapping micro-batches. Runs in one slot are serialized, whatever streams
/// and threads they come from; the caller orders replays of graphs.
class SharedWorkspace {
public:
  static constexpr int kNumSlots = 2;

  /// `bytes` per slot: the maximum of workspaceBytes() over the layers that
  /// will use it.
  static Result<std::shared_ptr<SharedWorkspace>> create(Device &device,
                                                         int64_t bytes);
  ~SharedWorkspace();

  /// `index` is 0 or 1.
  WorkspaceView slot(int index) const;
  /// Orders the runs of a slot.
  RunOrder &order(int index) const { return *orders[index]; }

private:
  SharedWorkspace(std::unique_ptr<Buffer> buffer, int64_t bytes);

  const std::unique_ptr<Buffer> buffer;
  /// The size of one slot.
  const int64_t bytes;
  std::array<std::unique_ptr<RunOrder>, kNumSlots> orders;
};

} // namespace moert

#endif // MOERT_SHAREDWORKSPACE_H
