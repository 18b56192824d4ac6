//===- CudaDevice.cpp - an NVIDIA GPU as a device ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/CudaDevice.h"
#include "../support/Check.h"
#include "Objects.h"
#include "Retained.h"
#include "moert/GpuTarget.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace moert {

using namespace cuda;

namespace {

CUstream handle(Stream &stream) {
  return static_cast<CudaStream &>(stream).handle;
}

CUdeviceptr deviceAddress(const void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

class CudaDevice : public Device {
public:
  static Result<std::unique_ptr<Device>> create(int ordinal,
                                                const std::string &library);

  const std::string &name() const override { return deviceName; }
  std::string architecture() const override { return capability.str(); }
  int64_t multiprocessors() const override { return numMultiprocessors; }
  int64_t memoryBytes() const override { return int64_t(totalMemory); }
  Status checkTarget(const std::string &target) const override;

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes,
                                           size_t alignment) override;
  Status copyIn(void *dst, const void *src, size_t bytes) override;
  Status copyOut(void *dst, const void *src, size_t bytes) override;
  Status fill(Stream &stream, void *dst, uint8_t value, size_t bytes) override;
  Status copyRows(Stream &stream, const RowCopy &rows) override;
  Status checkAddress(const void *address) const override;

  Result<std::unique_ptr<Module>>
  loadModule(const ModuleImage &image) override {
    freeReleased();
    return cuda::loadModule(context, image, driverVersion);
  }

  Result<std::unique_ptr<Stream>> createStream() override;
  Result<std::unique_ptr<Stream>> wrapStream(void *native) override;
  Result<std::unique_ptr<Event>> createEvent() override {
    return makeEvent(CU_EVENT_DISABLE_TIMING);
  }
  Result<std::unique_ptr<Event>> createTimedEvent() override {
    return makeEvent(/*flags=*/0);
  }
  Result<double> elapsedSeconds(Event &from, Event &to) override;

  Status checkResident(Kernel &kernel, const LaunchDims &dims) override;
  Status launch(Stream &stream, Kernel &kernel, const LaunchDims &dims,
                const LaunchArgs &args) override;
  Status record(Stream &stream, Event &event) override;
  Status wait(Stream &stream, Event &event) override;
  Status synchronize(Stream &stream) override;

  Status beginCapture(Stream &stream) override;
  Result<std::unique_ptr<Graph>> endCapture(Stream &stream) override;
  Result<StreamState> inspect(Stream &stream) override;
  Status retain(Stream &stream, std::shared_ptr<const void> owned) override;
  Status launchGraph(Stream &stream, Graph &graph) override;

  Result<TensorMap> encodeTensorMap(const TensorMapRecipe &recipe) override {
    // The driver encodes only with a current context.
    Result<TensorMap> map = TensorMap();
    Status status = context->within([&] {
      map = cuda::encodeTensorMap(context->driver(), recipe);
      return map.status();
    });
    if (!status)
      return status;
    return map;
  }

private:
  CudaDevice(std::shared_ptr<Context> context, int ordinal)
      : context(std::move(context)), ordinal(ordinal) {}

  using OwnedByGraph = std::vector<std::shared_ptr<const void>>;

  Status readProperties();
  Result<std::unique_ptr<Event>> makeEvent(unsigned flags);
  void dropCapture(Stream &stream);
  /// Removes and returns the objects that the graph of the capture on `stream`
  /// will own, if this device has begun the capture.
  Result<OwnedByGraph> takeOwned(Stream &stream);
  Status grantShared(CudaKernel &kernel, int64_t bytes);

  const std::shared_ptr<Context> context;
  const int ordinal;
  std::string deviceName;
  GpuTarget capability;
  int driverVersion = 0;
  int maxShared = 0;
  int numMultiprocessors = 0;
  size_t totalMemory = 0;
  /// Objects that graphs will own, by the capture's id. Only captures begun by
  /// this device are listed.
  std::mutex mutex;
  std::map<uint64_t, OwnedByGraph> captures;
  /// For copies, which must not wait for other work.
  std::unique_ptr<CudaStream> copies;
};

} // namespace

//===----------------------------------------------------------------------===//
// The device
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<Device>> CudaDevice::create(int ordinal,
                                                   const std::string &library) {
  Result<std::shared_ptr<Context>> context = Context::open(library, ordinal);
  if (!context)
    return context.status();
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(std::move(*context), ordinal));
  MOERT_CHECK(device->readProperties());
  Result<std::unique_ptr<Stream>> copies = device->createStream();
  if (!copies)
    return copies.status();
  device->copies.reset(static_cast<CudaStream *>(copies->release()));
  return std::unique_ptr<Device>(std::move(device));
}

Status CudaDevice::readProperties() {
  const Driver &driver = context->driver();
  CUdevice device = context->device();
  char text[256] = "";
  MOERT_CUDA(driver, cuDeviceGetName, (text, sizeof(text) - 1, device));
  MOERT_CUDA(driver, cuDriverGetVersion, (&driverVersion));
  MOERT_CUDA(driver, cuDeviceGetAttribute,
             (&capability.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
              device));
  MOERT_CUDA(driver, cuDeviceGetAttribute,
             (&capability.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
              device));
  MOERT_CUDA(driver, cuDeviceGetAttribute,
             (&maxShared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
              device));
  MOERT_CUDA(
      driver, cuDeviceGetAttribute,
      (&numMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  MOERT_CUDA(driver, cuDeviceTotalMem, (&totalMemory, device));
  deviceName = "cuda:" + std::to_string(ordinal) + " (" + text + ")";
  return Status::ok();
}

Status CudaDevice::checkTarget(const std::string &target) const {
  std::optional<GpuTarget> parsed = GpuTarget::parse(target);
  if (parsed && parsed->runsOn(capability))
    return Status::ok();
  return invalidArgument("target '" + target + "' does not run on " +
                         deviceName + ", which is " + capability.str() +
                         "; compile for the target " + capability.str() +
                         " or an older one without suffix");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<Buffer>> CudaDevice::allocate(size_t bytes,
                                                     size_t alignment) {
  // Minimum alignment of the driver's addresses.
  constexpr size_t granted = 256;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0)
    return invalidArgument("allocate: alignment " + std::to_string(alignment) +
                           " is not a power of two");
  freeReleased();
  auto buffer = std::make_unique<CudaBuffer>(context, bytes, alignment);
  if (bytes == 0)
    return std::unique_ptr<Buffer>(std::move(buffer));
  size_t extra = alignment > granted ? alignment : 0;
  Status status = context->besideCaptures([&]() -> Status {
    MOERT_CUDA(context->driver(), cuMemAlloc, (&buffer->handle, bytes + extra));
    return Status::ok();
  });
  if (!status)
    return status.withContext("allocate of " + std::to_string(bytes) +
                              " bytes on " + deviceName);
  return std::unique_ptr<Buffer>(std::move(buffer));
}

Status CudaDevice::copyIn(void *dst, const void *src, size_t bytes) {
  if (bytes == 0)
    return Status::ok();
  const Driver &driver = context->driver();
  return context->besideCaptures([&]() -> Status {
    MOERT_CUDA(driver, cuMemcpyHtoDAsync,
               (deviceAddress(dst), src, bytes, copies->handle));
    MOERT_CUDA(driver, cuStreamSynchronize, (copies->handle));
    return Status::ok();
  });
}

Status CudaDevice::copyOut(void *dst, const void *src, size_t bytes) {
  if (bytes == 0)
    return Status::ok();
  const Driver &driver = context->driver();
  return context->besideCaptures([&]() -> Status {
    MOERT_CUDA(driver, cuMemcpyDtoHAsync,
               (dst, deviceAddress(src), bytes, copies->handle));
    MOERT_CUDA(driver, cuStreamSynchronize, (copies->handle));
    return Status::ok();
  });
}

Status CudaDevice::fill(Stream &stream, void *dst, uint8_t value,
                        size_t bytes) {
  if (bytes == 0)
    return Status::ok();
  return context->within([&]() -> Status {
    MOERT_CUDA(context->driver(), cuMemsetD8Async,
               (deviceAddress(dst), value, bytes, handle(stream)));
    return Status::ok();
  });
}

Status CudaDevice::copyRows(Stream &stream, const RowCopy &rows) {
  if (rows.rowBytes == 0 || rows.rows == 0)
    return Status::ok();
  const Driver &driver = context->driver();
  bool arePacked =
      rows.toStride == rows.rowBytes && rows.fromStride == rows.rowBytes;
  return context->within([&]() -> Status {
    if (arePacked || rows.rows == 1) {
      MOERT_CUDA(driver, cuMemcpyDtoDAsync,
                 (deviceAddress(rows.to), deviceAddress(rows.from),
                  rows.rowBytes * rows.rows, handle(stream)));
      return Status::ok();
    }
    // NOLINTNEXTLINE(bugprone-invalid-enum-default-initialization)
    CUmemcpy2D copy = {}; // All are set below.
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = deviceAddress(rows.from);
    copy.srcPitch = rows.fromStride;
    copy.dstDevice = deviceAddress(rows.to);
    copy.dstPitch = rows.toStride;
    copy.WidthInBytes = rows.rowBytes;
    copy.Height = rows.rows;
    MOERT_CUDA(driver, cuMemcpy2DAsync, (&copy, handle(stream)));
    return Status::ok();
  });
}

Status CudaDevice::checkAddress(const void *address) const {
  const Driver &driver = context->driver();
  return context->within([&]() -> Status {
    int owner = -1;
    CUresult code = driver.cuPointerGetAttribute(
        &owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, deviceAddress(address));
    if (code == CUDA_ERROR_INVALID_VALUE)
      return invalidArgument("an address in the memory of " + deviceName +
                             " expected, an address unknown to the driver "
                             "found; copy the tensor to the device");
    MOERT_CHECK(driver.check(code, "cuPointerGetAttribute"));
    if (owner != ordinal)
      return invalidArgument("an address in the memory of " + deviceName +
                             " expected, one of cuda:" + std::to_string(owner) +
                             " found; copy the tensor to this device");
    return Status::ok();
  });
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<Stream>> CudaDevice::createStream() {
  auto stream = std::make_unique<CudaStream>(context, /*isOurs=*/true);
  MOERT_CHECK(context->within([&]() -> Status {
    MOERT_CUDA(context->driver(), cuStreamCreate,
               (&stream->handle, CU_STREAM_NON_BLOCKING));
    return Status::ok();
  }));
  return std::unique_ptr<Stream>(std::move(stream));
}

Result<std::unique_ptr<Stream>> CudaDevice::wrapStream(void *native) {
  auto stream = std::make_unique<CudaStream>(context, /*isOurs=*/false);
  stream->handle = static_cast<CUstream>(native);
  return std::unique_ptr<Stream>(std::move(stream));
}

Result<std::unique_ptr<Event>> CudaDevice::makeEvent(unsigned flags) {
  auto event = std::make_unique<CudaEvent>(context);
  MOERT_CHECK(context->within([&]() -> Status {
    MOERT_CUDA(context->driver(), cuEventCreate, (&event->handle, flags));
    return Status::ok();
  }));
  return std::unique_ptr<Event>(std::move(event));
}

Result<double> CudaDevice::elapsedSeconds(Event &from, Event &to) {
  float milliseconds = 0;
  MOERT_CHECK(context->within([&]() -> Status {
    MOERT_CUDA(context->driver(), cuEventElapsedTime,
               (&milliseconds, static_cast<CudaEvent &>(from).handle,
                static_cast<CudaEvent &>(to).handle));
    return Status::ok();
  }));
  return milliseconds / 1e3;
}

Status CudaDevice::record(Stream &stream, Event &event) {
  return context->within([&]() -> Status {
    MOERT_CUDA(context->driver(), cuEventRecord,
               (static_cast<CudaEvent &>(event).handle, handle(stream)));
    return Status::ok();
  });
}

Status CudaDevice::wait(Stream &stream, Event &event) {
  return context->within([&]() -> Status {
    MOERT_CUDA(context->driver(), cuStreamWaitEvent,
               (handle(stream), static_cast<CudaEvent &>(event).handle, 0));
    return Status::ok();
  });
}

Status CudaDevice::synchronize(Stream &stream) {
  return context->within([&]() -> Status {
    MOERT_CUDA(context->driver(), cuStreamSynchronize, (handle(stream)));
    return Status::ok();
  });
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// Requests more than 48 KB of dynamic shared memory from the driver, once per
/// kernel.
Status CudaDevice::grantShared(CudaKernel &kernel, int64_t bytes) {
  if (bytes <= kernel.grantedShared)
    return Status::ok();
  if (bytes > maxShared)
    return invalidArgument("launch of '" + kernel.name() + "': " +
                           std::to_string(bytes) + " bytes of shared memory, " +
                           deviceName + " has " + std::to_string(maxShared) +
                           " per CTA; compile for the target of this "
                           "device");
  MOERT_CUDA(context->driver(), cuFuncSetAttribute,
             (kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
              static_cast<int>(bytes)));
  kernel.grantedShared = bytes;
  return Status::ok();
}

Status CudaDevice::checkResident(Kernel &kernel, const LaunchDims &dims) {
  auto &cudaKernel = static_cast<CudaKernel &>(kernel);
  int perMultiprocessor = 0;
  MOERT_CHECK(context->within([&]() -> Status {
    // The driver's occupancy depends on the granted size.
    MOERT_CHECK(grantShared(cudaKernel, dims.shared));
    MOERT_CUDA(context->driver(), cuOccupancyMaxActiveBlocksPerMultiprocessor,
               (&perMultiprocessor, cudaKernel.function,
                static_cast<int>(dims.block),
                static_cast<size_t>(dims.shared)));
    return Status::ok();
  }));
  int64_t limit = int64_t(perMultiprocessor) * numMultiprocessors;
  if (dims.grid <= limit)
    return Status::ok();
  return invalidArgument("kernel '" + kernel.name() + "' needs " +
                         std::to_string(dims.grid) + " CTAs at once, but " +
                         deviceName + " runs at most " + std::to_string(limit) +
                         "; compile the layer by moe-compile with "
                         "--disable=join-products,quantize-inputs");
}

Status CudaDevice::launch(Stream &stream, Kernel &kernel,
                          const LaunchDims &dims, const LaunchArgs &args) {
  // The compiler's kernels have fewer arguments; others need a heap allocation.
  constexpr size_t kUsualArgs = 64;
  constexpr int64_t kMaxGrid = 0x7fffffff;
  // CUDA 12.3 is the first that captures dependent launches.
  constexpr int kDependentLaunchVersion = 12030;
  // The driver clamps to its own highest priority.
  constexpr int kHighestPriority = -5;
  auto &cudaKernel = static_cast<CudaKernel &>(kernel);
  if (dims.grid < 0 || dims.grid > kMaxGrid || dims.block < 1 ||
      dims.block > cudaKernel.maxThreads || dims.shared < 0)
    return invalidArgument(
        "launch of '" + kernel.name() + "': grid " + std::to_string(dims.grid) +
        ", block " + std::to_string(dims.block) + ", shared " +
        std::to_string(dims.shared) + "; a block from 1 to " +
        std::to_string(cudaKernel.maxThreads) +
        " threads and sizes that are not negative are accepted");
  if (dims.grid == 0)
    return Status::ok();
  void *usual[kUsualArgs];
  std::vector<void *> many;
  void **params = usual;
  size_t numParams = args.numSlots + args.numMaps;
  if (numParams > kUsualArgs) {
    many.resize(numParams);
    params = many.data();
  }
  for (size_t i = 0; i < args.numSlots; ++i)
    params[i] = const_cast<uint64_t *>(&args.slots[i]);
  for (size_t i = 0; i < args.numMaps; ++i)
    params[args.numSlots + i] = const_cast<TensorMap *>(&args.maps[i]);
  // NOLINTNEXTLINE(bugprone-invalid-enum-default-initialization)
  CUlaunchAttribute attributes[2] = {}; // Those in use are set below.
  unsigned numAttributes = 0;
  if (dims.dependent && driverVersion >= kDependentLaunchVersion) {
    CUlaunchAttribute &early = attributes[numAttributes++];
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
  }
  if (dims.urgent) {
    CUlaunchAttribute &priority = attributes[numAttributes++];
    priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    priority.value.priority = kHighestPriority;
  }
  Status status = context->within([&]() -> Status {
    MOERT_CHECK(grantShared(cudaKernel, dims.shared));
    CUlaunchConfig config = {static_cast<unsigned>(dims.grid),
                             1,
                             1,
                             static_cast<unsigned>(dims.block),
                             1,
                             1,
                             static_cast<unsigned>(dims.shared),
                             handle(stream),
                             attributes,
                             numAttributes};
    MOERT_CUDA(context->driver(), cuLaunchKernelEx,
               (&config, cudaKernel.function, params, nullptr));
    return Status::ok();
  });
  return status ? status
                : status.withContext("launch of '" + kernel.name() + "'");
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

Status CudaDevice::beginCapture(Stream &stream) {
  const Driver &driver = context->driver();
  if (!driver.cuStreamBeginCapture || !driver.cuStreamEndCapture ||
      !driver.cuGraphInstantiateWithFlags || !driver.cuGraphLaunch ||
      !driver.cuGraphExecDestroy || !driver.cuGraphDestroy)
    return unavailable("beginCapture: this driver has no graphs; update it to "
                       "CUDA 11.4 or newer");
  bool begun = false;
  Status status = context->within([&]() -> Status {
    MOERT_CUDA(driver, cuStreamBeginCapture,
               (handle(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    begun = true;
    return Status::ok();
  });
  if (status) {
    Result<StreamState> state = inspect(stream);
    status = state.status();
    std::lock_guard<std::mutex> lock(mutex);
    if (state && state->capture)
      captures[*state->capture] = {};
  }
  if (!status && begun)
    dropCapture(stream);
  return status;
}

Result<CudaDevice::OwnedByGraph> CudaDevice::takeOwned(Stream &stream) {
  Result<StreamState> state = inspect(stream);
  if (!state)
    return state.status();
  OwnedByGraph owned;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = state->capture ? captures.find(*state->capture) : captures.end();
  if (found == captures.end())
    return owned;
  owned = std::move(found->second);
  captures.erase(found);
  return owned;
}

/// Ends a capture and discards its work.
void CudaDevice::dropCapture(Stream &stream) {
  const Driver &driver = context->driver();
  (void)takeOwned(stream);
  context->finallyWithin([&] {
    CUgraph graph = nullptr;
    if (driver.cuStreamEndCapture(handle(stream), &graph) == CUDA_SUCCESS &&
        graph)
      (void)driver.cuGraphDestroy(graph);
  });
}

Result<std::unique_ptr<Graph>> CudaDevice::endCapture(Stream &stream) {
  const Driver &driver = context->driver();
  auto made = std::make_unique<CudaGraph>(context);
  Result<OwnedByGraph> owned = takeOwned(stream);
  if (!owned) {
    dropCapture(stream);
    return owned.status();
  }
  made->owned = std::move(*owned);
  bool ended = false;
  Status status = context->within([&]() -> Status {
    CUgraph graph = nullptr;
    ended = true;
    MOERT_CUDA(driver, cuStreamEndCapture, (handle(stream), &graph));
    CUresult code =
        driver.cuGraphInstantiateWithFlags(&made->handle, graph, /*flags=*/0);
    (void)driver.cuGraphDestroy(graph);
    return driver.check(code, "cuGraphInstantiateWithFlags");
  });
  if (!ended)
    dropCapture(stream);
  MOERT_CHECK(status);
  return std::unique_ptr<Graph>(std::move(made));
}

Result<StreamState> CudaDevice::inspect(Stream &stream) {
  const Driver &driver = context->driver();
  StreamState state;
  MOERT_CHECK(context->within([&]() -> Status {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t capture = 0;
    MOERT_CUDA(driver, cuStreamGetCaptureInfo,
               (handle(stream), &status, &capture, nullptr, nullptr, nullptr));
    // During capture the driver gives no id of the stream.
    if (status != CU_STREAM_CAPTURE_STATUS_NONE)
      state.capture = capture;
    else if (driver.cuStreamGetId)
      MOERT_CUDA(driver, cuStreamGetId, (handle(stream), &state.id));
    return Status::ok();
  }));
  return state;
}

/// Each object owned through the driver costs a graph launch some microseconds,
/// so that mechanism is used only for graphs captured by other code.
Status CudaDevice::retain(Stream &stream, std::shared_ptr<const void> owned) {
  Result<StreamState> state = inspect(stream);
  if (!state)
    return state.status();
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found =
        state->capture ? captures.find(*state->capture) : captures.end();
    if (found != captures.end()) {
      found->second.push_back(std::move(owned));
      return Status::ok();
    }
  }
  return context->within([&] {
    return retainInGraph(context->driver(), handle(stream), std::move(owned));
  });
}

Status CudaDevice::launchGraph(Stream &stream, Graph &graph) {
  return context->within([&]() -> Status {
    MOERT_CUDA(context->driver(), cuGraphLaunch,
               (static_cast<CudaGraph &>(graph).handle, handle(stream)));
    return Status::ok();
  });
}

Result<std::unique_ptr<Device>> createCudaDevice(int ordinal,
                                                 const std::string &library) {
  return CudaDevice::create(ordinal, library);
}

Result<int> countCudaDevices(const std::string &library) {
  Result<std::shared_ptr<const Driver>> driver = Driver::open(library);
  if (!driver)
    return driver.status().withContext("countCudaDevices");
  MOERT_CUDA(**driver, cuInit, (0));
  int count = 0;
  MOERT_CUDA(**driver, cuDeviceGetCount, (&count));
  return count;
}

} // namespace moert
