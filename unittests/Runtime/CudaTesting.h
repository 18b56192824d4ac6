//===- CudaTesting.h - an emulated GPU --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_CUDATESTING_H
#define MOEC_UNITTESTS_RUNTIME_CUDATESTING_H

#include "Fake/FakeCuda.h"
#include "moert/Device.h"
#include "moert/Plan.h"

namespace moert::test {

/// Paths of the emulated driver and of a library without any function.
extern const char *const kFakeDriver;
extern const char *const kEmptyLibrary;

/// The emulated driver, reset, with the kernels of makePlan().
FakeCuda &resetFakeCuda();

/// makePlan() for a GPU. prepare_scale has a tensor map over `scale`, spread
/// has one over `x` and one over `h`; reduce is resident.
Plan makeGpuPlan();

/// The kernels of makePlan() in two modules for the emulated driver.
std::vector<std::vector<uint8_t>> makePtxModules(const std::string &target);

/// An image of them for sm_80.
ModuleImage makePtxImage();

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_CUDATESTING_H
