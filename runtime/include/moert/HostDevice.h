//===- HostDevice.h - the CPU as a device -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_HOSTDEVICE_H
#define MOERT_HOSTDEVICE_H

#include "moert/Device.h"

#include <memory>

namespace moert {

/// Runs host kernels on a pool of threads that take CTAs from a shared counter.
/// A launch returns when its last CTA is done, so streams are in order by
/// construction; launches from several threads share the pool.
///
/// `numThreads` includes the launching thread; 0 means $MOEC_NUM_THREADS, else
/// $OMP_NUM_THREADS, else all cores that this process may use, within the CPU
/// quota of its control group. Fails if the threads cannot be created, or if a
/// variable is no number of threads.
Result<std::unique_ptr<Device>> createHostDevice(int numThreads = 0);

/// Asks the kernel once for this process's permission to use AMX tile
/// registers, which threads and children inherit. False if the CPU or the
/// kernel has none, or if a thread's alternate signal stack is too small for
/// them.
bool allowTileRegisters();

} // namespace moert

#endif // MOERT_HOSTDEVICE_H
