//===- Retained.cpp - objects that captured graphs own ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Retained.h"

#include <mutex>
#include <vector>

namespace moert::cuda {

namespace {

using SharedObject = std::shared_ptr<const void>;

/// Objects that destroyed graphs owned, over all devices.
struct Released {
  std::mutex mutex;
  std::vector<SharedObject> objects;
};

} // namespace

/// Never destroyed, since graphs may be destroyed at process exit.
static Released &getReleased() {
  static auto *released = new Released();
  return *released;
}

/// Called by the driver's threads.
static void release(void *data) {
  std::unique_ptr<SharedObject> owned(static_cast<SharedObject *>(data));
  Released &released = getReleased();
  std::lock_guard<std::mutex> lock(released.mutex);
  released.objects.push_back(std::move(*owned));
}

Status retainInGraph(const Driver &driver, CUstream stream,
                     SharedObject owned) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  MOERT_CUDA(driver, cuStreamGetCaptureInfo,
             (stream, &status, nullptr, &graph, nullptr, nullptr));
  if (!graph)
    return driver.check(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                        "cuStreamGetCaptureInfo");
  auto held = std::make_unique<SharedObject>(std::move(owned));
  CUuserObject object = nullptr;
  MOERT_CUDA(
      driver, cuUserObjectCreate,
      (&object, held.get(), release, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  (void)held.release();
  CUresult code = driver.cuGraphRetainUserObject(graph, object, 1,
                                                 CU_GRAPH_USER_OBJECT_MOVE);
  if (code != CUDA_SUCCESS)
    (void)driver.cuUserObjectRelease(object, 1);
  return driver.check(code, "cuGraphRetainUserObject");
}

void freeReleased() {
  std::vector<SharedObject> freed;
  Released &released = getReleased();
  std::lock_guard<std::mutex> lock(released.mutex);
  freed.swap(released.objects);
}

} // namespace moert::cuda
