//===- Float8.h - e4m3 on one thread ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Four e4m3 lie in an i32, the first one in the low byte. GPUs from sm_89 on
// have instructions for them; on others the same bits are made by arithmetic.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_FLOAT8_H
#define MOEC_LIB_CONVERSION_TILETONVVM_FLOAT8_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace moec {

class Float8 {
public:
  Float8(mlir::ImplicitLocOpBuilder &b, bool hasInstructions)
      : b(b), hasInstructions(hasInstructions) {}

  /// Up to four f32 rounded to nearest even; what is larger than the largest
  /// number becomes that one, NaN stays NaN.
  mlir::Value round(mlir::ValueRange values);
  /// The first or second two of four e4m3 as f16 in an i32; exact.
  mlir::Value extendPair(mlir::Value four, int64_t pair);
  /// The same as bf16.
  mlir::Value extendPairToBF16(mlir::Value four, int64_t pair);

private:
  mlir::Value roundPair(mlir::Value low, mlir::Value high);
  mlir::Value roundOne(mlir::Value value);

  mlir::ImplicitLocOpBuilder &b;
  bool hasInstructions;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_FLOAT8_H
