//===- Timing.h - run times and load times of a layer -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_TIMING_H
#define MOEC_LIB_TOOLS_RUN_TIMING_H

#include "moert/Package.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace moec {

/// The times of `repeat` runs of the executor, ascending. `run` enqueues one on
/// the stream; each run is waited for, and timed by the host's clock.
moert::Result<std::vector<double>>
timeOnHost(moert::Device &device, moert::Executor &executor,
           moert::Stream &stream, int64_t repeat,
           llvm::function_ref<moert::Status()> run);
/// The times of `repeat` runs by the device's clock, between back-to-back runs.
moert::Result<std::vector<double>>
timeOnGpu(moert::Device &device, moert::Executor &executor,
          moert::Stream &stream, int64_t repeat,
          llvm::function_ref<moert::Status()> run);

/// Loads what the device runs of the package, in addition to the run's own
/// load, and prints the time for that, and the sum with the `seconds` that went
/// before.
moert::Status printLoadTimes(const moert::Package &package,
                             const moert::PackageChoice &choice,
                             moert::Device &device, double seconds,
                             llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_TIMING_H
