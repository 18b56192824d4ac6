//===- Quantizer.cpp - values with a scale, on one thread -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Quantizer.h"

#include "Pair.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace moec;

/// The elements of a vector of f32.
static SmallVector<F32> splitVector(F32 vector) {
  SmallVector<F32> elements;
  int64_t lanes = cast<VectorType>(vector.getType()).getNumElements();
  for (int64_t lane = 0; lane < lanes; ++lane)
    elements.push_back(vector.element(lane));
  return elements;
}

F32 Quantizer::findLargest(ArrayRef<F32> vectors, F32 largest) {
  for (F32 values : vectors)
    for (F32 magnitude : splitVector(values.abs()))
      largest = largest ? larger(largest, magnitude) : magnitude;
  return largest;
}

/// Quotient by a correctly rounded reciprocal, corrected by the remainder:
/// after two corrections it is rounded as a division (Markstein). Divisors are
/// at least 2^-42, so that no relevant value underflows. With these signs -0
/// stays -0.
F32 Quantizer::divide(F32 value, F32 divisor, F32 reciprocal,
                      int64_t corrections) {
  F32 quotient = value * reciprocal;
  F32 back = -reciprocal;
  for (int64_t i = 0; i < corrections; ++i) {
    F32 surplus = fma(quotient, divisor, -value);
    quotient = fma(surplus, back, quotient);
  }
  return quotient;
}

/// A correctly rounded division is an approximation and its correction if
/// nothing underflows; the general instruction has a branch for other cases.
F32 Quantizer::invert(F32 scale, F32 factor) {
  F32 reciprocal(b, NVVM::RcpApproxFtzF32Op::create(b, b.getF32Type(), scale));
  F32 left = fma(-factor, reciprocal, factor.like(1));
  return fma(reciprocal, left, reciprocal);
}

Quantizer::Divisor Quantizer::getDivisor(F32 largest) {
  double greatest = moe::getLargestValue(quant);
  largest = larger(largest, largest.like(moe::getMinMagnitude(quant)));
  F32 infinity = largest.like(std::numeric_limits<double>::infinity());
  Flag isInfinite = largest == infinity;
  F32 scale = divide(largest, largest.like(greatest),
                     largest.like(1 / greatest), /*corrections=*/2);
  if (quant.getPowerOfTwo())
    scale = roundUpToPowerOfTwo(b, scale);
  scale = select(isInfinite, infinity, scale);
  // An infinite scale has the reciprocal 0; its remainder would be NaN.
  F32 factor = select(isInfinite, scale.like(0), scale);
  return {scale, factor, invert(scale, factor)};
}

F32 Quantizer::divide(F32 value, const Divisor &divisor) {
  // Quotients of 16-bit elements are too far from the rounding boundaries of
  // e4m3 for a second correction to matter.
  int64_t corrections = element.isF32() || areIntegers() ? 2 : 1;
  return divide(value, divisor.factor, divisor.reciprocal, corrections);
}

Quantizer::GivenScale Quantizer::takeApart(F32 scale) {
  constexpr double small = 0x1p-64, up = 0x1p64;
  constexpr int64_t exponentBits = 0x7F800000;
  // Powers of two that are normal, for subnormal scales too.
  constexpr int64_t bias = 127, mostExponent = int64_t(2 * bias - 1) << 23;
  F32 first = select(scale < small, scale.like(up), 1);
  F32 larger = scale * first;
  I32 exponent = min(larger.bits() & exponentBits, mostExponent);
  F32 second = F32::fromBits((int64_t(2 * bias) << 23) - exponent);
  F32 factor = larger * second;
  return {first, second, factor, invert(factor, factor)};
}

F32 Quantizer::divideBy(F32 value, const GivenScale &scale) {
  // Above all representable values; the remainder of infinity would be NaN.
  constexpr double beyond = 0x1p24;
  F32 scaled = value * scale.first * scale.second;
  Flag isInRange = scaled.abs() < beyond;
  // A given scale has arbitrary digits, so that a quotient may be as near to a
  // rounding boundary as f32 allows.
  F32 quotient =
      divide(scaled, scale.factor, scale.reciprocal, /*corrections=*/2);
  return select(isInRange, quotient, scaled);
}

/// Rounds to i32. NaN becomes 0, and values beyond the range saturate.
I32 Quantizer::roundToInteger(F32 quotient) {
  Value call = LLVM::CallIntrinsicOp::create(
                   b, b.getI32Type(), b.getStringAttr("llvm.nvvm.f2i.rn"),
                   static_cast<Value>(quotient))
                   .getResult(0);
  auto greatest = int64_t(moe::getLargestValue(quant));
  return max(min(I32(b, call), greatest), -greatest);
}

I32 Quantizer::round(ArrayRef<F32> quotients) {
  if (!areIntegers())
    return floats.round(quotients);
  auto toByte = [&](F32 quotient) { return roundToInteger(quotient) & 0xFF; };
  I32 word = toByte(quotients.front());
  for (auto [i, quotient] : llvm::enumerate(quotients.drop_front()))
    word = word | toByte(quotient) << 8 * (int64_t(i) + 1);
  return word;
}

I32 Quantizer::roundToBF16(ArrayRef<F32> quotients) {
  if (!areIntegers())
    return floats.extendPairToBF16(floats.round(quotients), /*pair=*/0);
  SmallVector<F32> integers;
  for (F32 quotient : quotients)
    integers.push_back(roundToInteger(quotient).toF32());
  integers.resize(2, integers.front().like(0));
  Value both = makeVector(b, ArrayRef(integers));
  return Pair(b, castFloat(b, both, b.getBF16Type())).bits();
}

I32 Quantizer::multiplyPair(I32 bits, F32 power) {
  Type element = b.getBF16Type();
  Pair factor(b, vector::BroadcastOp::create(b, Pair::typeOf(element),
                                             castFloat(b, power, element)));
  return multiply(Pair::fromBits(bits, element), factor).bits();
}

Value Quantizer::pack(ArrayRef<F32> quotients, F32 power) {
  bool areWide = moe::areKeptAsBF16(quant);
  int64_t lanes = quotients.size(), perWord = 4 / getValueBytes();
  SmallVector<I32> words;
  for (int64_t i = 0; i < lanes; i += perWord) {
    ArrayRef<F32> some =
        quotients.slice(i, std::min<int64_t>(perWord, lanes - i));
    I32 word = areWide ? roundToBF16(some) : round(some);
    words.push_back(power ? multiplyPair(word, power) : word);
  }
  if (lanes < perWord)
    return words.front().lowBits(32 / perWord * lanes);
  if (words.size() == 1)
    return words.front();
  return makeVector(b, ArrayRef(words));
}

Value Quantizer::encode(F32 values, const Divisor &divisor) {
  SmallVector<F32> quotients;
  for (F32 value : splitVector(values))
    quotients.push_back(divide(value, divisor));
  return pack(quotients, moe::areTimesScales(quant) ? divisor.scale : F32());
}

Value Quantizer::encodeBy(F32 values, F32 scale) {
  SmallVector<F32> quotients;
  for (F32 value : splitVector(values))
    quotients.push_back(value / scale);
  return pack(quotients, /*power=*/{});
}
