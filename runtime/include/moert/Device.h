//===- Device.h - the interface of a device ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_DEVICE_H
#define MOERT_DEVICE_H

#include "moert/DType.h"
#include "moert/Status.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moert {

/// A kernel on the host, called once per CTA. `args` holds one 64-bit slot per
/// launch argument: a data pointer or a scalar's value. (CUDA passes the same
/// slots as `kernelParams[i] = &args[i]`.)
using HostKernelFn = void (*)(const uint64_t *args, int64_t cta);

/// Compiled kernels in the form that one kind of device takes.
struct ModuleImage {
  enum class Kind : uint8_t { HostFunctions, Cubin, Ptx };

  Kind kind = Kind::HostFunctions;
  /// HostFunctions: finds a kernel by name. Whatever the function captures (a
  /// JIT) lives as long as the module loaded from this image.
  std::function<Result<HostKernelFn>(const std::string &name)> lookup;
  /// Cubin, Ptx: contents of files; each kernel is in one of them.
  std::vector<std::vector<uint8_t>> modules;
};

const char *moduleImageKindName(ModuleImage::Kind kind);

/// Memory owned on a device; freed with the object.
class Buffer {
public:
  virtual ~Buffer();
  virtual void *data() const = 0;
  virtual size_t size() const = 0;
};

/// A kernel that can be launched; owned by its module.
class Kernel {
public:
  virtual ~Kernel();
  virtual const std::string &name() const = 0;
};

class Module {
public:
  virtual ~Module();
  /// The kernel lives as long as the module.
  virtual Result<Kernel *> kernel(const std::string &name) = 0;
};

class Stream {
public:
  virtual ~Stream();
};

class Event {
public:
  virtual ~Event();
};

/// The identity of a stream and its capture state.
struct StreamState {
  /// A number that no other stream ever has; 0 if unknown, as in a capture.
  uint64_t id = 0;
  /// The id of the capture that is recording the stream, begun by this library
  /// or not; none if work is executed.
  std::optional<uint64_t> capture;
};

/// The work of a stream, captured once to be launched as a whole.
class Graph {
public:
  virtual ~Graph();
};

/// A recipe for a tensor map (the descriptor of a bulk tensor copy).
struct TensorMapRecipe {
  void *data = nullptr;
  DType dtype = DType::F32;
  /// Innermost dimension last, as in a tensor's shape.
  std::vector<int64_t> shape;
  /// Bytes from one index to the next, per dimension but the innermost.
  std::vector<int64_t> strideBytes;
  std::vector<int64_t> box;
  /// 0, 32, 64 or 128.
  int64_t swizzleBytes = 0;

  bool operator==(const TensorMapRecipe &other) const {
    return data == other.data && dtype == other.dtype && shape == other.shape &&
           strideBytes == other.strideBytes && box == other.box &&
           swizzleBytes == other.swizzleBytes;
  }
};

struct alignas(64) TensorMap {
  uint64_t opaque[16] = {};
};

/// Arguments of a kernel: slots (see HostKernelFn), then tensor maps.
struct LaunchArgs {
  const uint64_t *slots = nullptr;
  size_t numSlots = 0;
  const TensorMap *maps = nullptr;
  size_t numMaps = 0;
};

/// The dimensions of a launch and its attributes.
struct LaunchDims {
  /// CTAs.
  int64_t grid = 0;
  /// Threads per CTA; ignored by the host device.
  int64_t block = 0;
  /// Bytes of dynamic shared memory per CTA.
  int64_t shared = 0;
  /// Whether CTAs may begin before the previous kernel of the stream has ended.
  /// Every thread of such a kernel executes griddepcontrol.wait before it
  /// accesses memory that another kernel uses, and before it exits. A device
  /// may ignore the flag.
  bool dependent = false;
  /// Whether CTAs wait for each other, so that all must be resident at once;
  /// see Device::checkResident(). Ignored by the host device.
  bool resident = false;
  /// Whether its CTAs are scheduled before pending CTAs of other streams. A
  /// device may ignore the flag.
  bool urgent = false;
};

/// Rows of bytes, and their places in a device's memory.
struct RowCopy {
  void *to = nullptr;
  const void *from = nullptr;
  /// Bytes from the begin of a row to that of the next.
  size_t toStride = 0, fromStride = 0;
  size_t rowBytes = 0, rows = 0;
};

/// One device. All calls are thread-safe; work on one stream runs in the order
/// of the calls. Objects made by a device must be destroyed before it.
class Device {
public:
  virtual ~Device();

  virtual const std::string &name() const = 0;
  /// "sm_90" for a GPU of compute capability 9.0; empty if images are not
  /// chosen by architecture.
  virtual std::string architecture() const;
  /// Multiprocessors of a GPU; 0 if kernels are not chosen by their number.
  virtual int64_t multiprocessors() const;
  /// Bytes of a GPU's memory, used or not; 0 if unknown.
  virtual int64_t memoryBytes() const;
  /// Threads that run kernels of a host device; 0 for another device.
  virtual int numThreads() const;
  /// Changes their number for later launches; 0 as for createHostDevice().
  virtual Status setNumThreads(int numThreads);
  /// Whether the device runs cubins; if not, it takes PTX.
  virtual bool takesMachineCode() const;
  /// Success if kernels compiled for `target` run here.
  virtual Status checkTarget(const std::string &target) const = 0;

  /// `alignment` is a power of two; zero bytes give a buffer of size 0.
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes,
                                                   size_t alignment) = 0;
  /// Host to device and back; the copy is complete on return.
  virtual Status copyIn(void *deviceDst, const void *hostSrc, size_t bytes) = 0;
  virtual Status copyOut(void *hostDst, const void *deviceSrc,
                         size_t bytes) = 0;
  virtual Status fill(Stream &stream, void *deviceDst, uint8_t value,
                      size_t bytes) = 0;
  /// Copies rows within the device's memory, in the order of the stream.
  /// Devices without such a copy return `unavailable`.
  virtual Status copyRows(Stream &stream, const RowCopy &rows);

  virtual Result<std::unique_ptr<Module>>
  loadModule(const ModuleImage &image) = 0;

  virtual Result<std::unique_ptr<Stream>> createStream() = 0;
  /// Wraps a stream of the caller's (on CUDA a CUstream, null being the default
  /// stream), which must outlive the object and is not destroyed with it.
  virtual Result<std::unique_ptr<Stream>> wrapStream(void *native);
  virtual Result<std::unique_ptr<Event>> createEvent() = 0;

  /// An event for elapsedSeconds(), more expensive than others. Devices without
  /// a clock return `unavailable`.
  virtual Result<std::unique_ptr<Event>> createTimedEvent();
  /// Seconds on the device between two completed events.
  virtual Result<double> elapsedSeconds(Event &from, Event &to);

  /// Success if kernels of this device can access `address`.
  virtual Status checkAddress(const void *address) const;

  /// Success if all CTAs of such a launch of `kernel` fit on an otherwise idle
  /// device.
  virtual Status checkResident(Kernel &kernel, const LaunchDims &dims);

  /// Runs `dims.grid` CTAs. `args` is read before the call returns.
  virtual Status launch(Stream &stream, Kernel &kernel, const LaunchDims &dims,
                        const LaunchArgs &args) = 0;
  virtual Status record(Stream &stream, Event &event) = 0;
  virtual Status wait(Stream &stream, Event &event) = 0;
  /// Waits until all work of the stream is done.
  virtual Status synchronize(Stream &stream) = 0;

  /// Records work that this thread gives to the stream from here on, instead of
  /// executing it. Devices without graphs return `unavailable`.
  virtual Status beginCapture(Stream &stream) = 0;
  /// Ends the capture, even if it has failed.
  virtual Result<std::unique_ptr<Graph>> endCapture(Stream &stream) = 0;
  virtual Result<StreamState> inspect(Stream &stream) = 0;
  Result<bool> isCapturing(Stream &stream);
  /// Makes the graph that `stream` is being captured into own `owned`, until
  /// the graph and everything instantiated from it are destroyed. The device
  /// frees `owned` in a later call that allocates, loads, or destroys a stream
  /// or a graph.
  virtual Status retain(Stream &stream, std::shared_ptr<const void> owned) = 0;
  virtual Status launchGraph(Stream &stream, Graph &graph) = 0;

  /// Devices without bulk tensor copies return `unavailable`.
  virtual Result<TensorMap> encodeTensorMap(const TensorMapRecipe &recipe) = 0;
};

/// A device whose streams are never captured. A device that forwards to another
/// one is none: its streams have the state that the other one knows.
class DeviceWithoutGraphs : public Device {
public:
  Status beginCapture(Stream &stream) override;
  Result<std::unique_ptr<Graph>> endCapture(Stream &stream) override;
  Result<StreamState> inspect(Stream &stream) override;
  Status retain(Stream &stream, std::shared_ptr<const void> owned) override;
  Status launchGraph(Stream &stream, Graph &graph) override;
};

/// Captures the work that `body` gives to `stream` as a graph.
Result<std::unique_ptr<Graph>>
captureGraph(Device &device, Stream &stream,
             const std::function<Status()> &body);

} // namespace moert

#endif // MOERT_DEVICE_H
