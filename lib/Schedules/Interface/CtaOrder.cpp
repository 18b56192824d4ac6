//===- CtaOrder.cpp - CTAs in an order that spreads them --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/CtaOrder.h"

#include <algorithm>
#include <cassert>
#include <numeric>

/// The inverse of `factor` modulo `ctas`.
static int64_t invert(int64_t factor, int64_t ctas) {
  int64_t inverse = 1;
  while (inverse * factor % ctas != 1)
    ++inverse;
  return inverse;
}

/// Evenness of the multiples of `step` modulo `ctas`: indices `distance` apart
/// should belong to CTAs whose distance is inversely proportional.
static int64_t getSpread(int64_t step, int64_t ctas) {
  int64_t least = ctas * ctas;
  for (int64_t distance = 1; distance < ctas; ++distance) {
    int64_t apart = distance * step % ctas;
    least = std::min(least, distance * std::min(apart, ctas - apart));
  }
  return least;
}

int64_t moec::getCtaFactor(int64_t ctas) {
  assert(ctas > 0);
  int64_t best = 1, most = 0;
  // A factor and its negative spread equally.
  for (int64_t factor = 1; 2 * factor < ctas; ++factor) {
    if (std::gcd(factor, ctas) != 1)
      continue;
    int64_t value = factor * getSpread(invert(factor, ctas), ctas);
    if (value > most) {
      most = value;
      best = factor;
    }
  }
  return best;
}
