//===- Repack.cpp - weights in the order of tensor cores --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formulas.h"

#include "moec/Dialect/Moe/Fragments.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

using moe::Fragments;

/// As an e8m0 byte.
static constexpr int64_t kNotANumber = 255;

/// Adds the bit of a word of 4 bytes.
static void setBit(uint8_t *words, int64_t word, int64_t bit) {
  words[4 * word + bit / 8] |= 1 << bit % 8;
}

Status repack(const RepackArguments &arguments) {
  ArrayRef<int64_t> shape = arguments.weight.shape;
  int64_t rows = shape.end()[-2], rowBytes = shape.back();
  int64_t depth = moe::getRowWidth(arguments.quant, rowBytes);
  int64_t groups = depth / Fragments::kGroup;
  int64_t matrices = shape.size() > 2 ? shape.front() : 1;
  std::vector<float> rowScales(rows);
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    int64_t firstRow = matrix * rows;
    const uint8_t *from = arguments.weight.as<uint8_t>() + firstRow * rowBytes;
    const uint8_t *scales = arguments.scale.as<uint8_t>() + firstRow * groups;
    std::vector<uint8_t> codes(rows * rowBytes), exponents(rows * groups);
    for (int64_t row = 0; row < rows; ++row) {
      const uint8_t *own = scales + row * groups;
      const uint8_t *rowCodes = from + row * rowBytes;
      constexpr int64_t groupBytes = Fragments::kGroup / 2;
      int64_t largest = 0;
      bool hasNaN = false;
      for (int64_t group = 0; group < groups; ++group) {
        // Zeros have a sign.
        bool isZero = std::all_of(rowCodes + group * groupBytes,
                                  rowCodes + (group + 1) * groupBytes,
                                  [](uint8_t pair) { return !(pair & 0x77); });
        hasNaN |= own[group] == kNotANumber;
        if (!isZero)
          largest = std::max<int64_t>(largest, own[group]);
      }
      int64_t excess = std::max<int64_t>(largest - Fragments::kLargestScale, 0);
      rowScales[row] = hasNaN ? std::numeric_limits<float>::quiet_NaN()
                              : std::ldexp(1.0f, int(excess));
      for (int64_t i = 0; i < depth; ++i) {
        Fragments::Place place =
            Fragments::getPlace(row, i, rows, arguments.layout);
        int64_t code = from[row * rowBytes + i / 2] >> i % 2 * 4 & 15;
        for (int64_t bit = 0; bit < 4; ++bit)
          if (code & 8 >> bit)
            setBit(&codes[place.firstRow * rowBytes], place.word,
                   place.bits[bit]);
      }
      for (int64_t group = 0; group < groups; ++group) {
        Fragments::ScalePlace place =
            Fragments::getScalePlace(row, group, rows, arguments.layout);
        int64_t exponent = own[group] + Fragments::kExponent - excess;
        exponents[place.firstRow * groups + place.byte] =
            std::clamp<int64_t>(exponent, 0, kNotANumber - 1);
      }
    }
    std::copy(codes.begin(), codes.end(),
              arguments.packed.as<uint8_t>() + firstRow * rowBytes);
    std::copy(exponents.begin(), exponents.end(),
              arguments.packedScale.as<uint8_t>() + firstRow * groups);
    store(arguments.rowScale, firstRow, rowScales);
  }
  return Status::ok();
}

} // namespace moec::interpreter
