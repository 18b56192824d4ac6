//===- Quantizer.h - codes with a scale, on one thread ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The arithmetic of `tile.quantize`, whatever lanes share a group.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_QUANTIZER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_QUANTIZER_H

#include "Float8.h"
#include "moec/Dialect/Moe/QuantLayout.h"

namespace moec {

class Quantizer {
public:
  /// `element` is the type that values had in memory before; codes are what
  /// `quant` stores, e4m3 or int8, or these as bf16.
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

  /// What a group is divided by, f32: its scale, and by what quotients are
  /// computed: the scale too unless that is infinite, and its reciprocal.
  struct Divisor {
    mlir::Value scale, factor, reciprocal;
  };
  /// From the largest magnitude (f32) of a group, which counts as at least what
  /// the format says.
  Divisor getDivisor(mlir::Value largest);
  /// A value (f32) of the group, as it is rounded.
  mlir::Value divide(mlir::Value value, const Divisor &divisor);
  /// Up to four of them as codes, the first one in the low byte of an i32.
  mlir::Value round(mlir::ValueRange quotients);
  /// Up to two of them as bf16, the first one in the low half of an i32.
  mlir::Value roundToBF16(mlir::ValueRange quotients);
  /// Bytes that a code takes in memory.
  int64_t getCodeBytes() const { return moe::getStorageBits(quant) / 8; }
  /// A vector of f32 of the group as codes, perhaps times the scale: as many
  /// bits as these take, or a vector of i32 where they are more than one.
  mlir::Value encode(mlir::Value values, const Divisor &divisor);
  /// The same by a scale that is given: any number above 0, in which quotients
  /// may be beyond the range.
  mlir::Value encodeBy(mlir::Value values, mlir::Value scale);

  /// A scale that is given, taken apart: values times `first` and `second`, two
  /// powers of two, are divided by `factor`, from 1 to 4.
  struct GivenScale {
    mlir::Value first, second, factor, reciprocal;
  };
  GivenScale takeApart(mlir::Value scale);
  /// The quotient of encodeBy as it is rounded, of a 16-bit value (f32), in
  /// which nothing branches.
  mlir::Value divideBy(mlir::Value value, const GivenScale &scale);

private:
  bool areIntegers() const { return quant.getStorage().isInteger(8); }
  mlir::Value roundToInteger(mlir::Value quotient);
  mlir::Value makeF32(double value);
  /// Two bf16 times a power of two (f32).
  mlir::Value multiply(mlir::Value pair, mlir::Value power);
  /// Codes, or numbers of them times `power`, which may be null.
  mlir::Value pack(llvm::ArrayRef<mlir::Value> quotients, mlir::Value power);
  /// The reciprocal of a scale, which is 0 as a `factor` if it is infinite.
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
