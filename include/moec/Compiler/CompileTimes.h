//===- CompileTimes.h - times of a compilation's stages ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_COMPILETIMES_H
#define MOEC_COMPILER_COMPILETIMES_H

#include <chrono>
#include <string>
#include <vector>

namespace moec {

/// Seconds since construction or the last `read`, on the monotonic clock.
class Stopwatch {
public:
  double read() {
    Clock::time_point now = Clock::now();
    double seconds = std::chrono::duration<double>(now - begin).count();
    begin = now;
    return seconds;
  }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin = Clock::now();
};

/// Compile time of one kernel, in seconds of wall-clock time.
struct KernelTimes {
  std::string name;
  /// Emission and optimization of LLVM IR, and emission of PTX.
  double emit = 0;
  /// ptxas, for all architectures together.
  double assemble = 0;
};

/// Times of the stages of a compilation for a GPU, in seconds of wall-clock
/// time.
struct CompileTimes {
  /// From the level of the input to level tile.
  double lower = 0;
  /// From level tile to the llvm and nvvm dialects, all kernels.
  double convert = 0;
  /// Until the last kernel is done. Kernels are compiled in parallel, so this
  /// is less than the sum over `perKernel`.
  double kernels = 0;
  std::vector<KernelTimes> perKernel;
};

} // namespace moec

#endif // MOEC_COMPILER_COMPILETIMES_H
