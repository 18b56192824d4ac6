//===- Quantizer.h - codes with a scale, on one thread ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Arithmetic of `tile.quantize`, independent of the lanes that share a group.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_QUANTIZER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_QUANTIZER_H

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

  /// The larger of two magnitudes, f32 or vectors of any float; NaN wins over
  /// numbers.
  mlir::Value larger(mlir::Value x, mlir::Value y);

  /// The largest magnitude of some vectors of f32 and of `largest`, which may
  /// be null.
  mlir::Value findLargest(llvm::ArrayRef<mlir::Value> vectors,
                          mlir::Value largest = {});

  /// Divisor of a group, f32. `scale`: the scale. `factor`: the divisor in
  /// quotients, which is the scale unless that is infinite. `reciprocal`: its
  /// reciprocal.
  struct Divisor {
    mlir::Value scale, factor, reciprocal;
  };
  /// Divisor for a group's largest magnitude (f32), which is raised to the
  /// format's minimum.
  Divisor getDivisor(mlir::Value largest);
  /// The quotient of a value (f32) of the group, before rounding.
  mlir::Value divide(mlir::Value value, const Divisor &divisor);
  /// Up to four quotients as quantized values, the first one in the low byte of
  /// an i32.
  mlir::Value round(mlir::ValueRange quotients);
  /// Up to two quotients as bf16, the first one in the low half of an i32.
  mlir::Value roundToBF16(mlir::ValueRange quotients);
  /// Bytes of a stored value.
  int64_t getCodeBytes() const { return moe::getStorageBits(quant) / 8; }
  /// Quantizes a vector of f32 of the group, perhaps multiplied by the scale
  /// again. The result has as many bits as the values, or is a vector of i32 if
  /// they need more than one.
  mlir::Value encode(mlir::Value values, const Divisor &divisor);
  /// Quantizes with a given scale: any number above 0, so that quotients may
  /// exceed the range.
  mlir::Value encodeBy(mlir::Value values, mlir::Value scale);

  /// A given scale in parts: values times `first` and `second`, two powers of
  /// two, are divided by `factor`, from 1 to 4.
  struct GivenScale {
    mlir::Value first, second, factor, reciprocal;
  };
  GivenScale takeApart(mlir::Value scale);
  /// The branch-free quotient of `encodeBy` before rounding, for a 16-bit value
  /// (f32).
  mlir::Value divideBy(mlir::Value value, const GivenScale &scale);

private:
  bool areIntegers() const { return quant.getStorage().isInteger(8); }
  mlir::Value roundToInteger(mlir::Value quotient);
  mlir::Value makeF32(double value);
  /// Two bf16 times a power of two (f32).
  mlir::Value multiply(mlir::Value pair, mlir::Value power);
  /// Quantized values, or these dequantized and multiplied by `power`, which
  /// may be null.
  mlir::Value pack(llvm::ArrayRef<mlir::Value> quotients, mlir::Value power);
  /// The reciprocal of a scale; an infinite one has 0 as its `factor`.
  mlir::Value invert(mlir::Value scale, mlir::Value factor);
  mlir::Value divide(mlir::Value value, mlir::Value divisor,
                     mlir::Value reciprocal, int64_t corrections);

  mlir::ImplicitLocOpBuilder &b;
  Float8 floats;
  mlir::Type element;
  moe::QuantAttr quant;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_QUANTIZER_H
