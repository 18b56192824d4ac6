//===- Draw.h - random numbers of routings ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_ROWS_DRAW_H
#define MOEC_LIB_TOOLS_BENCH_ROWS_DRAW_H

#include "moec/Generator/Generator.h"

#include <numeric>
#include <vector>

namespace moec::bench {

class Draw {
public:
  Draw(uint64_t seed, llvm::StringRef name) : stream(seed, name) {}
  /// Uniform in (0, 1).
  double uniform() {
    return (static_cast<double>(stream.getBits(next++) >> 11) + 0.5) * 0x1p-53;
  }
  int64_t below(int64_t count) {
    return static_cast<int64_t>(stream.getBits(next++) %
                                static_cast<uint64_t>(count));
  }

private:
  RandomStream stream;
  uint64_t next = 0;
};

/// The experts sorted by popularity.
inline std::vector<int32_t> drawRanks(int64_t count, uint64_t seed) {
  std::vector<int32_t> experts(count);
  std::iota(experts.begin(), experts.end(), 0);
  Draw draw(seed, "popularity");
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(experts[i], experts[draw.below(i + 1)]);
  return experts;
}

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_ROWS_DRAW_H
