//===- Quantize.cpp - rows as e4m3 with scales ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Quantize.h"

#include <algorithm>
#include <cmath>

using namespace moec;
using namespace moec::reference;

/// To nearest even. Values are at most 448, the largest, or NaN.
static double roundE4M3(float value) {
  if (value == 0 || !std::isfinite(value))
    return std::isinf(value) ? std::nan("") : value;
  // Four significant bits; below 2^-6 multiples of 2^-9.
  int quantum = std::max(std::ilogb(value), -6) - 3;
  return std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
}

static void quantizeGroup(const double *x, int64_t size, double *to) {
  float largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    float magnitude = std::fabs(static_cast<float>(x[i]));
    if (std::isnan(magnitude) || magnitude > largest)
      largest = magnitude;
    if (std::isnan(largest))
      break;
  }
  float scale =
      (std::isnan(largest) ? largest : std::max(largest, 1e-10f)) / 448.0f;
  for (int64_t i = 0; i < size; ++i)
    to[i] = roundE4M3(static_cast<float>(x[i]) / scale) *
            static_cast<double>(scale);
}

Matrix moec::reference::quantizeRows(const Matrix &x, int threads) {
  int64_t columns = x.getNumColumns();
  Matrix quantized(x.getNumRows(), columns);
  parallelFor(threads, x.getNumRows(), [&](int64_t i) {
    for (int64_t first = 0; first < columns; first += kScaleBlock)
      quantizeGroup(x.row(i) + first, std::min(kScaleBlock, columns - first),
                    quantized.row(i) + first);
  });
  return quantized;
}
