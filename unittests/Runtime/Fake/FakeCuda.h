//===- FakeCuda.h - a CUDA driver without a GPU -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_FAKE_FAKECUDA_H
#define MOEC_UNITTESTS_RUNTIME_FAKE_FAKECUDA_H

#include "../../../runtime/src/cuda/Api.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace moert::test {

/// The state of the shared library `fakecuda`, returned by its function
/// fakeCudaState. The library has the driver's functions and emulates a device:
/// memory is the host's; work is done immediately, or recorded if the stream is
/// being captured. Calls of several threads are serialized; a test accesses the
/// state only while it is the only thread.
struct FakeCuda {
  /// Injects `failCode` into call number `failAt` (from 1), counting only
  /// `failCall` if that is not empty; 0 injects nothing. A releasing call still
  /// releases, as in the real driver when it reports an earlier failure.
  int failAt = 0;
  std::string failCall;
  cuda::CUresult failCode = cuda::CUDA_ERROR_LAUNCH_FAILED;
  /// Makes cuGetProcAddress find nothing, like an old driver.
  bool hasNoProcAddress = false;
  int numDevices = 2;
  int major = 9, minor = 0;
  int driverVersion = 12080;
  int multiprocessors = 132;
  /// Reported size of the device's memory, in bytes.
  size_t totalMemory = size_t(80) << 30;
  /// Bytes that can be allocated in all.
  size_t memory = size_t(1) << 30;
  /// The PTX compiler's log; if not empty, loading fails.
  std::string compilerLog;

  /// Runs a kernel; without it launches do nothing.
  std::function<void(const std::string &name, const uint64_t *args,
                     int64_t grid)>
      kernel;
  /// Number of a kernel's arguments, -1 for a name that is not in the module.
  std::function<int(const std::string &name)> numArgs;

  /// Whether a stream has unfinished work; if not set, never.
  std::function<bool(cuda::CUstream stream)> isBusy;

  /// Number of tensor maps after a kernel's arguments; if not set, 0.
  std::function<int(const std::string &name)> numMaps;

  /// A tensor map as passed to the driver, innermost dimension first.
  struct Map {
    uint64_t address = 0;
    cuda::CUtensorMapDataType type = cuda::CU_TENSOR_MAP_DATA_TYPE_UINT8;
    std::vector<uint64_t> sizes, strides;
    std::vector<uint32_t> box;
    cuda::CUtensorMapSwizzle swizzle = cuda::CU_TENSOR_MAP_SWIZZLE_NONE;
  };
  /// A map's 128 bytes begin with its number in this list, from 1.
  std::vector<Map> maps;
  /// Per launch with maps: the kernel's name and the numbers of its maps,
  /// "product 1 3".
  std::vector<std::string> mapsOfLaunches;

  /// Calls since the last reset(), except those that only name errors.
  std::vector<std::string> calls;
  /// Launches: "name grid block shared", with " dependent" appended to
  /// dependent launches.
  std::vector<std::string> launches;
  /// Dynamic shared memory granted per kernel.
  std::map<std::string, int> granted;
  /// Current contexts per thread, innermost last.
  std::map<std::thread::id, std::vector<cuda::CUcontext>> current;

  struct Allocation {
    size_t size = 0;
    int device = 0;
  };
  std::map<cuda::CUdeviceptr, Allocation> allocations;
  /// Whether GPUs have peer access, and which contexts have enabled it to
  /// which.
  bool hasPeers = true;
  std::set<std::pair<cuda::CUcontext, cuda::CUcontext>> peerAccess;
  /// Number of mappings of other processes' memory, and of frees while memory
  /// was mapped.
  std::map<cuda::CUdeviceptr, int> mapped;
  int freedWhileMapped = 0;
  std::set<void *> modules, streams, events, graphs, graphExecs, userObjects;
  int retained = 0;
  /// Streams under capture, all into one graph, and the number of captures
  /// begun.
  std::set<void *> captured;
  uint64_t numCaptures = 0;
  /// Threads in relaxed capture mode, whose calls no capture forbids.
  std::set<std::thread::id> relaxed;
  /// Whether cuStreamGetId works.
  bool hasStreamIds = true;

  /// A launch, record or wait; `given` lists them in order.
  struct Given {
    std::string call;
    void *stream = nullptr, *event = nullptr;
  };
  std::vector<Given> given;

  /// Lists live objects; empty if there are none.
  std::string leaks() const {
    std::string text;
    auto add = [&](const char *what, size_t count) {
      if (count > 0)
        text += std::to_string(count) + " " + what + "; ";
    };
    add("allocations", allocations.size());
    add("mappings", mapped.size());
    add("modules", modules.size());
    add("streams", streams.size());
    add("events", events.size());
    add("graphs", graphs.size());
    add("instantiated graphs", graphExecs.size());
    add("user objects", userObjects.size());
    add("retained contexts", static_cast<size_t>(retained));
    add("streams in capture", captured.size());
    for (const auto &[thread, contexts] : current)
      add("current contexts", contexts.size());
    return text;
  }

  void reset() { *this = FakeCuda(); }
};

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_FAKE_FAKECUDA_H
