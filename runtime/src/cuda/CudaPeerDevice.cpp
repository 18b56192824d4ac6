//===- CudaPeerDevice.cpp - peer access between GPUs ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "Objects.h"
#include "moert/PeerDevice.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <unistd.h>

namespace moert {

using namespace cuda;

namespace {

/// Identifies the running host, equal in all of its containers; empty if the
/// kernel has no boot id.
std::string readHost() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  return name;
}

/// Memory of another rank of this process; keeps that rank's context alive.
class PeerBuffer : public Buffer {
public:
  PeerBuffer(std::shared_ptr<const Context> owner, const PeerHandle &handle)
      : owner(std::move(owner)), handle(handle) {}
  void *data() const override {
    return reinterpret_cast<void *>(handle.address);
  }
  size_t size() const override { return handle.bytes; }

private:
  const std::shared_ptr<const Context> owner;
  const PeerHandle handle;
};

/// Memory mapped from another process.
class MappedBuffer : public Owned<Buffer, CUdeviceptr> {
public:
  MappedBuffer(std::shared_ptr<const Context> context, size_t bytes)
      : Owned(std::move(context)), bytes(bytes) {}
  ~MappedBuffer() override {
    if (handle)
      context->finallyWithin(
          [&] { (void)context->driver().cuIpcCloseMemHandle(handle); });
  }
  void *data() const override { return reinterpret_cast<void *>(handle); }
  size_t size() const override { return bytes; }

private:
  const size_t bytes;
};

class CudaPeerDevice : public PeerDevice {
public:
  CudaPeerDevice(Device &device, std::shared_ptr<const Context> context,
                 int ordinal)
      : device(device), context(std::move(context)), ordinal(ordinal),
        host(readHost()) {}

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override;
  Result<PeerHandle> share(const Buffer &buffer) override;
  Result<std::unique_ptr<Buffer>> open(const PeerHandle &handle) override;
  Status launch(Stream &stream, Kernel &kernel, const LaunchDims &dims,
                const LaunchArgs &args) override {
    return device.launch(stream, kernel, dims, args);
  }
  Status prepareCopies(size_t lanes) override;
  Status copy(Stream &stream, const std::vector<PeerCopy> &copies) override;

private:
  const Driver &driver() const { return context->driver(); }
  Status checkDriver() const;
  Result<std::unique_ptr<Buffer>> openInProcess(const PeerHandle &handle);
  Result<std::unique_ptr<Buffer>> openOfProcess(const PeerHandle &handle);
  Status checkAccess(CUdevice other, const std::string &name) const;

  /// A lane's stream, and the event that marks its end.
  struct Lane {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> done;
  };

  Device &device;
  const std::shared_ptr<const Context> context;
  const int ordinal;
  const std::string host;
  /// Lanes 1 and up.
  std::vector<Lane> lanes;
  /// The lanes begin after this event.
  std::unique_ptr<Event> fork;
};

} // namespace

Status CudaPeerDevice::checkDriver() const {
  const Driver &d = driver();
  if (d.cuDeviceGetUuid && d.cuDeviceCanAccessPeer && d.cuCtxEnablePeerAccess &&
      d.cuIpcGetMemHandle && d.cuIpcOpenMemHandle && d.cuIpcCloseMemHandle)
    return Status::ok();
  return unavailable("the driver cannot share memory between ranks; use a "
                     "driver of CUDA 11.4 or later, or NCCL");
}

Result<std::unique_ptr<Buffer>> CudaPeerDevice::allocate(size_t bytes) {
  MOERT_CHECK(checkDriver());
  // The driver shares memory in units of this size: allocate whole units, so
  // that no other data is shared.
  constexpr size_t granularity = size_t(2) << 20;
  size_t rounded = (bytes + granularity - 1) / granularity * granularity;
  Result<std::unique_ptr<Buffer>> buffer =
      device.allocate(rounded, /*alignment=*/256);
  if (!buffer)
    return buffer;
  Result<std::unique_ptr<Stream>> stream = device.createStream();
  if (!stream)
    return stream.status();
  MOERT_CHECK(device.fill(**stream, (*buffer)->data(), 0, rounded));
  MOERT_CHECK(device.synchronize(**stream));
  return buffer;
}

Result<PeerHandle> CudaPeerDevice::share(const Buffer &buffer) {
  PeerHandle handle;
  memcpy(handle.host.data(), host.data(),
         std::min(host.size(), handle.host.size() - 1));
  handle.process = getpid();
  handle.ordinal = ordinal;
  handle.address = reinterpret_cast<uintptr_t>(buffer.data());
  handle.bytes = buffer.size();
  CUuuid uuid = {};
  MOERT_CUDA(driver(), cuDeviceGetUuid, (&uuid, context->device()));
  memcpy(handle.uuid.data(), uuid.bytes, handle.uuid.size());
  CUipcMemHandle opaque = {};
  static_assert(sizeof(opaque.reserved) == sizeof(handle.opaque));
  MOERT_CHECK(context->within([&] {
    handle.refusal = driver().cuIpcGetMemHandle(&opaque, handle.address);
    return Status::ok();
  }));
  memcpy(handle.opaque.data(), opaque.reserved, handle.opaque.size());
  return handle;
}

/// Success if kernels of this GPU may write memory of the other one.
Status CudaPeerDevice::checkAccess(CUdevice other,
                                   const std::string &name) const {
  if (other == context->device())
    return Status::ok();
  int can = 0;
  MOERT_CUDA(driver(), cuDeviceCanAccessPeer, (&can, context->device(), other));
  if (can)
    return Status::ok();
  return unavailable(device.name() + " has no peer access to " + name +
                     "; use GPUs connected by NVLink, or NCCL");
}

Result<std::unique_ptr<Buffer>>
CudaPeerDevice::openInProcess(const PeerHandle &handle) {
  std::string name = "cuda:" + std::to_string(handle.ordinal);
  std::shared_ptr<const Context> owner = context;
  if (handle.ordinal != ordinal) {
    Result<std::shared_ptr<Context>> made =
        Context::create(context->sharedDriver(), int(handle.ordinal));
    if (!made)
      return made.status();
    owner = *made;
    MOERT_CHECK(checkAccess(owner->device(), name));
    MOERT_CHECK(context->within([&]() -> Status {
      CUresult code = driver().cuCtxEnablePeerAccess(owner->handle(), 0);
      if (code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        return Status::ok();
      return driver().check(code, "cuCtxEnablePeerAccess");
    }));
  }
  return std::unique_ptr<Buffer>(
      std::make_unique<PeerBuffer>(std::move(owner), handle));
}

Result<std::unique_ptr<Buffer>>
CudaPeerDevice::openOfProcess(const PeerHandle &handle) {
  MOERT_CHECK(driver()
                  .check(CUresult(handle.refusal), "cuIpcGetMemHandle")
                  .withContext("it has no handle for other processes"));
  int count = 0;
  MOERT_CUDA(driver(), cuDeviceGetCount, (&count));
  for (int i = 0; i < count; ++i) {
    CUdevice other = 0;
    CUuuid uuid = {};
    MOERT_CUDA(driver(), cuDeviceGet, (&other, i));
    MOERT_CUDA(driver(), cuDeviceGetUuid, (&uuid, other));
    if (memcmp(uuid.bytes, handle.uuid.data(), handle.uuid.size()) == 0)
      MOERT_CHECK(checkAccess(other, "cuda:" + std::to_string(i)));
  }
  CUipcMemHandle opaque = {};
  memcpy(opaque.reserved, handle.opaque.data(), handle.opaque.size());
  auto mapped = std::make_unique<MappedBuffer>(context, handle.bytes);
  MOERT_CHECK(context->within([&]() -> Status {
    MOERT_CUDA(driver(), cuIpcOpenMemHandle,
               (&mapped->handle, opaque, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return Status::ok();
  }));
  return std::unique_ptr<Buffer>(std::move(mapped));
}

Result<std::unique_ptr<Buffer>> CudaPeerDevice::open(const PeerHandle &handle) {
  if (handle.bytes == 0)
    return unavailable(
        "that rank has no memory to share; look for an error there");
  std::string other(handle.host.data(),
                    strnlen(handle.host.data(), handle.host.size()));
  if (host.empty() || other != host)
    return unavailable("it is on another host, or in a sandbox that hides its "
                       "host; use NCCL between hosts");
  return handle.process == getpid() ? openInProcess(handle)
                                    : openOfProcess(handle);
}

Status CudaPeerDevice::prepareCopies(size_t numLanes) {
  if (!fork) {
    Result<std::unique_ptr<Event>> event = device.createEvent();
    if (!event)
      return event.status();
    fork = std::move(*event);
  }
  while (lanes.size() < numLanes) {
    Result<std::unique_ptr<Stream>> stream = device.createStream();
    if (!stream)
      return stream.status();
    Result<std::unique_ptr<Event>> event = device.createEvent();
    if (!event)
      return event.status();
    lanes.push_back({std::move(*stream), std::move(*event)});
  }
  return Status::ok();
}

Status CudaPeerDevice::copy(Stream &stream,
                            const std::vector<PeerCopy> &copies) {
  std::vector<bool> isUsed(lanes.size());
  for (const PeerCopy &copy : copies) {
    if (copy.lane > lanes.size())
      return internalError("lane " + std::to_string(copy.lane) +
                           " of copies was not prepared");
    if (copy.lane > 0)
      isUsed[copy.lane - 1] = true;
  }
  MOERT_CHECK(device.record(stream, *fork));
  for (size_t i = 0; i < lanes.size(); ++i)
    if (isUsed[i])
      MOERT_CHECK(device.wait(*lanes[i].stream, *fork));
  MOERT_CHECK(context->within([&]() -> Status {
    for (const PeerCopy &copy : copies) {
      if (copy.bytes == 0)
        continue;
      Stream &lane = copy.lane == 0 ? stream : *lanes[copy.lane - 1].stream;
      MOERT_CUDA(driver(), cuMemcpyDtoDAsync,
                 (reinterpret_cast<uintptr_t>(copy.to),
                  reinterpret_cast<uintptr_t>(copy.from), copy.bytes,
                  static_cast<CudaStream &>(lane).handle));
    }
    return Status::ok();
  }));
  for (size_t i = 0; i < lanes.size(); ++i)
    if (isUsed[i]) {
      MOERT_CHECK(device.record(*lanes[i].stream, *lanes[i].done));
      MOERT_CHECK(device.wait(stream, *lanes[i].done));
    }
  return Status::ok();
}

Result<std::unique_ptr<PeerDevice>>
createCudaPeerDevice(Device &device, int ordinal, const std::string &library) {
  Result<std::shared_ptr<Context>> context = Context::open(library, ordinal);
  if (!context)
    return context.status();
  return std::unique_ptr<PeerDevice>(
      std::make_unique<CudaPeerDevice>(device, std::move(*context), ordinal));
}

} // namespace moert
