//===- Objects.h - objects of a CUDA device ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_CUDA_OBJECTS_H
#define MOERT_SRC_CUDA_OBJECTS_H

#include "Context.h"
#include "moert/Device.h"

#include <atomic>
#include <map>
#include <mutex>

namespace moert::cuda {

/// A handle of the driver and its context. Destructors cannot report a failure;
/// the driver reports it again at the next call.
template <typename Base, typename Handle>
class Owned : public Base {
public:
  explicit Owned(std::shared_ptr<const Context> context)
      : context(std::move(context)) {}

  Handle handle{};

protected:
  const std::shared_ptr<const Context> context;
};

class CudaBuffer : public Owned<Buffer, CUdeviceptr> {
public:
  CudaBuffer(std::shared_ptr<const Context> context, size_t bytes,
             size_t alignment)
      : Owned(std::move(context)), bytes(bytes), alignment(alignment) {}
  ~CudaBuffer() override;

  void *data() const override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the driver.
    return reinterpret_cast<void *>((handle + alignment - 1) / alignment *
                                    alignment);
  }
  size_t size() const override { return bytes; }

private:
  const size_t bytes;
  const size_t alignment;
};

class CudaStream : public Owned<Stream, CUstream> {
public:
  CudaStream(std::shared_ptr<const Context> context, bool isOurs)
      : Owned(std::move(context)), isOurs(isOurs) {}
  ~CudaStream() override;

private:
  const bool isOurs;
};

class CudaEvent : public Owned<Event, CUevent> {
public:
  using Owned::Owned;
  ~CudaEvent() override;
};

class CudaGraph : public Owned<Graph, CUgraphExec> {
public:
  using Owned::Owned;
  ~CudaGraph() override;

  /// Objects that the graph uses, kept alive as long as the graph.
  std::vector<std::shared_ptr<const void>> owned;
};

class CudaKernel : public Kernel {
public:
  CudaKernel(std::string name, CUfunction function, int maxThreads)
      : function(function), maxThreads(maxThreads),
        kernelName(std::move(name)) {}
  const std::string &name() const override { return kernelName; }

  const CUfunction function; // NOLINT(misc-misplaced-const): of a handle.
  const int maxThreads;
  /// Bytes of dynamic shared memory granted by the driver so far.
  std::atomic<int64_t> grantedShared{48 * 1024};

private:
  const std::string kernelName;
};

/// The modules of an image; a kernel is in one of them.
class CudaModule : public Owned<Module, std::vector<CUmodule>> {
public:
  using Owned::Owned;
  ~CudaModule() override;

  /// `names` are the module's kernels; empty if they could not be read.
  void add(CUmodule module, const std::vector<std::string> &names);
  Result<Kernel *> kernel(const std::string &name) override;

private:
  Result<CUfunction> findFunction(const std::string &name) const;

  std::map<std::string, CUmodule> moduleOf;
  /// Modules whose kernel names only the driver knows.
  std::vector<CUmodule> others;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<CudaKernel>> kernels;
};

/// Loads cubins or PTX. `driverVersion` is cuDriverGetVersion()'s.
Result<std::unique_ptr<Module>>
loadModule(const std::shared_ptr<const Context> &context,
           const ModuleImage &image, int driverVersion);

/// The first CUDA version, as 1000 * major + 10 * minor, whose driver takes the
/// PTX version of this text; 0 if that is missing or unknown.
int neededDriver(const std::string &ptx);

Result<TensorMap> encodeTensorMap(const Driver &driver,
                                  const TensorMapRecipe &recipe);

} // namespace moert::cuda

#endif // MOERT_SRC_CUDA_OBJECTS_H
