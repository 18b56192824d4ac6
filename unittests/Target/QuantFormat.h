//===- QuantFormat.h - how operands of tests are quantized ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TARGET_QUANTFORMAT_H
#define MOEC_UNITTESTS_TARGET_QUANTFORMAT_H

#include <cstdint>
#include <string>

namespace moec::test {

inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// How an operand is quantized, to e4m3 with scales of f32: what `#moe.quant`
/// says of the granularity, and rows and columns that share a scale, 0 for all.
/// Not at all without a text.
struct Format {
  std::string granularity;
  int64_t rows = 0, columns = 0;

  bool isQuantized() const { return !granularity.empty(); }
  int64_t getScaleRows(int64_t size) const {
    return rows ? ceilDiv(size, rows) : 1;
  }
  int64_t getScaleColumns(int64_t size) const {
    return columns ? ceilDiv(size, columns) : 1;
  }
  /// The type of elements, `plain` without quantization.
  std::string getElement(const std::string &plain) const {
    return isQuantized() ? "f8E4M3FN" : plain;
  }
  /// To stand in front of other attributes: with a comma behind it, or nothing.
  std::string getAttribute(const std::string &name, bool isDynamic) const {
    if (!isQuantized())
      return "";
    return name + " = #moe.quant<storage = f8E4M3FN, scale = f32, " +
           "granularity = " + granularity +
           (isDynamic ? ", dynamic = true>, " : ">, ");
  }
};

inline const Format kPlain;
inline const Format kToken{"token", 1, 0};
inline const Format kGroup128{"group, block = [1, 128]", 1, 128};
inline const Format kGroup32{"group, block = [1, 32]", 1, 32};
inline const Format kTensor{"tensor", 0, 0};
inline const Format kChannel{"channel", 1, 0};
inline const Format kBlock{"block, block = [128, 128]", 128, 128};
inline const Format kTallBlock{"block, block = [256, 96]", 256, 96};
inline const Format kSmallBlock{"block, block = [16, 64]", 16, 64};

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_QUANTFORMAT_H
