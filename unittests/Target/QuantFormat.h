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

/// Quantization of an operand: the granularity of `#moe.quant`, rows and
/// columns that share a scale (0 for all), and the types of elements and
/// scales. An empty text means not quantized.
struct Format {
  std::string granularity;
  int64_t rows = 0, columns = 0;
  std::string storage = "f8E4M3FN", scale = "f32";
  bool hasZeroPoint = false, hasGlobalScale = false, hasMinimum = false;
  bool arePowers = false;

  bool isQuantized() const { return !granularity.empty(); }
  int64_t getScaleRows(int64_t size) const {
    return rows ? ceilDiv(size, rows) : 1;
  }
  int64_t getScaleColumns(int64_t size) const {
    return columns ? ceilDiv(size, columns) : 1;
  }
  /// Two elements in a byte.
  bool areHalves() const {
    return storage == "i4" || storage == "f4E2M1FN" || storage == "!moe.nf4";
  }
  /// The type in memory, `plain` without quantization.
  std::string getElement(const std::string &plain) const {
    if (!isQuantized())
      return plain;
    return areHalves() ? "i8" : storage;
  }
  /// Stored length of a row of `width` elements.
  int64_t getRowLength(int64_t width) const {
    return isQuantized() && areHalves() ? width / 2 : width;
  }
  /// As a prefix of other attributes: with a trailing comma, or empty.
  std::string getAttribute(const std::string &name, bool isDynamic) const {
    if (!isQuantized())
      return "";
    return name + " = #moe.quant<storage = " + storage + ", scale = " + scale +
           ", granularity = " + granularity +
           (hasZeroPoint ? ", zero_point = true" : "") +
           (isDynamic ? ", dynamic = true" : "") +
           (areHalves() ? ", packing = pairs" : "") +
           (hasGlobalScale ? ", second_scale = f32" : "") +
           (arePowers ? ", power_of_two = true" : "") +
           (hasMinimum ? ", minimum = true" : "") + ">, ";
  }
  /// Likewise with other elements or scales.
  Format with(const std::string &otherStorage,
              const std::string &otherScale = "f32",
              bool zeroPoint = false) const {
    Format other = *this;
    other.storage = otherStorage;
    other.scale = otherScale;
    other.hasZeroPoint = zeroPoint;
    return other;
  }
  Format withMinima(const std::string &otherStorage,
                    const std::string &otherScale = "f32") const {
    Format other = with(otherStorage, otherScale);
    other.hasMinimum = true;
    return other;
  }
  /// Scales that are powers of two.
  Format withPowers() const {
    Format other = *this;
    other.arePowers = true;
    return other;
  }
};

inline const Format kPlain;
inline const Format kToken{"token", 1, 0};
inline const Format kGroup128{"group, block = [1, 128]", 1, 128};
inline const Format kGroup64{"group, block = [1, 64]", 1, 64};
inline const Format kGroup48{"group, block = [1, 48]", 1, 48};
inline const Format kGroup32{"group, block = [1, 32]", 1, 32};
inline const Format kGroup16{"group, block = [1, 16]", 1, 16};
inline const Format kTensor{"tensor", 0, 0};
inline const Format kChannel{"channel", 1, 0};
inline const Format kBlock{"block, block = [128, 128]", 128, 128};
inline const Format kTallBlock{"block, block = [256, 96]", 256, 96};
inline const Format kSmallBlock{"block, block = [16, 64]", 16, 64};
inline const Format kMxfp4 = kGroup32.with("f4E2M1FN", "f8E8M0FNU");
inline const Format kMxfp8 = kGroup32.with("f8E4M3FN", "f8E8M0FNU");
inline const Format kMxfp8Rows = kGroup32.withPowers();
inline const Format kNF4 = kGroup64.with("!moe.nf4");
inline const Format kNvfp4{kGroup16.granularity, 1,     16,  "f4E2M1FN",
                           "f8E4M3FN",           false, true};

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_QUANTFORMAT_H
