//===- DeviceCases.h - tests of the runtime on a GPU ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_DEVICE_DEVICECASES_H
#define MOEC_VERIFY_GPUTEST_DEVICE_DEVICECASES_H

#include "../Check/LayerCase.h"

namespace moec::gputest {

/// Tests of the runtime on a GPU with handwritten kernels. \p shared is set
/// before a case runs.
std::vector<Case> makeDeviceCases(const std::unique_ptr<SuiteContext> &shared);

/// Tests of the generator's kernel against the generator in C++.
std::vector<Case>
makeGeneratorCases(const std::unique_ptr<SuiteContext> &shared);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_DEVICE_DEVICECASES_H
