//===- FakeCuda.cpp - a CUDA driver without a GPU ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include <dlfcn.h>

using namespace moert::cuda;
using moert::test::FakeCuda;

namespace {

FakeCuda state;
std::mutex mutex;

using Work = std::vector<std::function<void()>>;

/// An object that graphs share. `destroy` is called with the last reference.
struct UserObject {
  void *data;
  CUhostFn destroy;
  unsigned references;
};

/// A captured or instantiated graph.
struct Graph {
  Work work;
  std::vector<UserObject *> owned;
};

std::set<void *> capturedEvents;
Graph *capturing = nullptr;

struct Function {
  std::string name;
  int numArgs;
};

struct Module {
  /// PTX; empty for a cubin.
  std::string text;
  std::vector<Function *> functions;
};

template <typename Handle, typename T>
Handle asHandle(T *object) {
  return reinterpret_cast<Handle>(object);
}

CUresult enter(std::string name) {
  if (name.size() > 3 && name.compare(name.size() - 3, 3, "_v2") == 0)
    name.resize(name.size() - 3);
  state.calls.push_back(name);
  auto calls = static_cast<std::ptrdiff_t>(state.calls.size());
  if (!state.failCall.empty())
    calls = name == state.failCall
                ? std::count(state.calls.begin(), state.calls.end(), name)
                : 0;
  return calls > 0 && calls == state.failAt ? state.failCode : CUDA_SUCCESS;
}

/// Does the work, or records it in the graph.
CUresult give(CUstream stream, std::function<void()> work) {
  if (stream && !state.streams.count(stream))
    return CUresult(400);
  if (state.captured.count(stream))
    capturing->work.push_back(std::move(work));
  else
    work();
  return CUDA_SUCCESS;
}

void releaseObject(UserObject *object, unsigned count) {
  object->references -= count;
  if (object->references > 0)
    return;
  object->destroy(object->data);
  state.userObjects.erase(object);
  delete object;
}

void destroyGraph(Graph *graph) {
  for (UserObject *object : graph->owned)
    releaseObject(object, 1);
  delete graph;
}

/// Whether a capture of any thread forbids calls that wait or allocate.
bool isForbidden() {
  return !state.captured.empty() &&
         !state.relaxed.count(std::this_thread::get_id());
}

std::vector<CUcontext> &current() {
  return state.current[std::this_thread::get_id()];
}

bool hasContext() { return !current().empty(); }

bool isDevice(CUdevice device) {
  return device >= 0 && device < state.numDevices;
}

/// The allocation that contains these bytes, or null.
const FakeCuda::Allocation *findMemory(CUdeviceptr address, size_t bytes) {
  auto after = state.allocations.upper_bound(address);
  if (after == state.allocations.begin())
    return nullptr;
  auto &[base, allocation] = *--after;
  return address + bytes <= base + allocation.size ? &allocation : nullptr;
}

bool inMemory(CUdeviceptr address, size_t bytes) {
  return findMemory(address, bytes) != nullptr;
}

/// Records the maps that a launch passes. Checks that each was encoded, that
/// its memory is allocated, and that maps are aligned like parameters of 128
/// bytes.
CUresult takeMaps(const Function &function, void **params) {
  int numMaps = state.numMaps ? state.numMaps(function.name) : 0;
  std::string text = function.name;
  for (int i = 0; i < numMaps; ++i) {
    auto *map = static_cast<uint64_t *>(params[function.numArgs + i]);
    if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || *map == 0 ||
        *map > state.maps.size() || !inMemory(state.maps[*map - 1].address, 1))
      return CUDA_ERROR_INVALID_VALUE;
    text += " " + std::to_string(*map);
  }
  if (numMaps > 0)
    state.mapsOfLaunches.push_back(text);
  return CUDA_SUCCESS;
}

/// The driver's documented limits for a map with interleave none.
bool isEncodable(const FakeCuda::Map &map, unsigned elementBytes) {
  unsigned swizzle =
      map.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << map.swizzle;
  uint64_t row = uint64_t(map.box[0]) * elementBytes;
  if (map.address % 16 != 0 || row % 16 != 0 || (swizzle && row > swizzle))
    return false;
  for (uint64_t stride : map.strides)
    if (stride % 16 != 0 || stride >= uint64_t(1) << 40)
      return false;
  for (size_t i = 0; i < map.sizes.size(); ++i)
    if (map.sizes[i] < 1 || map.sizes[i] > uint64_t(1) << 32 ||
        map.box[i] < 1 || map.box[i] > 256)
      return false;
  return true;
}

unsigned bytesOf(CUtensorMapDataType type) {
  switch (type) {
  case CU_TENSOR_MAP_DATA_TYPE_UINT8:
    return 1;
  case CU_TENSOR_MAP_DATA_TYPE_UINT16:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
  case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    return 2;
  case CU_TENSOR_MAP_DATA_TYPE_UINT32:
  case CU_TENSOR_MAP_DATA_TYPE_INT32:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    return 4;
  default:
    return 8;
  }
}

/// Maximum dynamic shared memory of a launch.
size_t grantedTo(const Function &function) {
  auto granted = state.granted.find(function.name);
  return granted == state.granted.end() ? 48 * 1024
                                        : static_cast<size_t>(granted->second);
}

/// Handles of contexts are fixed addresses.
CUcontext contextOf(CUdevice device) {
  return reinterpret_cast<CUcontext>(uintptr_t(0x1000) + device);
}

} // namespace

/// Serializes calls of all threads.
#define ALONE std::lock_guard<std::mutex> alone(mutex)
#define ENTER                                                                  \
  ALONE;                                                                       \
  if (CUresult failed = enter(__func__))                                       \
  return failed
#define ENTER_WITH_CONTEXT                                                     \
  ENTER;                                                                       \
  if (!hasContext())                                                           \
  return CUresult(201)

extern "C" {

FakeCuda *fakeCudaState() { return &state; }

/// Number of launches since the library was loaded or reset, for tests in
/// other languages.
size_t fakeCudaNumLaunches() { return state.launches.size(); }

CUresult cuGetErrorName(CUresult code, const char **name) {
  *name = code == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                           : "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char **text) {
  *text = "what the driver says";
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned) {
  ENTER;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  ENTER;
  *version = state.driverVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  ENTER;
  *count = state.numDevices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER;
  if (!isDevice(ordinal))
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice) {
  ENTER;
  strncpy(name, "Fake GPU", static_cast<size_t>(size));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice) {
  ENTER;
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = state.multiprocessors;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = state.major;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = state.minor;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    *value = 227 * 1024;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
  ENTER;
  *bytes = state.totalMemory;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER;
  ++state.retained;
  *context = contextOf(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  ALONE;
  --state.retained;
  return enter(__func__);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  ENTER;
  *context = hasContext() ? current().back() : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER;
  current().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  ALONE;
  if (!hasContext())
    return CUresult(201);
  *context = current().back();
  current().pop_back();
  return enter(__func__);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  ENTER_WITH_CONTEXT;
  size_t used = bytes;
  for (const auto &[base, allocation] : state.allocations)
    used += allocation.size;
  if (bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (isForbidden())
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (used > state.memory)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<uintptr_t>(
      aligned_alloc(256, (bytes + 255) / 256 * 256));
  int device = 0;
  while (current().back() != contextOf(device))
    ++device;
  state.allocations[*address] = {bytes, device};
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  ALONE;
  state.freedWhileMapped += int(state.mapped.count(address));
  if (!state.allocations.erase(address))
    return CUDA_ERROR_INVALID_VALUE;
  free(reinterpret_cast<void *>(static_cast<uintptr_t>(address)));
  return enter(__func__);
}

static void *hostPointer(CUdeviceptr address) {
  return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                              CUstream stream) {
  ENTER_WITH_CONTEXT;
  if (!inMemory(to, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return give(stream, [=] { memcpy(hostPointer(to), from, bytes); });
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  ENTER_WITH_CONTEXT;
  if (!inMemory(from, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return give(stream, [=] { memcpy(to, hostPointer(from), bytes); });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  ENTER_WITH_CONTEXT;
  if (!inMemory(to, bytes) || !inMemory(from, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return give(stream,
              [=] { memcpy(hostPointer(to), hostPointer(from), bytes); });
}

CUresult cuMemcpy2DAsync_v2(const CUmemcpy2D *copy, CUstream stream) {
  ENTER_WITH_CONTEXT;
  size_t rows = copy->Height, bytes = copy->WidthInBytes;
  if (copy->srcMemoryType != CU_MEMORYTYPE_DEVICE ||
      copy->dstMemoryType != CU_MEMORYTYPE_DEVICE || rows == 0 ||
      copy->srcPitch < bytes || copy->dstPitch < bytes ||
      !inMemory(copy->srcDevice, (rows - 1) * copy->srcPitch + bytes) ||
      !inMemory(copy->dstDevice, (rows - 1) * copy->dstPitch + bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return give(stream, [copy = *copy] {
    for (size_t row = 0; row < copy.Height; ++row)
      memcpy(hostPointer(copy.dstDevice + row * copy.dstPitch),
             hostPointer(copy.srcDevice + row * copy.srcPitch),
             copy.WidthInBytes);
  });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                         CUstream stream) {
  ENTER_WITH_CONTEXT;
  if (!inMemory(to, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return give(stream, [=] { memset(hostPointer(to), value, bytes); });
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute,
                               CUdeviceptr address) {
  ENTER;
  const FakeCuda::Allocation *found = findMemory(address, 1);
  if (!found)
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int *>(value) = found->device;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
  ENTER_WITH_CONTEXT;
  if (!state.compilerLog.empty()) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
        strcpy(static_cast<char *>(values[i]), state.compilerLog.c_str());
    return CUDA_ERROR_INVALID_PTX;
  }
  auto *made = new Module();
  const char *text = static_cast<const char *>(image);
  if (strncmp(text, "\177ELF", 4) != 0)
    made->text = text;
  state.modules.insert(made);
  *module = asHandle<CUmodule>(made);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  ALONE;
  if (!state.modules.erase(module))
    return CUDA_ERROR_INVALID_VALUE;
  auto *object = reinterpret_cast<Module *>(module);
  for (Function *function : object->functions)
    delete function;
  delete object;
  return enter(__func__);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name) {
  ENTER_WITH_CONTEXT;
  auto &from = *reinterpret_cast<Module *>(module);
  int numArgs = state.numArgs ? state.numArgs(name) : 0;
  bool isEntry =
      from.text.empty() ||
      from.text.find(".entry " + std::string(name) + "(") != std::string::npos;
  if (numArgs < 0 || !isEntry)
    return CUDA_ERROR_NOT_FOUND;
  auto *made = new Function{name, numArgs};
  from.functions.push_back(made);
  *function = asHandle<CUfunction>(made);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute, CUfunction) {
  ENTER_WITH_CONTEXT;
  *value = 1024;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute,
                            int value) {
  ENTER_WITH_CONTEXT;
  state.granted[reinterpret_cast<Function *>(function)->name] = value;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count,
                                                     CUfunction handle,
                                                     int block, size_t shared) {
  ENTER_WITH_CONTEXT;
  if (block < 1 || shared > grantedTo(*reinterpret_cast<Function *>(handle)))
    return CUDA_ERROR_INVALID_VALUE;
  // 2048 threads, and 228 KB of shared memory, of which each CTA uses one more
  // KB for the system.
  *count = std::min(2048 / block, int(228 * 1024 / (shared + 1024)));
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle,
                          void **params, void **) {
  ENTER_WITH_CONTEXT;
  unsigned grid = config->gridDimX, block = config->blockDimX;
  unsigned shared = config->sharedMemBytes;
  auto &function = *reinterpret_cast<Function *>(handle);
  if (grid == 0 || block == 0 || config->gridDimY != 1 ||
      config->gridDimZ != 1 || config->blockDimY != 1 ||
      config->blockDimZ != 1 || shared > grantedTo(function))
    return CUDA_ERROR_INVALID_VALUE;
  bool isDependent = false, isUrgent = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute &attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      isDependent = attribute.value.programmaticStreamSerializationAllowed == 1;
    else if (attribute.id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
      isUrgent = attribute.value.priority < 0;
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  state.given.push_back({"launch", config->hStream, nullptr});
  state.launches.push_back(
      function.name + " " + std::to_string(grid) + " " + std::to_string(block) +
      " " + std::to_string(shared) + (isDependent ? " dependent" : "") +
      (isUrgent ? " urgent" : ""));
  if (CUresult failed = takeMaps(function, params))
    return failed;
  if (!state.kernel)
    return CUDA_SUCCESS;
  std::vector<uint64_t> args(static_cast<size_t>(function.numArgs));
  for (size_t i = 0; i < args.size(); ++i)
    args[i] = *static_cast<uint64_t *>(params[i]);
  return give(config->hStream, [name = function.name, args, grid] {
    state.kernel(name, args.data(), grid);
  });
}

CUresult cuStreamCreate(CUstream *stream, unsigned) {
  ENTER_WITH_CONTEXT;
  *stream = asHandle<CUstream>(new char);
  state.streams.insert(*stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  ALONE;
  if (!state.streams.erase(stream))
    return CUresult(400);
  delete reinterpret_cast<char *>(stream);
  return enter(__func__);
}

CUresult cuStreamSynchronize(CUstream stream) {
  ENTER_WITH_CONTEXT;
  return state.captured.count(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                      : CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  ENTER_WITH_CONTEXT;
  return state.isBusy && state.isBusy(stream) ? CUDA_ERROR_NOT_READY
                                              : CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  ENTER_WITH_CONTEXT;
  state.given.push_back({"wait", stream, event});
  // Captured work cannot wait for work outside the capture.
  if (state.captured.count(stream) && !capturedEvents.count(event))
    return CUresult(905);
  // Waiting for an event of a capture adds the stream to it.
  if (capturedEvents.count(event))
    state.captured.insert(stream);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned) {
  ENTER_WITH_CONTEXT;
  *event = asHandle<CUevent>(new char);
  state.events.insert(*event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  ALONE;
  if (!state.events.erase(event))
    return CUresult(400);
  delete reinterpret_cast<char *>(event);
  return enter(__func__);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER_WITH_CONTEXT;
  state.given.push_back({"record", stream, event});
  if (state.captured.count(stream))
    capturedEvents.insert(event);
  else
    capturedEvents.erase(event);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
  ENTER_WITH_CONTEXT;
  if (!state.events.count(from) || !state.events.count(to))
    return CUresult(400);
  *milliseconds = 0.25f;
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  ENTER_WITH_CONTEXT;
  if (!state.captured.empty() || !stream)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  capturing = new Graph();
  state.captured = {stream};
  ++state.numCaptures;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream,
                                   CUstreamCaptureStatus *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **,
                                   size_t *) {
  ENTER_WITH_CONTEXT;
  bool isCaptured = state.captured.count(stream) > 0;
  *status =
      isCaptured ? CUstreamCaptureStatus(1) : CU_STREAM_CAPTURE_STATUS_NONE;
  if (isCaptured && id)
    *id = state.numCaptures;
  if (isCaptured && graph)
    *graph = asHandle<CUgraph>(capturing);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, uint64_t *id) {
  ENTER_WITH_CONTEXT;
  if (state.captured.count(stream))
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *id = state.hasStreamIds ? reinterpret_cast<uintptr_t>(stream) + 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ALONE;
  CUresult failed = enter(__func__);
  auto thread = std::this_thread::get_id();
  bool wasRelaxed = state.relaxed.count(thread) > 0;
  if (*mode == CU_STREAM_CAPTURE_MODE_RELAXED && failed == CUDA_SUCCESS)
    state.relaxed.insert(thread);
  else
    state.relaxed.erase(thread);
  *mode = wasRelaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
                     : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  return failed;
}

CUresult cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy,
                            unsigned references, unsigned flags) {
  ENTER_WITH_CONTEXT;
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  auto *made = new UserObject{data, destroy, references};
  state.userObjects.insert(made);
  *object = asHandle<CUuserObject>(made);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  ALONE;
  if (!state.userObjects.count(object))
    return CUDA_ERROR_INVALID_VALUE;
  releaseObject(reinterpret_cast<UserObject *>(object), count);
  return enter(__func__);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object,
                                 unsigned count, unsigned flags) {
  ENTER_WITH_CONTEXT;
  if (count != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE ||
      !state.userObjects.count(object))
    return CUDA_ERROR_INVALID_VALUE;
  reinterpret_cast<Graph *>(graph)->owned.push_back(
      reinterpret_cast<UserObject *>(object));
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  ALONE;
  CUresult failed = enter(__func__);
  if (!state.captured.count(stream))
    return CUDA_ERROR_INVALID_VALUE;
  state.captured.clear();
  capturedEvents.clear();
  Graph *made = std::exchange(capturing, nullptr);
  if (failed) {
    destroyGraph(made);
    return failed;
  }
  state.graphs.insert(made);
  *graph = asHandle<CUgraph>(made);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                     unsigned long long) {
  ENTER_WITH_CONTEXT;
  auto *made = new Graph(*reinterpret_cast<Graph *>(graph));
  for (UserObject *object : made->owned)
    ++object->references;
  state.graphExecs.insert(made);
  *exec = asHandle<CUgraphExec>(made);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ENTER_WITH_CONTEXT;
  for (const auto &work : reinterpret_cast<Graph *>(exec)->work)
    if (CUresult failed = give(stream, work))
      return failed;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ALONE;
  if (!state.graphExecs.erase(exec))
    return CUDA_ERROR_INVALID_VALUE;
  destroyGraph(reinterpret_cast<Graph *>(exec));
  return enter(__func__);
}

CUresult cuGraphDestroy(CUgraph graph) {
  ALONE;
  if (!state.graphs.erase(graph))
    return CUDA_ERROR_INVALID_VALUE;
  destroyGraph(reinterpret_cast<Graph *>(graph));
  return enter(__func__);
}

CUresult cuTensorMapEncodeTiled(void *map, CUtensorMapDataType type,
                                unsigned rank, void *address,
                                const uint64_t *sizes, const uint64_t *strides,
                                const uint32_t *box, const uint32_t *, int,
                                CUtensorMapSwizzle swizzle, int, int) {
  ENTER_WITH_CONTEXT;
  FakeCuda::Map made;
  made.address = reinterpret_cast<uintptr_t>(address);
  made.type = type;
  made.sizes.assign(sizes, sizes + rank);
  made.strides.assign(strides, strides + rank - 1);
  made.box.assign(box, box + rank);
  made.swizzle = swizzle;
  if (rank < 1 || rank > 5 || !isEncodable(made, bytesOf(type)))
    return CUDA_ERROR_INVALID_VALUE;
  state.maps.push_back(made);
  *static_cast<uint64_t *>(map) = state.maps.size();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER;
  *uuid = {};
  uuid->bytes[0] = char(1 + device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice, CUdevice) {
  ENTER;
  *can = state.hasPeers;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  ENTER_WITH_CONTEXT;
  return state.peerAccess.insert({current().back(), peer}).second
             ? CUDA_SUCCESS
             : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
  ENTER_WITH_CONTEXT;
  if (!state.allocations.count(address))
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(handle->reserved, &address, sizeof(address));
  return CUDA_SUCCESS;
}

/// Maps to the same address.
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
                               unsigned) {
  ENTER_WITH_CONTEXT;
  memcpy(address, handle.reserved, sizeof(*address));
  if (!state.allocations.count(*address))
    return CUDA_ERROR_INVALID_VALUE;
  ++state.mapped[*address];
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  ALONE;
  auto found = state.mapped.find(address);
  if (found == state.mapped.end())
    return CUDA_ERROR_INVALID_VALUE;
  if (--found->second == 0)
    state.mapped.erase(found);
  return enter(__func__);
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int, uint64_t,
                             int *) {
  if (state.hasNoProcAddress)
    return CUDA_ERROR_NOT_FOUND;
  Dl_info self;
  dladdr(reinterpret_cast<void *>(&fakeCudaState), &self);
  void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = dlsym(library, (std::string(name) + "_v2").c_str());
  if (!*function)
    *function = dlsym(library, name);
  dlclose(library);
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

} // extern "C"
