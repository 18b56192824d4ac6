//===- Float8.h - e4m3 on one thread ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Conversions of e4m3, packed four in an i32, the first one in the low byte.
// GPUs from sm_89 on have instructions for them; others use bit arithmetic.

#ifndef MOEC_LIB_KERNELBUILDER_FLOAT8_H
#define MOEC_LIB_KERNELBUILDER_FLOAT8_H

#include "Values.h"

namespace moec {

class Float8 {
public:
  Float8(mlir::ImplicitLocOpBuilder &b, bool hasInstructions)
      : b(b), hasInstructions(hasInstructions) {}

  /// Up to four f32 rounded to nearest even with saturation; NaN stays NaN.
  I32 round(llvm::ArrayRef<F32> values);
  /// The first or second pair of four e4m3 as f16 in an i32; exact.
  I32 extendPair(I32 four, int64_t pair);
  /// The first or second pair of four e4m3 as bf16; exact.
  I32 extendPairToBF16(I32 four, int64_t pair);

private:
  I32 roundPair(F32 low, F32 high);
  I32 roundOne(F32 value);

  mlir::ImplicitLocOpBuilder &b;
  bool hasInstructions;
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_FLOAT8_H
