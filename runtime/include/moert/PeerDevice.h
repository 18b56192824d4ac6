//===- PeerDevice.h - memory of a device that others map --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PEERDEVICE_H
#define MOERT_PEERDEVICE_H

#include "moert/Device.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace moert {

/// What another rank maps memory by. Fixed bytes, which ranks give each other.
struct PeerHandle {
  /// Which host, and which process on it.
  std::array<char, 64> host = {};
  int64_t process = 0;
  /// The device as its process counts it, and as the driver names it.
  int64_t ordinal = 0;
  std::array<uint8_t, 16> uuid = {};
  /// In its process.
  uint64_t address = 0;
  uint64_t bytes = 0;
  /// The driver's handle for other processes, and its answer where it gave
  /// none: ranks of one process need no handle.
  std::array<uint8_t, 64> opaque = {};
  int64_t refusal = 0;
};

/// Bytes that are copied to memory of another rank, or of this one.
struct PeerCopy {
  void *to = nullptr;
  const void *from = nullptr;
  size_t bytes = 0;
  /// Those of one lane follow each other, all others go side by side; lane 0 is
  /// the stream that they are given to.
  size_t lane = 0;
};

/// What an exchange through the memory of other ranks needs of the device of
/// one rank, beside what Device does. It dies before its device, and what it
/// made before it.
class PeerDevice {
public:
  virtual ~PeerDevice();

  /// Memory of this device, all zeros, that share() takes.
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes) = 0;
  virtual Result<PeerHandle> share(const Buffer &buffer) = 0;
  /// The memory of another rank, as kernels of this device reach it. The error
  /// says which of the two cannot, and what to do.
  virtual Result<std::unique_ptr<Buffer>> open(const PeerHandle &handle) = 0;

  /// Launches a kernel that waits for the same kernel of other ranks.
  virtual Status launch(Stream &stream, Kernel &kernel, const LaunchDims &dims,
                        const LaunchArgs &args) = 0;

  /// Makes what copy() needs for lanes 0 to `lanes`, which waits for nothing
  /// later and may be captured.
  virtual Status prepareCopies(size_t lanes) = 0;
  /// Copies behind what the stream has; what it is given next comes behind all
  /// of them, as others see it too.
  virtual Status copy(Stream &stream, const std::vector<PeerCopy> &copies) = 0;
};

/// That of a GPU: between the GPUs of one process by peer access, between
/// processes of one host by CUDA IPC. `device` is one of createCudaDevice() for
/// GPU `ordinal`, and outlives it; `library` as there.
Result<std::unique_ptr<PeerDevice>>
createCudaPeerDevice(Device &device, int ordinal,
                     const std::string &library = "");

} // namespace moert

#endif // MOERT_PEERDEVICE_H
