//===- Driver.cpp - the CUDA driver, opened at run time ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Driver.h"
#include "../support/Check.h"

#include <cstdlib>

#include <dlfcn.h>

namespace moert::cuda {

Result<std::shared_ptr<const Driver>> Driver::open(const std::string &path) {
  std::string wanted = path;
  if (wanted.empty())
    if (const char *given = getenv("MOERT_CUDA_LIBRARY"))
      wanted = given;
  void *library = nullptr;
  std::string reason, opened;
  // The name without a version exists only in development packages.
  for (const char *name : {"libcuda.so.1", "libcuda.so"}) {
    opened = wanted.empty() ? name : wanted;
    library = dlopen(opened.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library)
      break;
    const char *error = dlerror();
    if (reason.empty() && error)
      reason = error;
    if (!wanted.empty())
      break;
  }
  if (!library)
    return unavailable("the CUDA driver cannot be opened: " + reason +
                       "; install the NVIDIA driver, or run on the CPU");
  std::shared_ptr<Driver> driver(new Driver(library, opened));
  MOERT_CHECK(driver->findSymbols());
  return std::shared_ptr<const Driver>(std::move(driver));
}

void *Driver::find(const char *name, const char *exported, int version) const {
  void *function = nullptr;
  if (getProcAddress) {
    int how = 0;
    if (getProcAddress(name, &function, version, /*flags=*/0, &how) !=
        CUDA_SUCCESS)
      function = nullptr;
  } else if (oldGetProcAddress) {
    if (oldGetProcAddress(name, &function, version, /*flags=*/0) !=
        CUDA_SUCCESS)
      function = nullptr;
  }
  return function ? function : dlsym(library, exported);
}

Status Driver::findSymbols() {
  getProcAddress =
      reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  oldGetProcAddress =
      reinterpret_cast<OldGetProcAddress>(dlsym(library, "cuGetProcAddress"));
  auto missing = [&](const char *name, int version) {
    return unavailable(path + " has no function " + name + ", which CUDA " +
                       std::to_string(version / 1000) + "." +
                       std::to_string(version % 1000 / 10) +
                       " provides; update the NVIDIA driver");
  };
// NOLINTBEGIN(bugprone-macro-parentheses): these are a name and a type.
#define CUDA_SYMBOL(name, exported, version, parameters)                       \
  name = reinterpret_cast<CUresult(*) parameters>(                             \
      find(#name, #exported, version));                                        \
  if (!name)                                                                   \
    return missing(#name, version);
#define CUDA_OPTIONAL_SYMBOL(name, exported, version, parameters)              \
  name = reinterpret_cast<CUresult(*) parameters>(                             \
      find(#name, #exported, version));
#include "Symbols.def"
  // NOLINTEND(bugprone-macro-parentheses)
  return Status::ok();
}

static StatusCode statusCode(CUresult code) {
  switch (code) {
  case CUDA_ERROR_OUT_OF_MEMORY:
    return StatusCode::ResourceExhausted;
  case CUDA_ERROR_NOT_INITIALIZED:
  case CUDA_ERROR_DEINITIALIZED:
  case CUDA_ERROR_STUB_LIBRARY:
  case CUDA_ERROR_DEVICE_UNAVAILABLE:
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
  case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
  case CUDA_ERROR_NOT_SUPPORTED:
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    return StatusCode::Unavailable;
  case CUDA_ERROR_NOT_FOUND:
    return StatusCode::NotFound;
  case CUDA_ERROR_INVALID_VALUE:
  case CUDA_ERROR_INVALID_DEVICE:
  case CUDA_ERROR_INVALID_IMAGE:
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
  case CUDA_ERROR_INVALID_PTX:
  case CUDA_ERROR_INVALID_SOURCE:
    return StatusCode::InvalidArgument;
  default:
    return StatusCode::Internal;
  }
}

static const char *remedy(CUresult code) {
  switch (code) {
  case CUDA_ERROR_OUT_OF_MEMORY:
    return "free device memory, or use fewer tokens or experts";
  case CUDA_ERROR_NOT_INITIALIZED:
  case CUDA_ERROR_DEINITIALIZED:
    return "the process is ending or the driver was shut down; make the call "
           "earlier";
  case CUDA_ERROR_STUB_LIBRARY:
    return "the opened library is the toolkit's stub; install the NVIDIA "
           "driver";
  case CUDA_ERROR_DEVICE_UNAVAILABLE:
    return "another process has exclusive use of the GPU; choose another GPU";
  case CUDA_ERROR_NO_DEVICE:
    return "no GPU is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES";
  case CUDA_ERROR_INVALID_DEVICE:
    return "choose a device that nvidia-smi lists";
  case CUDA_ERROR_INVALID_IMAGE:
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
    return "the image is for another architecture or damaged; compile again "
           "for the target of this device";
  case CUDA_ERROR_INVALID_PTX:
  case CUDA_ERROR_INVALID_SOURCE:
    return "the PTX does not assemble; compile again for the target of this "
           "device, and report it if that does not help";
  case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    return "the driver has no PTX compiler; compile to cubin by ptxas";
  case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    return "the driver is older than the PTX; update it, or compile to cubin "
           "by ptxas";
  case CUDA_ERROR_NOT_FOUND:
    return "the module lacks the kernel; compile module and plan together";
  case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    return "the kernel needs more registers or shared memory than a CTA of "
           "this device has; compile for the target of this device";
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_LAUNCH_FAILED:
    return "a kernel of this process failed and the context is lost; check "
           "that bound tensors live until their runs are complete, and run "
           "compute-sanitizer";
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    return "driver library and kernel module differ; restart after the driver "
           "update";
  default:
    if (code >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
        code <= CUDA_ERROR_STREAM_CAPTURE_LAST)
      return "the stream is being captured; allocate, prepare weights and run "
             "once before the capture";
    return "look for an earlier failure, and report it if there is none";
  }
}

Status Driver::check(CUresult code, const char *call) const {
  if (code == CUDA_SUCCESS)
    return Status::ok();
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(code, &name) != CUDA_SUCCESS || !name)
    name = "an unknown error of this driver";
  if (cuGetErrorString(code, &text) != CUDA_SUCCESS || !text)
    text = "no description";
  return Status(statusCode(code), std::string(call) + ": " + name + " (" +
                                      std::to_string(static_cast<int>(code)) +
                                      "): " + text + "; " + remedy(code));
}

} // namespace moert::cuda
