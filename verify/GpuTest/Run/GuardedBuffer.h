//===- GuardedBuffer.h - device memory between guards -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_RUN_GUARDEDBUFFER_H
#define MOEC_VERIFY_GPUTEST_RUN_GUARDEDBUFFER_H

#include "moert/Device.h"

namespace moec::gputest {

/// Device memory with a guard on either side. Guards hold values that are NaN
/// in every float type: a kernel that reads them gets a wrong result, and
/// check() detects writes.
class GuardedBuffer {
public:
  static moert::Result<GuardedBuffer> create(moert::Device &device,
                                             std::string name, size_t bytes);

  void *data() const { return base() + kGuard; }
  size_t size() const { return bytes; }
  uint8_t *getGuardBehind() const { return base() + kGuard + bytes; }

  /// Fails, naming the buffer, if a guard was overwritten.
  moert::Status check() const;

private:
  static constexpr size_t kGuard = 4096;

  GuardedBuffer(moert::Device &device, std::string name, size_t bytes)
      : device(&device), name(std::move(name)), bytes(bytes) {}

  uint8_t *base() const { return static_cast<uint8_t *>(buffer->data()); }

  moert::Device *device;
  std::string name;
  size_t bytes;
  std::unique_ptr<moert::Buffer> buffer;
};

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_RUN_GUARDEDBUFFER_H
