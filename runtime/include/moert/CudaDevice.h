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
/// `library`, else what the environment variable MOERT_CUDA_LIBRARY names, else
/// libcuda.so.1. Answers `unavailable` where there is no driver or no GPU.
///
/// The device shares the primary context with the rest of the process. Each
/// call makes it current for its own length, whatever was current before, so
/// that any thread may call. Calls are asynchronous but for copies, allocation
/// and loading.
Result<std::unique_ptr<Device>>
createCudaDevice(int ordinal, const std::string &library = "");

/// How many GPUs the driver shows to this process.
Result<int> countCudaDevices(const std::string &library = "");

} // namespace moert

#endif // MOERT_CUDADEVICE_H
