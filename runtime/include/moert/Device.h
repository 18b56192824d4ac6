//===- Device.h - what a plan needs of a device -----------------*- C++ -*-===//
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
/// launch argument: a data pointer, or the value of a scalar. (On CUDA the same
/// slots become `kernelParams[i] = &args[i]`.)
using HostKernelFn = void (*)(const uint64_t *args, int64_t cta);

/// Compiled kernels in the form one kind of device takes.
struct ModuleImage {
  enum class Kind : uint8_t { HostFunctions, Cubin, Ptx };

  Kind kind = Kind::HostFunctions;
  /// HostFunctions: finds a kernel by name. What it captures (a JIT) lives as
  /// long as the module loaded from this image.
  std::function<Result<HostKernelFn>(const std::string &name)> lookup;
  /// Cubin, Ptx: the contents of files. A kernel is in one of them.
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

/// The identity and the capture of a stream.
struct StreamState {
  /// No other stream ever has the number; 0 where the device does not tell, as
  /// in a capture.
  uint64_t id = 0;
  /// The number of the capture that records the work given to the stream,
  /// whoever has begun it; none where the work is done.
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

/// What a kernel gets: slots (see HostKernelFn) and, after them, tensor maps.
struct LaunchArgs {
  const uint64_t *slots = nullptr;
  size_t numSlots = 0;
  const TensorMap *maps = nullptr;
  size_t numMaps = 0;
};

/// How many CTAs a launch has and what each of them gets.
struct LaunchDims {
  /// CTAs.
  int64_t grid = 0;
  /// Threads per CTA; the host device takes no notice of them.
  int64_t block = 0;
  /// Bytes of dynamic shared memory per CTA.
  int64_t shared = 0;
  /// Whether CTAs may begin before the kernel that was launched before on the
  /// stream has ended. Every thread of such a kernel waits for that end
  /// (griddepcontrol.wait) before it touches memory that another kernel uses,
  /// and before its own end. A device may take no notice.
  bool dependent = false;
  /// Whether CTAs wait for each other: all of them have to run at once, which
  /// Device::checkResident() knows of. The host device takes no notice.
  bool resident = false;
  /// Whether its CTAs are taken before those of other streams that wait for
  /// room as well. A device may take no notice.
  bool urgent = false;
};

/// One device. All calls are safe from several threads; work on one stream runs
/// in the order of the calls. Objects made by a device die before it.
class Device {
public:
  virtual ~Device();

  virtual const std::string &name() const = 0;
  /// "sm_90" on a GPU of compute capability 9.0; empty where images are not
  /// chosen by architecture.
  virtual std::string architecture() const;
  /// On a GPU: its multiprocessors; 0 where kernels are not chosen by it.
  virtual int64_t multiprocessors() const;
  /// On a GPU: bytes of its memory, used or not; 0 where that is not known.
  virtual int64_t memoryBytes() const;
  /// Whether it runs cubins; if not, it takes PTX.
  virtual bool takesMachineCode() const;
  /// Success where kernels compiled for `target` run here.
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

  virtual Result<std::unique_ptr<Module>>
  loadModule(const ModuleImage &image) = 0;

  virtual Result<std::unique_ptr<Stream>> createStream() = 0;
  /// A stream of the caller's (on CUDA a CUstream, null being the default
  /// stream), which outlives the object and is not destroyed with it.
  virtual Result<std::unique_ptr<Stream>> wrapStream(void *native);
  virtual Result<std::unique_ptr<Event>> createEvent() = 0;

  /// An event for elapsedSeconds(), which costs more than others. Devices
  /// without a clock answer `unavailable`.
  virtual Result<std::unique_ptr<Event>> createTimedEvent();
  /// Seconds of the device between two recorded events that are complete.
  virtual Result<double> elapsedSeconds(Event &from, Event &to);

  /// Success where kernels of this device can reach `address`.
  virtual Status checkAddress(const void *address) const;

  /// Success where all CTAs of such a launch of `kernel` can run at once, when
  /// all other work has ended.
  virtual Status checkResident(Kernel &kernel, const LaunchDims &dims);

  /// Runs `dims.grid` CTAs. `args` is read before the call returns.
  virtual Status launch(Stream &stream, Kernel &kernel, const LaunchDims &dims,
                        const LaunchArgs &args) = 0;
  virtual Status record(Stream &stream, Event &event) = 0;
  virtual Status wait(Stream &stream, Event &event) = 0;
  /// Returns when all work of the stream is done.
  virtual Status synchronize(Stream &stream) = 0;

  /// From here on work that is given to the stream, by this thread, is recorded
  /// and not done. Devices without graphs answer `unavailable`.
  virtual Status beginCapture(Stream &stream);
  /// Ends the capture, also where it has failed.
  virtual Result<std::unique_ptr<Graph>> endCapture(Stream &stream);
  virtual Result<StreamState> inspect(Stream &stream);
  Result<bool> isCapturing(Stream &stream);
  /// `stream` is being captured: the graph owns `owned`, until it and all that
  /// was instantiated from it are destroyed. The device frees `owned` later,
  /// with a call that allocates, loads, or ends a stream or a graph.
  virtual Status retain(Stream &stream, std::shared_ptr<const void> owned);
  virtual Status launchGraph(Stream &stream, Graph &graph);

  /// Devices without bulk tensor copies answer `unavailable`.
  virtual Result<TensorMap> encodeTensorMap(const TensorMapRecipe &recipe) = 0;
};

/// The work that `body` gives to `stream`, as a graph.
Result<std::unique_ptr<Graph>>
captureGraph(Device &device, Stream &stream,
             const std::function<Status()> &body);

} // namespace moert

#endif // MOERT_DEVICE_H
