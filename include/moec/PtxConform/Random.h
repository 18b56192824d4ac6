//===- Random.h - random numbers that are the same everywhere ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXCONFORM_RANDOM_H
#define MOEC_PTXCONFORM_RANDOM_H

#include <cstdint>
#include <string>

namespace moec::conform {

/// SplitMix64. Recorded results depend on the sequence, which therefore must
/// not change with the standard library.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}

  uint64_t bits() {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// In [0, `count`).
  uint64_t below(uint64_t count) { return bits() % count; }

  /// In [`low`, `high`].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(high - low + 1));
  }

  /// Bell-shaped with mean 0 and variance 1, by sums of integers, so that
  /// results do not depend on a math library.
  double normal() {
    int64_t sum = 0;
    for (int i = 0; i < 3; ++i) {
      uint64_t drawn = bits();
      for (int part = 0; part < 4; ++part)
        sum += static_cast<int64_t>((drawn >> (16 * part)) & 0xffff);
    }
    return static_cast<double>(sum - 6 * 65535) / 65536.0;
  }

private:
  uint64_t state;
};

/// FNV-1a hash.
inline uint64_t hashOf(const void *data, size_t size) {
  const auto *bytes = static_cast<const uint8_t *>(data);
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

/// The seed of one form, by name, so that new forms do not change the inputs of
/// others.
inline uint64_t formSeed(const std::string &name, uint64_t seed) {
  return hashOf(name.data(), name.size()) + seed * 0x632be59bd9b4e019;
}

} // namespace moec::conform

#endif // MOEC_PTXCONFORM_RANDOM_H
