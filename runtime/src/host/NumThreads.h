//===- NumThreads.h - how many threads the host device has ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_HOST_NUMTHREADS_H
#define MOERT_SRC_HOST_NUMTHREADS_H

#include "moert/Status.h"

#include <optional>
#include <string>

namespace moert {

inline constexpr int kMaxHostThreads = 4096;

/// The CPUs that the process's control group may use, rounded up: the least
/// quota of `cpu.max` (cgroup v2) from the group in `groups` (the contents of
/// /proc/self/cgroup) up to the root `folder` (/sys/fs/cgroup). None without a
/// quota.
std::optional<int> readCpuQuota(const std::string &groups,
                                const std::string &folder);

/// The threads of a host device by default: the variable MOEC_NUM_THREADS, else
/// OMP_NUM_THREADS (the first number of its list), else the cores that the
/// process may run on, at most the CPU quota of its control group. Fails if a
/// variable is no number from 1 to kMaxHostThreads.
Result<int> chooseNumThreads();

} // namespace moert

#endif // MOERT_SRC_HOST_NUMTHREADS_H
