//===- Context.h - the context of a GPU -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_CUDA_CONTEXT_H
#define MOERT_SRC_CUDA_CONTEXT_H

#include "Driver.h"

namespace moert::cuda {

/// The primary context of a GPU, retained while this object lives.
class Context {
public:
  static Result<std::shared_ptr<Context>>
  create(std::shared_ptr<const Driver> driver, int ordinal);
  /// Opens the driver library `library`, as Driver::open() does.
  static Result<std::shared_ptr<Context>> open(const std::string &library,
                                               int ordinal);

  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  const Driver &driver() const { return *theDriver; }
  std::shared_ptr<const Driver> sharedDriver() const { return theDriver; }
  CUdevice device() const { return theDevice; }
  CUcontext handle() const { return context; }

  /// Calls `body`, which returns a Status, with this context current on the
  /// calling thread, and restores the previous context.
  template <typename Body>
  Status within(Body body) const {
    CUcontext current = nullptr;
    MOERT_CUDA(driver(), cuCtxGetCurrent, (&current));
    if (current == context)
      return body();
    MOERT_CUDA(driver(), cuCtxPushCurrent, (context));
    Status status = body();
    CUresult popped = driver().cuCtxPopCurrent(&current);
    return status ? driver().check(popped, "cuCtxPopCurrent") : status;
  }

  /// Like within(), for calls that allocate, free or copy: sets the relaxed
  /// capture mode, so that captures of streams neither forbid nor record these
  /// calls.
  template <typename Body>
  Status besideCaptures(Body body) const {
    return within([&]() -> Status {
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      MOERT_CUDA(driver(), cuThreadExchangeStreamCaptureMode, (&mode));
      Status status = body();
      CUresult restored = driver().cuThreadExchangeStreamCaptureMode(&mode);
      return status
                 ? driver().check(restored, "cuThreadExchangeStreamCaptureMode")
                 : status;
    });
  }

  /// Like besideCaptures(), for `body` that frees objects and returns nothing.
  /// Errors cannot be reported, so it is tried again if the context cannot be
  /// made current.
  template <typename Body>
  void finallyWithin(Body body) const {
    bool done = false;
    for (int attempt = 0; attempt < 2 && !done; ++attempt)
      (void)besideCaptures([&] {
        body();
        done = true;
        return Status::ok();
      });
  }

private:
  Context(std::shared_ptr<const Driver> driver, CUdevice device)
      : theDriver(std::move(driver)), theDevice(device) {}

  const std::shared_ptr<const Driver> theDriver;
  const CUdevice theDevice;
  CUcontext context = nullptr;
};

} // namespace moert::cuda

#endif // MOERT_SRC_CUDA_CONTEXT_H
