//===- Quantizer.cpp - codes with a scale, on one thread --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Quantizer.h"

#include "../Emission/KernelEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace moec;

Value Quantizer::makeF32(double value) {
  return arith::ConstantOp::create(
      b, b.getF32FloatAttr(static_cast<float>(value)));
}

Value Quantizer::larger(Value x, Value y) {
  return arith::MaximumFOp::create(b, x, y);
}

Value Quantizer::findLargest(ArrayRef<Value> vectors, Value largest) {
  for (Value values : vectors) {
    Value magnitudes = math::AbsFOp::create(b, values.getType(), values);
    int64_t lanes = cast<VectorType>(values.getType()).getNumElements();
    for (int64_t i = 0; i < lanes; ++i) {
      Value one = vector::ExtractOp::create(b, magnitudes, i);
      largest = largest ? larger(largest, one) : one;
    }
  }
  return largest;
}

/// Quotient by a correctly rounded reciprocal, corrected by the remainder:
/// after two corrections it is rounded as a division (Markstein). Divisors are
/// at least 2^-42, so that no relevant value underflows. With these signs -0
/// stays -0.
Value Quantizer::divide(Value value, Value divisor, Value reciprocal,
                        int64_t corrections) {
  Value quotient = arith::MulFOp::create(b, value, reciprocal);
  Value back = arith::NegFOp::create(b, reciprocal);
  for (int64_t i = 0; i < corrections; ++i) {
    Value surplus = math::FmaOp::create(b, quotient, divisor,
                                        arith::NegFOp::create(b, value));
    quotient = math::FmaOp::create(b, surplus, back, quotient);
  }
  return quotient;
}

/// A correctly rounded division is an approximation and its correction if
/// nothing underflows; the general instruction has a branch for other cases.
Value Quantizer::invert(Value scale, Value factor) {
  Value reciprocal = NVVM::RcpApproxFtzF32Op::create(b, b.getF32Type(), scale);
  Value left = math::FmaOp::create(b, arith::NegFOp::create(b, factor),
                                   reciprocal, makeF32(1));
  return math::FmaOp::create(b, reciprocal, left, reciprocal);
}

Quantizer::Divisor Quantizer::getDivisor(Value largest) {
  double greatest = moe::getLargestCode(quant);
  largest = larger(largest, makeF32(moe::getMinMagnitude(quant)));
  Value infinity = makeF32(std::numeric_limits<double>::infinity());
  Value isInfinite =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, largest, infinity);
  Value scale = divide(largest, makeF32(greatest), makeF32(1 / greatest),
                       /*corrections=*/2);
  if (quant.getPowerOfTwo())
    scale = roundUpToPowerOfTwo(b, scale);
  scale = arith::SelectOp::create(b, isInfinite, infinity, scale);
  // An infinite scale has the reciprocal 0; its remainder would be NaN.
  Value factor = arith::SelectOp::create(b, isInfinite, makeF32(0), scale);
  return {scale, factor, invert(scale, factor)};
}

Value Quantizer::divide(Value value, const Divisor &divisor) {
  // Quotients of 16-bit elements are too far from the rounding boundaries of
  // e4m3 for a second correction to matter.
  int64_t corrections = element.isF32() || areIntegers() ? 2 : 1;
  return divide(value, divisor.factor, divisor.reciprocal, corrections);
}

Quantizer::GivenScale Quantizer::takeApart(Value scale) {
  constexpr double small = 0x1p-64, up = 0x1p64;
  constexpr int64_t exponentBits = 0x7F800000;
  // Powers of two that are normal, for subnormal scales too.
  constexpr int64_t bias = 127, mostExponent = int64_t(2 * bias - 1) << 23;
  Value isSmall = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, scale,
                                        makeF32(small));
  Value first = arith::SelectOp::create(b, isSmall, makeF32(up), makeF32(1));
  Value larger = arith::MulFOp::create(b, scale, first);
  I32 exponent = min(F32(b, larger).bits() & exponentBits, mostExponent);
  F32 second = F32::fromBits((int64_t(2 * bias) << 23) - exponent);
  Value factor = arith::MulFOp::create(b, larger, second);
  return {first, second, factor, invert(factor, factor)};
}

Value Quantizer::divideBy(Value value, const GivenScale &scale) {
  // Above all representable values; the remainder of infinity would be NaN.
  constexpr double beyond = 0x1p24;
  Value scaled = arith::MulFOp::create(
      b, arith::MulFOp::create(b, value, scale.first), scale.second);
  Value isInRange =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT,
                            math::AbsFOp::create(b, scaled), makeF32(beyond));
  // A given scale has arbitrary digits, so that a quotient may be as near to a
  // rounding boundary as f32 allows.
  Value quotient =
      divide(scaled, scale.factor, scale.reciprocal, /*corrections=*/2);
  return arith::SelectOp::create(b, isInRange, quotient, scaled);
}

/// Rounds to i32. NaN becomes 0, and values beyond the range saturate.
Value Quantizer::roundToInteger(Value quotient) {
  I32 rounded{
      b, LLVM::CallIntrinsicOp::create(
             b, b.getI32Type(), b.getStringAttr("llvm.nvvm.f2i.rn"), quotient)
             .getResult(0)};
  auto greatest = int64_t(moe::getLargestCode(quant));
  return max(min(rounded, greatest), -greatest);
}

Value Quantizer::round(ValueRange quotients) {
  if (!areIntegers())
    return floats.round(quotients);
  auto toByte = [&](Value quotient) {
    return I32{b, roundToInteger(quotient)} & 0xFF;
  };
  I32 word = toByte(quotients.front());
  for (auto [i, quotient] : llvm::enumerate(quotients.drop_front()))
    word = word | toByte(quotient) << 8 * (int64_t(i) + 1);
  return word;
}

Value Quantizer::roundToBF16(ValueRange quotients) {
  if (!areIntegers())
    return floats.extendPairToBF16(floats.round(quotients), /*pair=*/0);
  SmallVector<Value> integers(2, makeF32(0));
  for (auto [integer, quotient] : llvm::zip(integers, quotients))
    integer =
        arith::SIToFPOp::create(b, b.getF32Type(), roundToInteger(quotient));
  Value pair = vector::FromElementsOp::create(
      b, VectorType::get(2, b.getF32Type()), integers);
  return LLVM::BitcastOp::create(b, b.getI32Type(),
                                 castFloat(b, pair, b.getBF16Type()));
}

Value Quantizer::multiply(Value pair, Value power) {
  auto type = VectorType::get(2, b.getBF16Type());
  Value factor = vector::BroadcastOp::create(
      b, type, castFloat(b, power, b.getBF16Type()));
  // A fused multiply-add, the only bf16 arithmetic of sm_80; adding -0 changes
  // nothing.
  Value zeros = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, b.getFloatAttr(b.getBF16Type(), -0.0)));
  Value product = math::FmaOp::create(b, LLVM::BitcastOp::create(b, type, pair),
                                      factor, zeros);
  return LLVM::BitcastOp::create(b, b.getI32Type(), product);
}

Value Quantizer::pack(ArrayRef<Value> quotients, Value power) {
  bool areWide = moe::areKeptAsBF16(quant);
  int64_t lanes = quotients.size(), perWord = 4 / getCodeBytes();
  SmallVector<Value> words;
  for (int64_t i = 0; i < lanes; i += perWord) {
    ArrayRef<Value> some =
        quotients.slice(i, std::min<int64_t>(perWord, lanes - i));
    words.push_back(areWide ? roundToBF16(some) : round(some));
    if (power)
      words.back() = multiply(words.back(), power);
  }
  if (lanes < perWord)
    return arith::TruncIOp::create(b, b.getIntegerType(32 / perWord * lanes),
                                   words.front());
  if (words.size() == 1)
    return words.front();
  return vector::FromElementsOp::create(
      b, VectorType::get(words.size(), b.getI32Type()), words);
}

Value Quantizer::encode(Value values, const Divisor &divisor) {
  int64_t lanes = cast<VectorType>(values.getType()).getNumElements();
  SmallVector<Value> quotients;
  for (int64_t lane = 0; lane < lanes; ++lane)
    quotients.push_back(
        divide(vector::ExtractOp::create(b, values, lane), divisor));
  return pack(quotients, moe::areTimesScales(quant) ? divisor.scale : Value());
}

Value Quantizer::encodeBy(Value values, Value scale) {
  int64_t lanes = cast<VectorType>(values.getType()).getNumElements();
  SmallVector<Value> quotients;
  for (int64_t lane = 0; lane < lanes; ++lane)
    quotients.push_back(arith::DivFOp::create(
        b, vector::ExtractOp::create(b, values, lane), scale));
  return pack(quotients, /*power=*/Value());
}
