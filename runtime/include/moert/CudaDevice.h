//===- CudaDevice.h - an NVIDIA GPU as a device -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_CUDADEVICE_H
#define MOERT_CUDADEVICE_H

#include "moert/Device.h"

#include <memory>
#include <string>

namespace moert {

/// GPU number `ordinal` through the driver, which is opened at run time:
/// `library`, else the environment variable MOERT_CUDA_LIBRARY, else
/// libcuda.so.1. Returns `unavailable` if there is no driver or no GPU.
///
/// The device shares the primary context with the rest of the process. Each
/// call makes it current for its duration, whatever was current before, so that
/// any thread may call. Calls are asynchronous except copies, allocation and
/// loading.
Result<std::unique_ptr<Device>>
createCudaDevice(int ordinal, const std::string &library = "");

/// Number of GPUs that the driver shows to this process.
Result<int> countCudaDevices(const std::string &library = "");

} // namespace moert

#endif // MOERT_CUDADEVICE_H
