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

/// The largest of e4m3.
static constexpr float kLargest = 448.0f;

/// To nearest even. Values are at most 448, the largest, or NaN.
static double roundE4M3(float value) {
  if (value == 0 || !std::isfinite(value))
    return std::isinf(value) ? std::nan("") : value;
  // Four significant bits; below 2^-6 multiples of 2^-9.
  int quantum = std::max(std::ilogb(value), -6) - 3;
  return std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
}

/// Scales that rows find for themselves are made of at least `least`.
static void quantizeGroup(const double *x, int64_t size, float least,
                          double *to) {
  float largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    float magnitude = std::fabs(static_cast<float>(x[i]));
    if (std::isnan(magnitude) || magnitude > largest)
      largest = magnitude;
    if (std::isnan(largest))
      break;
  }
  float scale =
      (std::isnan(largest) ? largest : std::max(largest, least)) / kLargest;
  for (int64_t i = 0; i < size; ++i)
    to[i] = roundE4M3(static_cast<float>(x[i]) / scale) *
            static_cast<double>(scale);
}

/// By a scale that may be too small: what is beyond the range is its end.
static void quantizeBy(float scale, const double *x, int64_t size, double *to) {
  for (int64_t i = 0; i < size; ++i) {
    float quotient = static_cast<float>(x[i]) / scale;
    if (std::fabs(quotient) > kLargest)
      quotient = std::copysign(kLargest, quotient);
    to[i] = roundE4M3(quotient) * static_cast<double>(scale);
  }
}

Matrix moec::reference::quantizeRows(const Matrix &x,
                                     const OperandQuantization &quantization,
                                     float tensorScale, int threads) {
  int64_t columns = x.getNumColumns();
  Matrix quantized(x.getNumRows(), columns);
  bool isByToken = quantization.granularity == Granularity::Token;
  int64_t group = isByToken ? columns : quantization.blockColumns;
  parallelFor(threads, x.getNumRows(), [&](int64_t i) {
    if (quantization.granularity == Granularity::Tensor)
      return quantizeBy(tensorScale, x.row(i), columns, quantized.row(i));
    for (int64_t first = 0; first < columns; first += group)
      quantizeGroup(x.row(i) + first, std::min(group, columns - first),
                    isByToken ? 1.0f / 512 : 1e-10f, quantized.row(i) + first);
  });
  return quantized;
}

float moec::reference::findLargest(const Matrix &x) {
  float largest = 0;
  for (int64_t i = 0; i < x.getNumRows(); ++i)
    for (int64_t j = 0; j < x.getNumColumns(); ++j) {
      float magnitude = std::fabs(static_cast<float>(x.row(i)[j]));
      if (std::isfinite(magnitude))
        largest = std::max(largest, magnitude);
    }
  return largest;
}

float moec::reference::makeTensorScale(float largest) {
  return std::max(largest, 1e-10f) / kLargest;
}
