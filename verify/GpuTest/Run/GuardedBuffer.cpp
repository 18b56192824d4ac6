//===- GuardedBuffer.cpp - device memory between guards ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"

#include "moert/Workspace.h"

using namespace moec::gputest;
using moert::Result;
using moert::Status;

static std::vector<uint8_t> makePattern(size_t bytes) {
  // 0xFFA5 is NaN in bf16 and f16, and twice in sequence in f32.
  std::vector<uint8_t> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i)
    pattern[i] = i % 2 == 0 ? 0xA5 : 0xFF;
  return pattern;
}

Result<GuardedBuffer> GuardedBuffer::create(moert::Device &device,
                                            std::string name, size_t bytes) {
  GuardedBuffer guarded(device, std::move(name), bytes);
  Result<std::unique_ptr<moert::Buffer>> buffer =
      device.allocate(bytes + 2 * kGuard, moert::kWorkspaceAlignment);
  if (!buffer)
    return buffer.status().withContext("'" + guarded.name + "'");
  guarded.buffer = std::move(*buffer);
  std::vector<uint8_t> pattern = makePattern(kGuard);
  for (uint8_t *guard : {guarded.base(), guarded.getGuardBehind()})
    if (Status status = device.copyIn(guard, pattern.data(), kGuard); !status)
      return status;
  return guarded;
}

Status GuardedBuffer::check() const {
  std::vector<uint8_t> pattern = makePattern(kGuard), found(kGuard);
  for (const uint8_t *guard : {base(), getGuardBehind()}) {
    if (Status status = device->copyOut(found.data(), guard, kGuard); !status)
      return status;
    for (size_t i = 0; i < kGuard; ++i)
      if (found[i] != pattern[i])
        return moert::internalError(
            "a kernel wrote byte " + std::to_string(i) +
            (guard == base() ? " of the 4096 before '" : " behind '") + name +
            "'");
  }
  return Status::ok();
}
