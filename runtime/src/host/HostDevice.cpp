//===- HostDevice.cpp - the CPU as a device ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/HostDevice.h"
#include "NumThreads.h"
#include "ThreadPool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include <unistd.h>

namespace moert {

namespace {

class HostBuffer : public Buffer {
public:
  HostBuffer(void *memory, size_t bytes) : memory(memory), bytes(bytes) {}
  ~HostBuffer() override { free(memory); }
  void *data() const override { return memory; }
  size_t size() const override { return bytes; }

private:
  void *memory;
  size_t bytes;
};

class HostKernel : public Kernel {
public:
  HostKernel(std::string name, HostKernelFn function)
      : function(function), kernelName(std::move(name)) {}
  const std::string &name() const override { return kernelName; }

  const HostKernelFn function;

private:
  std::string kernelName;
};

class HostModule : public Module {
public:
  explicit HostModule(const ModuleImage &image) : lookup(image.lookup) {}

  Result<Kernel *> kernel(const std::string &name) override {
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<HostKernel> &slot = kernels[name];
    if (!slot) {
      Result<HostKernelFn> function = lookup(name);
      if (!function)
        return function.status().withContext("kernel '" + name + "'");
      if (!*function)
        return notFound("kernel '" + name +
                        "' is not in the module; compile the module and the "
                        "plan together");
      slot = std::make_unique<HostKernel>(name, *function);
    }
    return slot.get();
  }

private:
  std::function<Result<HostKernelFn>(const std::string &)> lookup;
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<HostKernel>> kernels;
};

/// Launches return when they are complete, so a stream has no state.
class HostStream : public Stream {};

class HostEvent : public Event {
public:
  std::atomic<bool> recorded{false};
};

/// The number of threads to make; an error for one that is not accepted.
static Result<int> checkNumThreads(int numThreads) {
  if (numThreads < 0 || numThreads > kMaxHostThreads)
    return invalidArgument("threads: " + std::to_string(numThreads) +
                           " found; 1 to " + std::to_string(kMaxHostThreads) +
                           ", or 0 for the default, are accepted");
  return numThreads == 0 ? chooseNumThreads() : Result<int>(numThreads);
}

class HostDevice : public DeviceWithoutGraphs {
public:
  explicit HostDevice(std::unique_ptr<ThreadPool> pool)
      : pool(std::move(pool)) {}

  const std::string &name() const override { return deviceName; }

  Status checkTarget(const std::string &target) const override {
    if (target == "cpu")
      return Status::ok();
    return invalidArgument("target '" + target +
                           "' does not run on the host device; compile for the "
                           "target cpu");
  }

  int numThreads() const override { return pool->getNumThreads(); }

  Status setNumThreads(int numThreads) override {
    Result<int> count = checkNumThreads(numThreads);
    return count ? pool->resize(*count) : count.status();
  }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes,
                                           size_t alignment) override {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
      return invalidArgument("allocate: alignment " +
                             std::to_string(alignment) +
                             " is not a power of two");
    // Memory beyond the machine's would be granted and later kill the process.
    size_t physical = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *memory = nullptr;
    if (bytes > physical ||
        (bytes > 0 &&
         posix_memalign(&memory, std::max(alignment, sizeof(void *)), bytes) !=
             0))
      return resourceExhausted("allocate: " + std::to_string(bytes) +
                               " bytes cannot be allocated (the machine has " +
                               std::to_string(physical) +
                               "); use fewer tokens or experts");
    return std::unique_ptr<Buffer>(new HostBuffer(memory, bytes));
  }

  Status copyIn(void *dst, const void *src, size_t bytes) override {
    if (bytes > 0)
      memcpy(dst, src, bytes);
    return Status::ok();
  }

  Status copyOut(void *dst, const void *src, size_t bytes) override {
    return copyIn(dst, src, bytes);
  }

  Status fill(Stream &, void *dst, uint8_t value, size_t bytes) override {
    if (bytes > 0)
      memset(dst, value, bytes);
    return Status::ok();
  }

  Result<std::unique_ptr<Module>>
  loadModule(const ModuleImage &image) override {
    if (image.kind != ModuleImage::Kind::HostFunctions)
      return invalidArgument(std::string("loadModule: the image holds ") +
                             moduleImageKindName(image.kind) +
                             ", but the host device takes host functions");
    if (!image.lookup)
      return invalidArgument("loadModule: the image has no lookup function");
    return std::unique_ptr<Module>(new HostModule(image));
  }

  Result<std::unique_ptr<Stream>> createStream() override {
    return std::unique_ptr<Stream>(new HostStream());
  }

  Result<std::unique_ptr<Event>> createEvent() override {
    return std::unique_ptr<Event>(new HostEvent());
  }

  Status launch(Stream &, Kernel &kernel, const LaunchDims &dims,
                const LaunchArgs &args) override {
    if (dims.grid < 0)
      return invalidArgument("launch of '" + kernel.name() + "': grid " +
                             std::to_string(dims.grid) + " is negative");
    pool->run(static_cast<HostKernel &>(kernel).function, args.slots,
              dims.grid);
    return Status::ok();
  }

  Status record(Stream &, Event &event) override {
    static_cast<HostEvent &>(event).recorded = true;
    return Status::ok();
  }

  Status wait(Stream &, Event &event) override {
    if (static_cast<HostEvent &>(event).recorded)
      return Status::ok();
    return invalidArgument("wait: the event was never recorded");
  }

  Status synchronize(Stream &) override { return Status::ok(); }

  Result<TensorMap> encodeTensorMap(const TensorMapRecipe &) override {
    return unavailable("encodeTensorMap: the host device has no bulk tensor "
                       "copies; choose a schedule without tensor maps");
  }

private:
  const std::string deviceName = "host";
  std::unique_ptr<ThreadPool> pool;
};

} // namespace

Result<std::unique_ptr<Device>> createHostDevice(int numThreads) {
  Result<int> count = checkNumThreads(numThreads);
  if (!count)
    return count.status();
  Result<std::unique_ptr<ThreadPool>> pool = ThreadPool::create(*count);
  if (!pool)
    return pool.status().withContext("createHostDevice");
  return std::unique_ptr<Device>(new HostDevice(std::move(*pool)));
}

} // namespace moert
