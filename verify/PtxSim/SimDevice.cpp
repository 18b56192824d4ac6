//===- SimDevice.cpp - the simulator as a device ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxSim/SimDevice.h"

#include "DeviceCalls.h"
#include "moert/GpuTarget.h"

#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

using namespace moec::ptx;
using moert::Result;
using moert::Status;

namespace {

uint64_t addressOf(const void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

class SimBuffer : public moert::Buffer {
public:
  SimBuffer(std::shared_ptr<DeviceCalls> shared, size_t device,
            uint64_t address, size_t bytes)
      : shared(std::move(shared)), device(device), address(address),
        bytes(bytes) {}
  ~SimBuffer() override {
    DeviceCalls::Lock lock(shared->mutex);
    // Pending work may still use the memory; failures were reported before.
    (void)shared->finish(lock, device);
    (void)shared->simulator.release(address);
  }
  void *data() const override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the simulator.
    return reinterpret_cast<void *>(address);
  }
  size_t size() const override { return bytes; }

private:
  std::shared_ptr<DeviceCalls> shared;
  const size_t device;
  const uint64_t address;
  const size_t bytes;
};

class SimKernel : public moert::Kernel {
public:
  SimKernel(const LoadedModule &module, const KernelInfo &info)
      : module(module), info(info) {}
  const std::string &name() const override { return info.name; }

  const LoadedModule &module;
  const KernelInfo &info;
};

class SimModule : public moert::Module {
public:
  explicit SimModule(const std::vector<LoadedModule *> &modules) {
    for (const LoadedModule *module : modules)
      for (const KernelInfo &info : module->kernels())
        kernels[info.name] = std::make_unique<SimKernel>(*module, info);
  }
  Result<moert::Kernel *> kernel(const std::string &name) override {
    auto found = kernels.find(name);
    if (found == kernels.end())
      return moert::notFound("kernel '" + name +
                             "' is not in the module; compile the module and "
                             "the plan together");
    return static_cast<moert::Kernel *>(found->second.get());
  }

private:
  std::unordered_map<std::string, std::unique_ptr<SimKernel>> kernels;
};

/// A stream: the work that its next call must follow.
class SimStream : public moert::Stream {
public:
  std::vector<WorkId> last;
};

class SimEvent : public moert::Event {
public:
  bool isRecorded = false;
  std::vector<WorkId> last;
};

/// Captured calls, to be replayed.
class SimGraph : public moert::Graph {
public:
  std::vector<DeviceCall> calls;
};

class SimDevice : public moert::DeviceWithoutGraphs {
public:
  SimDevice(const SimDeviceOptions &options, moert::GpuTarget capability,
            std::shared_ptr<DeviceCalls> shared, size_t index)
      : deviceName("sim (" + options.architecture + ", seed " +
                   std::to_string(options.simulator.seed) + ")"),
        capability(capability), shared(std::move(shared)), index(index) {}
  ~SimDevice() override { shared->leave(index); }

  const std::string &name() const override { return deviceName; }
  std::string architecture() const override { return capability.str(); }
  bool takesMachineCode() const override { return false; }
  Status checkTarget(const std::string &target) const override;

  Result<std::unique_ptr<moert::Buffer>> allocate(size_t bytes,
                                                  size_t alignment) override;
  Status copyIn(void *dst, const void *src, size_t bytes) override;
  Status copyOut(void *dst, const void *src, size_t bytes) override;
  Status fill(moert::Stream &stream, void *dst, uint8_t value,
              size_t bytes) override;
  Status copyRows(moert::Stream &stream, const moert::RowCopy &rows) override;
  Status checkAddress(const void *address) const override;

  Result<std::unique_ptr<moert::Module>>
  loadModule(const moert::ModuleImage &image) override;

  Result<std::unique_ptr<moert::Stream>> createStream() override {
    return std::unique_ptr<moert::Stream>(new SimStream());
  }
  Result<std::unique_ptr<moert::Event>> createEvent() override {
    return std::unique_ptr<moert::Event>(new SimEvent());
  }

  Status checkResident(moert::Kernel &kernel,
                       const moert::LaunchDims &dims) override {
    std::lock_guard<std::mutex> lock(shared->mutex);
    return shared->simulator.checkResident(kernel.name(), dims);
  }
  Status launch(moert::Stream &stream, moert::Kernel &kernel,
                const moert::LaunchDims &dims,
                const moert::LaunchArgs &args) override {
    return launch(stream, kernel, dims, args, /*meets=*/false);
  }
  /// `meets`: starts together with the same launch of all other devices of the
  /// simulator.
  Status launch(moert::Stream &stream, moert::Kernel &kernel,
                const moert::LaunchDims &dims, const moert::LaunchArgs &args,
                bool meets);
  Status copy(moert::Stream &stream,
              const std::vector<moert::PeerCopy> &copies);
  /// Whether the memory belongs to the same simulator.
  bool owns(uint64_t simulator) const { return simulator == identity(); }
  uint64_t identity() const { return addressOf(shared.get()); }
  Status record(moert::Stream &stream, moert::Event &event) override;
  Status wait(moert::Stream &stream, moert::Event &event) override;
  Status synchronize(moert::Stream &stream) override;

  Status beginCapture(moert::Stream &stream) override;
  Result<std::unique_ptr<moert::Graph>>
  endCapture(moert::Stream &stream) override;
  Status launchGraph(moert::Stream &stream, moert::Graph &graph) override;

  Result<moert::TensorMap>
  encodeTensorMap(const moert::TensorMapRecipe &recipe) override {
    return moec::ptx::encodeTensorMap(recipe);
  }

private:
  /// Makes the call, or records it in the graph under capture.
  Status callOrKeep(std::function<Status()> call, bool meets = false);

  const std::string deviceName;
  const moert::GpuTarget capability;
  const std::shared_ptr<DeviceCalls> shared;
  /// Index of the device in the simulator.
  const size_t index;
  std::unique_ptr<SimGraph> captured;
};

class SimPeerDevice : public moert::PeerDevice {
public:
  explicit SimPeerDevice(SimDevice &device) : device(device) {}

  Result<std::unique_ptr<moert::Buffer>> allocate(size_t bytes) override;
  Result<moert::PeerHandle> share(const moert::Buffer &buffer) override;
  Result<std::unique_ptr<moert::Buffer>>
  open(const moert::PeerHandle &handle) override;
  Status launch(moert::Stream &stream, moert::Kernel &kernel,
                const moert::LaunchDims &dims,
                const moert::LaunchArgs &args) override {
    return device.launch(stream, kernel, dims, args, /*meets=*/true);
  }
  Status prepareCopies(size_t) override { return Status::ok(); }
  Status copy(moert::Stream &stream,
              const std::vector<moert::PeerCopy> &copies) override {
    return device.copy(stream, copies);
  }

private:
  SimDevice &device;
};

/// Memory of another device of the simulator.
class SimPeerBuffer : public moert::Buffer {
public:
  explicit SimPeerBuffer(const moert::PeerHandle &handle) : handle(handle) {}
  void *data() const override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the simulator.
    return reinterpret_cast<void *>(handle.address);
  }
  size_t size() const override { return handle.bytes; }

private:
  const moert::PeerHandle handle;
};

} // namespace

Status SimDevice::checkTarget(const std::string &target) const {
  std::optional<moert::GpuTarget> parsed = moert::GpuTarget::parse(target);
  if (parsed && parsed->runsOn(capability))
    return Status::ok();
  return moert::invalidArgument("target '" + target + "' does not run on " +
                                deviceName + "; compile for the target " +
                                capability.str() +
                                " or an older one without suffix");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<moert::Buffer>> SimDevice::allocate(size_t bytes,
                                                           size_t alignment) {
  std::lock_guard<std::mutex> lock(shared->mutex);
  Result<uint64_t> address = shared->simulator.allocate(
      bytes, alignment, "an allocation of " + std::to_string(bytes) + " bytes");
  if (!address)
    return address.status();
  return std::unique_ptr<moert::Buffer>(
      new SimBuffer(shared, index, *address, bytes));
}

Status SimDevice::copyIn(void *dst, const void *src, size_t bytes) {
  DeviceCalls::Lock lock(shared->mutex);
  if (Status status = shared->finish(lock, index); !status)
    return status;
  return shared->simulator.write(addressOf(dst), src, bytes);
}

Status SimDevice::copyOut(void *dst, const void *src, size_t bytes) {
  DeviceCalls::Lock lock(shared->mutex);
  if (Status status = shared->finish(lock, index); !status)
    return status;
  return shared->simulator.read(dst, addressOf(src), bytes);
}

Status SimDevice::checkAddress(const void *address) const {
  std::lock_guard<std::mutex> lock(shared->mutex);
  return shared->simulator.checkRange(addressOf(address), 0);
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<moert::Module>>
SimDevice::loadModule(const moert::ModuleImage &image) {
  if (image.kind != moert::ModuleImage::Kind::Ptx)
    return moert::invalidArgument(std::string("loadModule: the image holds ") +
                                  moert::moduleImageKindName(image.kind) +
                                  ", the simulator takes PTX");
  std::lock_guard<std::mutex> lock(shared->mutex);
  std::vector<LoadedModule *> loaded;
  for (size_t i = 0; i < image.modules.size(); ++i) {
    const std::vector<uint8_t> &bytes = image.modules[i];
    std::string text(bytes.begin(), bytes.end());
    // PTX images end with a zero byte for the driver.
    text.erase(text.find_last_not_of('\0') + 1);
    Result<LoadedModule *> module = shared->simulator.load(
        text,
        image.modules.size() == 1 ? "ptx" : "ptx[" + std::to_string(i) + "]");
    if (!module)
      return module.status().withContext("loadModule");
    loaded.push_back(*module);
  }
  return std::unique_ptr<moert::Module>(new SimModule(loaded));
}

Status SimDevice::callOrKeep(std::function<Status()> call, bool meets) {
  if (!captured)
    return shared->give(index, {std::move(call), meets});
  captured->calls.push_back({std::move(call), meets});
  return Status::ok();
}

Status SimDevice::fill(moert::Stream &stream, void *dst, uint8_t value,
                       size_t bytes) {
  if (bytes == 0)
    return Status::ok();
  std::lock_guard<std::mutex> lock(shared->mutex);
  auto &target = static_cast<SimStream &>(stream);
  return callOrKeep([this, &target, dst, value, bytes] {
    Result<WorkId> work =
        shared->simulator.submitFill(addressOf(dst), value, bytes, target.last);
    if (work)
      target.last = {*work};
    return work.status();
  });
}

Status SimDevice::copyRows(moert::Stream &stream, const moert::RowCopy &rows) {
  std::lock_guard<std::mutex> lock(shared->mutex);
  auto &target = static_cast<SimStream &>(stream);
  return callOrKeep([this, &target, rows] {
    for (size_t row = 0; row < rows.rows; ++row) {
      Result<WorkId> work = shared->simulator.submitCopy(
          addressOf(rows.to) + row * rows.toStride,
          addressOf(rows.from) + row * rows.fromStride, rows.rowBytes,
          target.last);
      if (!work)
        return work.status();
      target.last = {*work};
    }
    return Status::ok();
  });
}

/// Copy lanes are not distinguished: callers may rely only on the end of all
/// copies, not on the order within a lane.
Status SimDevice::copy(moert::Stream &stream,
                       const std::vector<moert::PeerCopy> &copies) {
  std::lock_guard<std::mutex> lock(shared->mutex);
  auto &target = static_cast<SimStream &>(stream);
  return callOrKeep([this, &target, copies] {
    std::vector<WorkId> made;
    for (const moert::PeerCopy &copy : copies) {
      if (copy.bytes == 0)
        continue;
      Result<WorkId> work = shared->simulator.submitCopy(
          addressOf(copy.to), addressOf(copy.from), copy.bytes, target.last);
      if (!work)
        return work.status();
      made.push_back(*work);
    }
    if (!made.empty())
      target.last = made;
    return Status::ok();
  });
}

Status SimDevice::launch(moert::Stream &stream, moert::Kernel &kernel,
                         const moert::LaunchDims &dims,
                         const moert::LaunchArgs &args, bool meets) {
  const auto &launched = static_cast<SimKernel &>(kernel);
  Result<std::vector<uint8_t>> params =
      packParams(launched.info, {args.slots, args.slots + args.numSlots},
                 {args.maps, args.maps + args.numMaps});
  if (!params)
    return params.status();
  std::lock_guard<std::mutex> lock(shared->mutex);
  auto &target = static_cast<SimStream &>(stream);
  return callOrKeep(
      [this, &target, &launched, dims, params = *params] {
        Result<WorkId> work = shared->simulator.submit(
            launched.module, launched.info.name, dims, params, target.last);
        if (work)
          target.last = {*work};
        return work.status();
      },
      meets);
}

Status SimDevice::record(moert::Stream &stream, moert::Event &event) {
  std::lock_guard<std::mutex> lock(shared->mutex);
  auto &from = static_cast<SimStream &>(stream);
  auto &to = static_cast<SimEvent &>(event);
  to.isRecorded = true;
  return callOrKeep([&from, &to] {
    to.last = from.last;
    return Status::ok();
  });
}

Status SimDevice::wait(moert::Stream &stream, moert::Event &event) {
  std::lock_guard<std::mutex> lock(shared->mutex);
  auto &to = static_cast<SimStream &>(stream);
  auto &from = static_cast<SimEvent &>(event);
  if (!from.isRecorded)
    return moert::invalidArgument("wait: the event was never recorded");
  return callOrKeep([&from, &to] {
    to.last.insert(to.last.end(), from.last.begin(), from.last.end());
    return Status::ok();
  });
}

Status SimDevice::synchronize(moert::Stream &) {
  DeviceCalls::Lock lock(shared->mutex);
  return shared->finish(lock, index);
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

Status SimDevice::beginCapture(moert::Stream &) {
  std::lock_guard<std::mutex> lock(shared->mutex);
  if (captured)
    return moert::invalidArgument("beginCapture: a graph is being captured");
  captured = std::make_unique<SimGraph>();
  return Status::ok();
}

Result<std::unique_ptr<moert::Graph>> SimDevice::endCapture(moert::Stream &) {
  std::lock_guard<std::mutex> lock(shared->mutex);
  if (!captured)
    return moert::invalidArgument("endCapture: no graph is being captured");
  return std::unique_ptr<moert::Graph>(std::move(captured));
}

Status SimDevice::launchGraph(moert::Stream &, moert::Graph &graph) {
  std::lock_guard<std::mutex> lock(shared->mutex);
  for (const DeviceCall &call : static_cast<SimGraph &>(graph).calls)
    if (Status status = shared->give(index, call); !status)
      return status;
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Memory that devices share
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<moert::Buffer>> SimPeerDevice::allocate(size_t bytes) {
  auto buffer = device.allocate(bytes, 256);
  if (!buffer)
    return buffer;
  std::vector<char> zeros(bytes);
  if (Status status = device.copyIn((*buffer)->data(), zeros.data(), bytes);
      !status)
    return status;
  return buffer;
}

Result<moert::PeerHandle> SimPeerDevice::share(const moert::Buffer &buffer) {
  moert::PeerHandle handle;
  handle.process = static_cast<int64_t>(device.identity());
  handle.address = addressOf(buffer.data());
  handle.bytes = buffer.size();
  return handle;
}

Result<std::unique_ptr<moert::Buffer>>
SimPeerDevice::open(const moert::PeerHandle &handle) {
  if (!device.owns(static_cast<uint64_t>(handle.process)) || handle.bytes == 0)
    return moert::unavailable(
        "the device is missing or belongs to another simulator; make the "
        "devices with createSimDevices()");
  return std::unique_ptr<moert::Buffer>(new SimPeerBuffer(handle));
}

std::unique_ptr<moert::PeerDevice>
moec::ptx::createSimPeerDevice(moert::Device &device) {
  return std::make_unique<SimPeerDevice>(static_cast<SimDevice &>(device));
}

Result<std::vector<std::unique_ptr<moert::Device>>>
moec::ptx::createSimDevices(const SimDeviceOptions &options, size_t count,
                            double limitSeconds) {
  std::optional<moert::GpuTarget> capability =
      moert::GpuTarget::parse(options.architecture);
  if (!capability || capability->suffix)
    return moert::invalidArgument("createSimDevices: '" + options.architecture +
                                  "' is not an architecture such as sm_90");
  auto shared =
      std::make_shared<DeviceCalls>(options.simulator, count, limitSeconds);
  std::vector<std::unique_ptr<moert::Device>> devices;
  devices.reserve(count);
  for (size_t i = 0; i < count; ++i)
    devices.push_back(
        std::make_unique<SimDevice>(options, *capability, shared, i));
  return devices;
}

Result<std::unique_ptr<moert::Device>>
moec::ptx::createSimDevice(const SimDeviceOptions &options) {
  auto devices = createSimDevices(options, 1, /*limitSeconds=*/1);
  if (!devices)
    return devices.status();
  return std::move(devices->front());
}
