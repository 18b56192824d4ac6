//===- PtxasSeconds.h - what a kernel takes ptxas ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TARGET_PTXASSECONDS_H
#define MOEC_UNITTESTS_TARGET_PTXASSECONDS_H

#include <string>

namespace moec::test {

/// Seconds of processor time that ptxas takes for a kernel, for comparison with
/// ptxas::kMaxSeconds. Normalized by the time of a fixed kernel, so that the
/// machine and its load do not matter. `first` is the time of an earlier run.
/// Kernels that are quick enough are not assembled again.
double getPtxasSeconds(const std::string &ptx, const std::string &chip,
                       double first);

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_PTXASSECONDS_H
