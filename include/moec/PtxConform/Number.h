//===- Number.h - encodings of numbers, bit by bit --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXCONFORM_NUMBER_H
#define MOEC_PTXCONFORM_NUMBER_H

#include "Form.h"

#include <cstring>

namespace moec::conform {

/// Fields of a floating-point format.
struct FormatInfo {
  unsigned bits;
  unsigned exponentBits;
  unsigned mantissaBits;
  /// e4m3 has no infinity: only all bits set is NaN, the rest are numbers.
  bool hasInfinity;

  int bias() const { return (1 << (exponentBits - 1)) - 1; }
};

/// `format` must be a floating-point format. TF32 is stored in 32 bits.
FormatInfo formatInfo(Format format);

/// Bits of one number of `format`, 32 for TF32.
unsigned formatWidth(Format format);

bool isNan(Format format, uint32_t bits);

/// Exact; NaN and infinities become those of double.
double decode(Format format, uint32_t bits);

/// Rounds to nearest, ties to even. Overflow gives infinity, or the largest
/// number if the format has none. Integers are clamped.
uint32_t encode(Format format, double value);

/// Access to unsigned integers in `Bytes`, little-endian as on the device.
template <typename T>
T load(const Bytes &bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(Bytes &bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

/// Element `index` of an array of `format`.
uint32_t loadNumber(Format format, const Bytes &bytes, size_t index);

/// Replaces every NaN of `format` in `bytes` by one pattern.
Bytes withOneNan(Format format, Bytes bytes);

} // namespace moec::conform

#endif // MOEC_PTXCONFORM_NUMBER_H
