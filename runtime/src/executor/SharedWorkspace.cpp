//===- SharedWorkspace.cpp - workspace that layers share --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/SharedWorkspace.h"
#include "RunOrder.h"
#include "moert/Workspace.h"

#include <limits>

namespace moert {

Result<std::shared_ptr<SharedWorkspace>>
SharedWorkspace::create(Device &device, int64_t bytes) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max() / 4;
  if (bytes < 0 || bytes > most)
    return invalidArgument(
        "a workspace of " + std::to_string(bytes) + " bytes per slot; 0 to " +
        std::to_string(most) +
        " are accepted: give the size that workspaceBytes() returns");
  int64_t aligned = (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment *
                    kWorkspaceAlignment;
  Result<std::unique_ptr<Buffer>> buffer = device.allocate(
      static_cast<size_t>(aligned) * kNumSlots, kWorkspaceAlignment);
  if (!buffer)
    return buffer.status().withContext("workspace of " +
                                       std::to_string(kNumSlots) + " slots");
  std::shared_ptr<SharedWorkspace> made(
      new SharedWorkspace(std::move(*buffer), aligned));
  for (std::unique_ptr<RunOrder> &order : made->orders) {
    Result<std::unique_ptr<RunOrder>> created = RunOrder::create(device);
    if (!created)
      return created.status();
    order = std::move(*created);
  }
  return made;
}

SharedWorkspace::SharedWorkspace(std::unique_ptr<Buffer> buffer, int64_t bytes)
    : buffer(std::move(buffer)), bytes(bytes) {}

SharedWorkspace::~SharedWorkspace() = default;

WorkspaceView SharedWorkspace::slot(int index) const {
  if (bytes == 0)
    return {};
  return {static_cast<char *>(buffer->data()) + index * bytes, bytes};
}

} // namespace moert
