//===- Quantizer.h - values with a scale, on one thread ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Arithmetic of `tile.quantize`, independent of the lanes that share a group.

#ifndef MOEC_LIB_KERNELBUILDER_QUANTIZER_H
#define MOEC_LIB_KERNELBUILDER_QUANTIZER_H

#include "Float8.h"
#include "moec/Dialect/Moe/QuantLayout.h"

namespace moec {

class Quantizer {
public:
  /// `element`: the values' type in memory. `quant` stores quantized values as
  /// e4m3 or int8, or dequantized to bf16.
  Quantizer(mlir::ImplicitLocOpBuilder &b, mlir::Type element,
            moe::QuantAttr quant, bool hasInstructions)
      : b(b), floats(b, hasInstructions), element(element), quant(quant) {}

  /// The larger of two magnitudes, typed or vectors of any float; NaN wins over
  /// numbers.
  template <typename T>
  T larger(T x, T y) {
    mlir::Value largest = mlir::arith::MaximumFOp::create(b, x, y);
    if constexpr (std::is_same_v<T, mlir::Value>)
      return largest;
    else
      return {b, largest};
  }

  /// The largest magnitude of some vectors of f32 and of `largest`, which may
  /// be null.
  F32 findLargest(llvm::ArrayRef<F32> vectors, F32 largest = {});

  /// Divisor of a group. `scale`: the scale. `factor`: the divisor in
  /// quotients, which is the scale unless that is infinite. `reciprocal`: its
  /// reciprocal.
  struct Divisor {
    F32 scale, factor, reciprocal;
  };
  /// Divisor for a group's largest magnitude, which is raised to the format's
  /// minimum.
  Divisor getDivisor(F32 largest);
  /// The quotient of a value of the group, before rounding.
  F32 divide(F32 value, const Divisor &divisor);
  /// Up to four quotients as quantized values, the first one in the low byte.
  I32 round(llvm::ArrayRef<F32> quotients);
  /// Up to two quotients as bf16, the first one in the low half.
  I32 roundToBF16(llvm::ArrayRef<F32> quotients);
  /// Bytes of a stored value.
  int64_t getValueBytes() const { return moe::getStorageBits(quant) / 8; }
  /// Quantizes a vector of f32 of the group, perhaps multiplied by the scale
  /// again. The result has as many bits as the values, or is a vector of i32 if
  /// they need more than one.
  mlir::Value encode(F32 values, const Divisor &divisor);
  /// Quantizes with a given scale: any number above 0, so that quotients may
  /// exceed the range.
  mlir::Value encodeBy(F32 values, F32 scale);

  /// A given scale in parts: values times `first` and `second`, two powers of
  /// two, are divided by `factor`, from 1 to 4.
  struct GivenScale {
    F32 first, second, factor, reciprocal;
  };
  GivenScale takeApart(F32 scale);
  /// The branch-free quotient of `encodeBy` before rounding, for a 16-bit
  /// value.
  F32 divideBy(F32 value, const GivenScale &scale);

private:
  bool areIntegers() const { return quant.getStorage().isInteger(8); }
  I32 roundToInteger(F32 quotient);
  /// Two bf16 times a power of two.
  I32 multiplyPair(I32 pair, F32 power);
  /// Quantized values, or these dequantized and multiplied by `power`, which
  /// may be null.
  mlir::Value pack(llvm::ArrayRef<F32> quotients, F32 power);
  /// The reciprocal of a scale; an infinite one has 0 as its `factor`.
  F32 invert(F32 scale, F32 factor);
  F32 divide(F32 value, F32 divisor, F32 reciprocal, int64_t corrections);

  mlir::ImplicitLocOpBuilder &b;
  Float8 floats;
  mlir::Type element;
  moe::QuantAttr quant;
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_QUANTIZER_H
