//===- FakeCuda.h - a CUDA driver without a GPU -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_FAKE_FAKECUDA_H
#define MOEC_UNITTESTS_RUNTIME_FAKE_FAKECUDA_H

#include "runtime/src/cuda/Api.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace moert::test {

/// The state of the shared library `fakecuda`, which its function fakeCudaState
/// answers. The library has the driver's functions and emulates a device:
/// memory is the host's, work is done when it is given to a stream, or recorded
/// where the stream is being captured. Calls from several threads take turns;
/// a test touches the state while it is the only thread.
struct FakeCuda {
  /// Call number `failAt` (from 1), of the function `failCall` where that is
  /// not empty, fails with `failCode`; 0: none. A call that releases something
  /// releases it all the same, as the driver does when it reports an earlier
  /// failure.
  int failAt = 0;
  std::string failCall;
  cuda::CUresult failCode = cuda::CUDA_ERROR_LAUNCH_FAILED;
  /// Whether cuGetProcAddress finds nothing, as with an old driver.
  bool hasNoProcAddress = false;
  int numDevices = 2;
  int major = 9, minor = 0;
  int driverVersion = 12080;
  int multiprocessors = 132;
  /// Bytes that the device says it has.
  size_t totalMemory = size_t(80) << 30;
  /// Bytes that can be allocated in all.
  size_t memory = size_t(1) << 30;
  /// What the compiler of PTX says; a message makes loading fail.
  std::string compilerLog;

  /// Runs a kernel; without it launches do nothing.
  std::function<void(const std::string &name, const uint64_t *args,
                     int64_t grid)>
      kernel;
  /// How many arguments a kernel has, -1 for what is no kernel of the module.
  std::function<int(const std::string &name)> numArgs;

  /// Whether a stream has work that is not done; none: never.
  std::function<bool(cuda::CUstream stream)> isBusy;

  /// How many tensor maps a kernel has after its arguments; none: 0.
  std::function<int(const std::string &name)> numMaps;

  /// A tensor map as the driver was asked for it, innermost dimension first.
  struct Map {
    uint64_t address = 0;
    cuda::CUtensorMapDataType type = cuda::CU_TENSOR_MAP_DATA_TYPE_UINT8;
    std::vector<uint64_t> sizes, strides;
    std::vector<uint32_t> box;
    cuda::CUtensorMapSwizzle swizzle = cuda::CU_TENSOR_MAP_SWIZZLE_NONE;
  };
  /// A map's 128 bytes begin with its number in this list, counted from 1.
  std::vector<Map> maps;
  /// Per launch with maps: "name" and the numbers of its maps, "product 1 3".
  std::vector<std::string> mapsOfLaunches;

  /// Calls since the last reset(), without those that only name errors.
  std::vector<std::string> calls;
  /// Launches: "name grid block shared", and " dependent" if one may begin
  /// early.
  std::vector<std::string> launches;
  /// Dynamic shared memory granted per kernel.
  std::map<std::string, int> granted;
  /// The contexts that are current on a thread, innermost last.
  std::map<std::thread::id, std::vector<cuda::CUcontext>> current;

  struct Allocation {
    size_t size = 0;
    int device = 0;
  };
  std::map<cuda::CUdeviceptr, Allocation> allocations;
  /// Whether GPUs have peer access to each other, and which contexts have
  /// enabled it to which.
  bool hasPeers = true;
  std::set<std::pair<cuda::CUcontext, cuda::CUcontext>> peerAccess;
  /// How often memory of another process is mapped here, and how often memory
  /// was freed that was.
  std::map<cuda::CUdeviceptr, int> mapped;
  int freedWhileMapped = 0;
  std::set<void *> modules, streams, events, graphs, graphExecs, userObjects;
  int retained = 0;
  /// Streams that are being captured, all of them into one graph, and how many
  /// captures have begun.
  std::set<void *> captured;
  uint64_t numCaptures = 0;
  /// Threads whose calls no capture forbids.
  std::set<std::thread::id> relaxed;
  /// Whether cuStreamGetId knows streams.
  bool hasStreamIds = true;

  /// One launch, record or wait; `given` has them in order.
  struct Given {
    std::string call;
    void *stream = nullptr, *event = nullptr;
  };
  std::vector<Given> given;

  /// What is alive, as text; empty where nothing is.
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
