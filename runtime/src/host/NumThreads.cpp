//===- NumThreads.cpp - how many threads the host device has --------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NumThreads.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <sched.h>
#include <unistd.h>

namespace moert {

/// Cores that this process may run on, possibly fewer than the machine has.
static int countCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0)
    return std::max(CPU_COUNT(&cores), 1);
  return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

/// The quota in a file such as "150000 100000"; none for "max 100000", and
/// without the file.
static std::optional<int> readQuotaFile(const std::string &path) {
  std::ifstream file(path);
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0)
    return std::nullopt;
  double cpus = std::min(quota / period, double(kMaxHostThreads));
  return std::max(static_cast<int>(cpus) + (cpus > static_cast<int>(cpus)), 1);
}

std::optional<int> readCpuQuota(const std::string &groups,
                                const std::string &folder) {
  std::istringstream lines(groups);
  std::string line, group;
  bool isUnified = false;
  while (!isUnified && std::getline(lines, line)) {
    isUnified = line.rfind("0::/", 0) == 0;
    group = line.substr(std::min<size_t>(3, line.size()));
  }
  if (!isUnified)
    return std::nullopt;
  std::optional<int> least;
  for (bool isRoot = false; !isRoot;) {
    isRoot = group.empty() || group == "/";
    if (std::optional<int> quota =
            readQuotaFile(folder + (isRoot ? "" : group) + "/cpu.max"))
      least = std::min(least.value_or(*quota), *quota);
    group.erase(isRoot ? 0 : group.rfind('/'));
  }
  return least;
}

/// The number in a variable; none if it is not set or empty.
static Result<std::optional<int>> readVariable(const char *name, bool isList) {
  const char *value = getenv(name);
  std::string text = value ? value : "";
  if (text.empty())
    return std::optional<int>();
  std::string first = isList ? text.substr(0, text.find(',')) : text;
  int number = 0;
  auto [end, error] =
      std::from_chars(first.data(), first.data() + first.size(), number);
  if (error != std::errc() || end != first.data() + first.size() ||
      number < 1 || number > kMaxHostThreads)
    return invalidArgument(std::string(name) + " is '" + text +
                           "'; a number of threads from 1 to " +
                           std::to_string(kMaxHostThreads) + " is expected");
  return std::optional<int>(number);
}

Result<int> chooseNumThreads() {
  Result<std::optional<int>> own =
      readVariable("MOEC_NUM_THREADS", /*isList=*/false);
  if (!own)
    return own.status();
  if (*own)
    return **own;
  Result<std::optional<int>> common =
      readVariable("OMP_NUM_THREADS", /*isList=*/true);
  if (!common)
    return common.status();
  if (*common)
    return **common;
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream groups;
  groups << file.rdbuf();
  int cores = countCores();
  return std::min(cores,
                  readCpuQuota(groups.str(), "/sys/fs/cgroup").value_or(cores));
}

} // namespace moert
