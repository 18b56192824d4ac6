//===- Context.cpp - the context of a GPU -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Context.h"

namespace moert::cuda {

Result<std::shared_ptr<Context>>
Context::create(std::shared_ptr<const Driver> driver, int ordinal) {
  MOERT_CUDA(*driver, cuInit, (0));
  int count = 0;
  MOERT_CUDA(*driver, cuDeviceGetCount, (&count));
  if (count == 0)
    return unavailable("the driver shows no GPU to this process; check "
                       "nvidia-smi and CUDA_VISIBLE_DEVICES");
  if (ordinal < 0 || ordinal >= count)
    return outOfRange("GPU " + std::to_string(ordinal) +
                      " was requested; 0 to " + std::to_string(count - 1) +
                      " exist");
  CUdevice device = 0;
  MOERT_CUDA(*driver, cuDeviceGet, (&device, ordinal));
  std::shared_ptr<Context> made(new Context(std::move(driver), device));
  MOERT_CUDA(made->driver(), cuDevicePrimaryCtxRetain,
             (&made->context, device));
  return made;
}

Result<std::shared_ptr<Context>> Context::open(const std::string &library,
                                               int ordinal) {
  Result<std::shared_ptr<const Driver>> driver = Driver::open(library);
  if (!driver)
    return driver.status();
  return create(std::move(*driver), ordinal);
}

Context::~Context() {
  if (context)
    (void)driver().cuDevicePrimaryCtxRelease(theDevice);
}

} // namespace moert::cuda
