//===- Quantize.cpp - rows as values with scales ----------------*- C++ -*-===//
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

/// The largest quantized value.
static float getLargest(StorageType storage) {
  return storage == StorageType::Int8 ? 127.0f : 448.0f;
}

/// Rounds to nearest even. Values are NaN or at most 448, the largest e4m3.
static double roundE4M3(float value) {
  if (value == 0 || !std::isfinite(value))
    return std::isinf(value) ? std::nan("") : value;
  // Four significant bits; below 2^-6 multiples of 2^-9.
  int quantum = std::max(std::ilogb(value), -6) - 3;
  return std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
}

/// Rounds a quotient of at most the largest quantized value.
static double roundToCode(float quotient, StorageType storage) {
  if (storage != StorageType::Int8)
    return roundE4M3(quotient);
  return std::isnan(quotient) ? 0 : std::nearbyint(double(quotient));
}

/// The least power of two that is not below a scale; infinite and NaN stay.
static float roundUp(float scale) {
  if (!std::isfinite(scale))
    return scale;
  float power = std::ldexp(1.0F, std::ilogb(scale));
  return power < scale ? 2 * power : power;
}

/// Quantizes with a dynamic scale, of a maximum of at least `least`.
static void quantizeGroup(const double *x, int64_t size, float least,
                          const OperandQuantization &quantization, double *to) {
  StorageType storage = quantization.storage;
  float largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    float magnitude = std::fabs(static_cast<float>(x[i]));
    if (std::isnan(magnitude) || magnitude > largest)
      largest = magnitude;
    if (std::isnan(largest))
      break;
  }
  float scale = (std::isnan(largest) ? largest : std::max(largest, least)) /
                getLargest(storage);
  if (quantization.scale == ScaleType::E8M0)
    scale = roundUp(scale);
  for (int64_t i = 0; i < size; ++i)
    to[i] = roundToCode(static_cast<float>(x[i]) / scale, storage) *
            static_cast<double>(scale);
}

/// Quantizes with a static scale, saturated to the range.
static void quantizeBy(float scale, const double *x, int64_t size,
                       StorageType storage, double *to) {
  float largest = getLargest(storage);
  for (int64_t i = 0; i < size; ++i) {
    float quotient = static_cast<float>(x[i]) / scale;
    if (std::fabs(quotient) > largest)
      quotient = std::copysign(largest, quotient);
    to[i] = roundToCode(quotient, storage) * static_cast<double>(scale);
  }
}

Matrix moec::reference::quantizeRows(const Matrix &x,
                                     const OperandQuantization &quantization,
                                     float tensorScale, int threads) {
  int64_t columns = x.getNumColumns();
  Matrix quantized(x.getNumRows(), columns);
  bool isByToken = quantization.granularity == Granularity::Token;
  int64_t group = isByToken ? columns : quantization.blockColumns;
  StorageType storage = quantization.storage;
  float least = isByToken && storage != StorageType::Int8 ? 1.0f / 512 : 1e-10f;
  parallelFor(threads, x.getNumRows(), [&](int64_t i) {
    if (quantization.granularity == Granularity::Tensor)
      return quantizeBy(tensorScale, x.row(i), columns, storage,
                        quantized.row(i));
    for (int64_t first = 0; first < columns; first += group)
      quantizeGroup(x.row(i) + first, std::min(group, columns - first), least,
                    quantization, quantized.row(i) + first);
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

float moec::reference::makeTensorScale(float largest, StorageType storage) {
  return std::max(largest, 1e-10f) / getLargest(storage);
}
