//===- Random.h - choices that a seed makes ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_ENGINE_RANDOM_H
#define MOEC_VERIFY_PTXSIM_ENGINE_RANDOM_H

#include <cstdint>

namespace moec::ptx {

/// SplitMix64, so that numbers are the same on every machine.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15u) {}

  uint64_t next() {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// A number in [0, `count`); 0 for a count of 0.
  uint64_t below(uint64_t count) {
    return uint64_t((static_cast<unsigned __int128>(next()) * count) >> 64);
  }
  /// True with probability 1 / `n`.
  bool oneIn(uint64_t n) { return below(n) == 0; }

private:
  uint64_t state;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_ENGINE_RANDOM_H
