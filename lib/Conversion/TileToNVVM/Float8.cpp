//===- Float8.cpp - e4m3 on one thread --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Float8.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

Value Float8::roundOne(Value value) {
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  I32 bits{b, arith::BitcastOp::create(b, i32, value)};
  I32 magnitude = bits & 0x7FFFFFFF;
  // Rounds off 20 digits: adds half of the last kept one, less one bit if that
  // digit is even; a carry goes into the exponent. The exponent biases differ
  // by 120.
  I32 odd = (magnitude >> 20) & 1;
  I32 normal = ((magnitude + 0x7FFFF + odd) >> 20) + -(int64_t(120) << 3);
  // Below 2^-6, e4m3 counts in multiples of 2^-9, which are the last digits of
  // a float near 2^14.
  constexpr int64_t anchor = 0x46800000;
  Value anchored = arith::AddFOp::create(
      b, arith::BitcastOp::create(b, f32, magnitude),
      arith::ConstantOp::create(b, b.getF32FloatAttr(16384)));
  I32 small{b, arith::BitcastOp::create(b, i32, anchored)};
  constexpr int64_t smallestNormal = 0x3C800000, infinity = 0x7F800000;
  constexpr int64_t largest = 0x7E, nan = 0x7F;
  I32 code = select(magnitude > smallestNormal - 1, min(normal, largest),
                    small + -anchor);
  code = select(magnitude > infinity, code.like(nan), code);
  return (code | ((bits >> 24) & 0x80));
}

/// The result is in the low 16 bits of an i32.
Value Float8::roundPair(Value low, Value high) {
  if (!hasInstructions)
    return (I32{b, roundOne(low)} | I32{b, roundOne(high)} << 8);
  Value pair = NVVM::ConvertF32x2ToF8x2Op::create(
      b, b.getI16Type(), high, low, NVVM::FPRoundingMode::RN,
      NVVM::SaturationMode::SATFINITE, /*relu=*/false,
      b.getType<Float8E4M3FNType>());
  return arith::ExtUIOp::create(b, b.getI32Type(), pair);
}

Value Float8::round(ValueRange values) {
  SmallVector<Value> four(values);
  Value zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
  while (four.size() % 2)
    four.push_back(zero);
  Value low = roundPair(four[0], four[1]);
  if (four.size() == 2)
    return low;
  return (I32{b, low} | I32{b, roundPair(four[2], four[3])} << 16);
}

//===----------------------------------------------------------------------===//
// Extension
//===----------------------------------------------------------------------===//

Value Float8::extendPair(Value four, int64_t pair) {
  I32 codes = I32{b, four} >> (16 * pair);
  auto halves = VectorType::get(2, b.getF16Type());
  if (hasInstructions) {
    Value word = arith::TruncIOp::create(b, b.getI16Type(), codes);
    auto bytes = VectorType::get(2, b.getI8Type());
    Value extended = NVVM::ConvertF8x2ToF16x2Op::create(
        b, halves, LLVM::BitcastOp::create(b, bytes, word), /*relu=*/false,
        b.getType<Float8E4M3FNType>());
    return LLVM::BitcastOp::create(b, b.getI32Type(), extended);
  }
  // Fields of e4m3 moved into those of f16 give values 2^8 times smaller, also
  // for subnormals.
  I32 sign = ((codes & 0x8000) << 16) | ((codes & 0x80) << 8);
  I32 digits = ((codes & 0x7F00) << 15) | ((codes & 0x7F) << 7);
  Value moved = LLVM::BitcastOp::create(b, halves, (sign | digits));
  Value factor = arith::ConstantOp::create(
      b, DenseElementsAttr::get(halves, b.getFloatAttr(b.getF16Type(), 256)));
  Value scaled = arith::MulFOp::create(b, moved, factor);
  // NaN has become 480. Only its digits carry into the sign bit, from which the
  // exponent is set to all ones.
  I32 carry = (digits + 0x00800080) & 0x40004000;
  I32 nan = (carry << 1) - (carry >> 5);
  I32 result{b, LLVM::BitcastOp::create(b, b.getI32Type(), scaled)};
  return (result | nan);
}

/// Fields of e4m3 moved into those of bf16 give values 2^120 times smaller,
/// also for subnormals; NaN is found as in f16. Conversion through f16 would
/// take instructions for single elements.
Value Float8::extendPairToBF16(Value four, int64_t pair) {
  I32 codes = I32{b, four} >> (16 * pair);
  auto halves = VectorType::get(2, b.getBF16Type());
  auto splat = [&](double value) {
    return arith::ConstantOp::create(
        b,
        DenseElementsAttr::get(halves, b.getFloatAttr(b.getBF16Type(), value)));
  };
  I32 sign = ((codes & 0x8000) << 16) | ((codes & 0x80) << 8);
  I32 digits = ((codes & 0x7F00) << 12) | ((codes & 0x7F) << 4);
  Value moved = LLVM::BitcastOp::create(b, halves, (sign | digits));
  // sm_80 has only fused multiply-add for bf16; adding -0 changes nothing.
  Value scaled = math::FmaOp::create(b, moved, splat(0x1p120), splat(-0.0));
  I32 carry = (digits + 0x00100010) & 0x08000800;
  I32 nan = (carry << 4) - (carry >> 4);
  I32 result{b, LLVM::BitcastOp::create(b, b.getI32Type(), scaled)};
  return (result | nan);
}
