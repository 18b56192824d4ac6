//===- PeerDevice.h - device memory that other ranks map --------*- C++ -*-===//
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

/// The data by which another rank maps memory. A fixed number of bytes,
/// exchanged between ranks.
struct PeerHandle {
  /// The host, and the process on it.
  std::array<char, 64> host = {};
  int64_t process = 0;
  /// The device, by its number in the process and by the driver's UUID.
  int64_t ordinal = 0;
  std::array<uint8_t, 16> uuid = {};
  /// Address in the process that owns the memory.
  uint64_t address = 0;
  uint64_t bytes = 0;
  /// The driver's handle for other processes, and its error code if it gave
  /// none; ranks of one process need no handle.
  std::array<uint8_t, 64> opaque = {};
  int64_t refusal = 0;
};

/// A copy to memory of another rank, or of this one.
struct PeerCopy {
  void *to = nullptr;
  const void *from = nullptr;
  size_t bytes = 0;
  /// Copies of one lane are in order, different lanes run concurrently; lane 0
  /// is the stream that the copies are enqueued on.
  size_t lane = 0;
};

/// Additional device operations for an exchange through the memory of other
/// ranks. Must be destroyed before its device, and objects that it made before
/// it.
class PeerDevice {
public:
  virtual ~PeerDevice();

  /// Zeroed memory of this device that share() accepts.
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes) = 0;
  virtual Result<PeerHandle> share(const Buffer &buffer) = 0;
  /// Maps the memory of another rank for kernels of this device. An error names
  /// the rank that lacks access, and what to do.
  virtual Result<std::unique_ptr<Buffer>> open(const PeerHandle &handle) = 0;

  /// Launches a kernel that waits for the same kernel of other ranks.
  virtual Status launch(Stream &stream, Kernel &kernel, const LaunchDims &dims,
                        const LaunchArgs &args) = 0;

  /// Creates the resources of copy() for lanes 0 to `lanes`, so that copy()
  /// itself never waits and may be captured.
  virtual Status prepareCopies(size_t lanes) = 0;
  /// Copies after the earlier work of the stream; later work of the stream
  /// comes after all copies, also as seen by other ranks.
  virtual Status copy(Stream &stream, const std::vector<PeerCopy> &copies) = 0;
};

/// The peer interface of a GPU: peer access between the GPUs of one process,
/// CUDA IPC between processes of one host. `device` was made by
/// createCudaDevice() for GPU `ordinal`, and outlives it; `library` as there.
Result<std::unique_ptr<PeerDevice>>
createCudaPeerDevice(Device &device, int ordinal,
                     const std::string &library = "");

} // namespace moert

#endif // MOERT_PEERDEVICE_H
