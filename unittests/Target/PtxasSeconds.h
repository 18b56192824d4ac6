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

/// Seconds of processor time that ptxas takes for a kernel, to hold against
/// ptxas::kMaxSeconds: those of a machine that takes a certain time for a
/// kernel without meaning, whatever this one is and whatever else it does.
/// `first` are those of a run that was made already. Kernels that are quick
/// enough are not assembled again.
double getPtxasSeconds(const std::string &ptx, const std::string &chip,
                       double first);

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_PTXASSECONDS_H
