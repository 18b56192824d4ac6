//===- SimulatorTesting.h - small kernels for tests -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_PTX_SIM_SIMULATORTESTING_H
#define MOEC_UNITTESTS_PTX_SIM_SIMULATORTESTING_H

#include "moec/PtxSim/Simulator.h"

#include <gtest/gtest.h>

#include <cstring>

namespace moec::ptx::test {

/// A module with one kernel `k(p0, p1, ...)` of 64-bit parameters, followed by
/// tensor maps; `head` has declarations of the module, `body` the kernel's
/// statements. There are registers %p, %rs, %r and %rd; %r0 is the thread, and
/// %rd0, %rd1 ... are the parameters.
std::string kernelText(const std::string &body, unsigned numParams,
                       unsigned threads = 32, const std::string &head = "",
                       unsigned numMaps = 0);

/// Returns `text` without its first `what`, which must exist.
std::string without(const std::string &text, const std::string &what);
std::string replaced(const std::string &text, const std::string &what,
                     const std::string &with);

/// One kernel, run with buffers that the test fills.
class KernelRun {
public:
  explicit KernelRun(const std::string &text, uint64_t seed = 0,
                     SimulatorOptions options = {});

  /// A buffer of `count` values as the next parameter.
  template <typename T>
  uint64_t input(const std::vector<T> &values) {
    uint64_t address = output(values.size() * sizeof(T));
    EXPECT_TRUE(
        simulator.write(address, values.data(), values.size() * sizeof(T)));
    return address;
  }
  /// An uninitialized buffer as the next parameter.
  uint64_t output(size_t bytes);
  void number(uint64_t value) { slots.push_back(value); }
  /// A tensor map of a buffer.
  void map(moert::TensorMapRecipe recipe);

  moert::Status run(int64_t grid = 1, int64_t threads = 32, int64_t shared = 0,
                    bool isResident = false);

  template <typename T>
  std::vector<T> read(uint64_t address, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(simulator.read(values.data(), address, count * sizeof(T)));
    return values;
  }

  Simulator simulator;
  LoadedModule *module = nullptr;
  moert::Status loaded;

private:
  std::vector<uint64_t> slots;
  std::vector<moert::TensorMap> maps;
};

/// Seeds that tests of errors try until one finds the error.
inline constexpr uint64_t kSeeds = 8;

} // namespace moec::ptx::test

#endif // MOEC_UNITTESTS_PTX_SIM_SIMULATORTESTING_H
