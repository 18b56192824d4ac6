//===- Float8.cpp - e4m3 on one thread --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Float8.h"

#include "Pair.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

I32 Float8::roundOne(F32 value) {
  I32 bits = value.bits();
  I32 magnitude = bits & 0x7FFFFFFF;
  // Rounds off 20 digits: adds half of the last kept one, less one bit if that
  // digit is even; a carry goes into the exponent. The exponent biases differ
  // by 120.
  I32 odd = (magnitude >> 20) & 1;
  I32 normal = ((magnitude + 0x7FFFF + odd) >> 20) - (120 << 3);
  // Below 2^-6, e4m3 counts in multiples of 2^-9, which are the last digits of
  // a float near 2^14.
  constexpr int64_t anchor = 0x46800000;
  I32 small = (F32::fromBits(magnitude) + 0x1p14).bits();
  constexpr int64_t smallestNormal = 0x3C800000, infinity = 0x7F800000;
  constexpr int64_t largest = 0x7E, nan = 0x7F;
  I32 quantized =
      select(magnitude >= smallestNormal, min(normal, largest), small - anchor);
  quantized = select(magnitude > infinity, quantized.like(nan), quantized);
  return quantized | ((bits >> 24) & 0x80);
}

/// The result is in the low 16 bits of an i32.
I32 Float8::roundPair(F32 low, F32 high) {
  if (!hasInstructions) {
    I32 first = roundOne(low), second = roundOne(high);
    return first | second << 8;
  }
  IntegerValue<int16_t> pair(
      b, NVVM::ConvertF32x2ToF8x2Op::create(
             b, b.getI16Type(), high, low, NVVM::FPRoundingMode::RN,
             NVVM::SaturationMode::SATFINITE, /*relu=*/false,
             b.getType<Float8E4M3FNType>()));
  return pair.widened();
}

I32 Float8::round(ArrayRef<F32> values) {
  SmallVector<F32> four(values);
  while (four.size() % 2)
    four.push_back(four.front().like(0));
  I32 low = roundPair(four[0], four[1]);
  if (four.size() == 2)
    return low;
  I32 high = roundPair(four[2], four[3]);
  return low | high << 16;
}

//===----------------------------------------------------------------------===//
// Extension
//===----------------------------------------------------------------------===//

I32 Float8::extendPair(I32 four, int64_t pair) {
  I32 values = four >> 16 * pair;
  if (hasInstructions) {
    auto bytes = VectorType::get(2, b.getI8Type());
    Pair extended(b, NVVM::ConvertF8x2ToF16x2Op::create(
                         b, Pair::typeOf(b.getF16Type()),
                         LLVM::BitcastOp::create(b, bytes, values.lowBits(16)),
                         /*relu=*/false, b.getType<Float8E4M3FNType>()));
    return extended.bits();
  }
  // Fields of e4m3 moved into those of f16 give values 2^8 times smaller, also
  // for subnormals.
  I32 sign = ((values & 0x8000) << 16) | ((values & 0x80) << 8);
  I32 digits = ((values & 0x7F00) << 15) | ((values & 0x7F) << 7);
  Pair moved = Pair::fromBits(sign | digits, b.getF16Type());
  Pair scaled(b, arith::MulFOp::create(b, moved, moved.like(0x1p8)));
  // NaN has become 480. Only its digits carry into the sign bit, from which the
  // exponent is set to all ones.
  I32 carry = (digits + 0x00800080) & 0x40004000;
  I32 nan = (carry << 1) - (carry >> 5);
  return scaled.bits() | nan;
}

/// Fields of e4m3 moved into those of bf16 give values 2^120 times smaller,
/// also for subnormals; NaN is found as in f16. Conversion through f16 would
/// take instructions for single elements.
I32 Float8::extendPairToBF16(I32 four, int64_t pair) {
  I32 values = four >> 16 * pair;
  I32 sign = ((values & 0x8000) << 16) | ((values & 0x80) << 8);
  I32 digits = ((values & 0x7F00) << 12) | ((values & 0x7F) << 4);
  Pair moved = Pair::fromBits(sign | digits, b.getBF16Type());
  Pair scaled = multiply(moved, moved.like(0x1p120));
  I32 carry = (digits + 0x00100010) & 0x08000800;
  I32 nan = (carry << 4) - (carry >> 4);
  return scaled.bits() | nan;
}
