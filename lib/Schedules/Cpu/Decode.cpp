//===- Decode.cpp - stored elements and scales as f32 -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decode.h"

using namespace mlir;
using namespace moec;

/// `element`, or a vector of it with the length of `like`.
static Type getTypeLike(Value like, Type element) {
  if (auto vector = dyn_cast<VectorType>(like.getType()))
    return vector.clone(element);
  return element;
}

/// The fields of e4m3 are shifted to those of f16, where they mean 2^-8 of the
/// value, also for subnormals. NaN has all digits set; f16 needs the whole
/// exponent set as well.
F32 moec::decodeE4M3(I8 bytes) {
  using I16 = IntegerValue<int16_t>;
  ImplicitLocOpBuilder &b = bytes.builder();
  constexpr int64_t sign = 0x8000, digits = 0x3F80, exponent = 0x7C00;
  I16 bits(
      b, arith::ExtSIOp::create(b, getTypeLike(bytes, b.getI16Type()), bytes));
  I16 moved = bits << 7 & (sign | digits);
  Flag isNaN = (moved & digits) == digits;
  I16 halves = select(isNaN, moved | exponent, moved);
  Value narrow =
      arith::BitcastOp::create(b, getTypeLike(bytes, b.getF16Type()), halves);
  return F32(b, castFloat(b, narrow, b.getF32Type())) * 256;
}

/// The byte becomes the exponent of f32; 2^-127 is subnormal there.
F32 moec::decodeE8M0(I8 bytes) {
  ImplicitLocOpBuilder &b = bytes.builder();
  constexpr int64_t least = 0x00400000, nan = 0x7FC00000;
  I32 exponent(
      b, arith::ExtUIOp::create(b, getTypeLike(bytes, b.getI32Type()), bytes));
  I32 bits = exponent << 23;
  bits = select(exponent == 0, bits.like(least), bits);
  bits = select(exponent == 255, bits.like(nan), bits);
  return F32::fromBits(bits);
}

F32 moec::decodeInteger(I8 bytes, bool isUnsigned) {
  ImplicitLocOpBuilder &b = bytes.builder();
  Type wide = getTypeLike(bytes, b.getI32Type());
  Value integers = isUnsigned ? Value(arith::ExtUIOp::create(b, wide, bytes))
                              : Value(arith::ExtSIOp::create(b, wide, bytes));
  return {b, arith::SIToFPOp::create(b, getTypeLike(bytes, b.getF32Type()),
                                     integers)};
}

/// The doubled magnitudes are the integers 0, 1, 2, 3, 4, 6, 8 and 12: the
/// maximum of m, 2m - 4 and 4m - 16 at each m.
F32 moec::decodeE2M1(I8 values) {
  I8 m = values & 7;
  I8 low = (m << 1) - 4, high = (m << 2) - 16;
  I8 twice = max(m, max(low, high));
  Flag isNegative = values.compare(arith::CmpIPredicate::ugt, values.like(7));
  twice = select(isNegative, -twice, twice);
  return decodeInteger(twice, /*isUnsigned=*/false) * 0.5;
}

/// A binary tree of selects: each bit of the index halves the candidates.
F32 moec::decodeByBook(KernelEmitter &emitter, const moe::CodeBook &book,
                       I8 values) {
  ImplicitLocOpBuilder &b = emitter.b;
  Type type = getTypeLike(values, b.getF32Type());
  SmallVector<F32, std::tuple_size_v<moe::CodeBook>> numbers;
  for (float number : book)
    numbers.push_back({b, emitter.constant(type, b.getF32FloatAttr(number))});
  for (int64_t bit = 1; numbers.size() > 1; bit *= 2) {
    Flag isSet = (values & bit) != 0;
    for (size_t i = 0; i < numbers.size() / 2; ++i)
      numbers[i] = select(isSet, numbers[2 * i + 1], numbers[2 * i]);
    numbers.truncate(numbers.size() / 2);
  }
  return numbers.front();
}

F32 moec::decodeElements(KernelEmitter &emitter, moe::QuantAttr quant,
                         I8 values) {
  Type storage = quant.getStorage();
  if (isa<Float8E4M3FNType>(storage))
    return decodeE4M3(values);
  if (isa<Float4E2M1FNType>(storage))
    return decodeE2M1(values);
  if (std::optional<moe::CodeBook> book = moe::getCodeBook(storage))
    return decodeByBook(emitter, *book, values);
  return decodeInteger(values, quant.getZeroPoint() || storage.isInteger(4));
}

I8 moec::splitPairs(I8 bytes) {
  ImplicitLocOpBuilder &b = bytes.builder();
  Value low = bytes & 15, high = bytes >> 4;
  return {b, vector::InterleaveOp::create(b, low, high)};
}

F32 moec::loadScale(KernelEmitter &emitter, Value scales, ValueRange indices) {
  ImplicitLocOpBuilder &b = emitter.b;
  Type element = getElementType(scales);
  if (element.getIntOrFloatBitWidth() > 8)
    return emitter.loadF32(scales, indices);
  I8 byte(b, arith::BitcastOp::create(
                 b, b.getI8Type(), memref::LoadOp::create(b, scales, indices)));
  return isa<Float8E8M0FNUType>(element) ? decodeE8M0(byte) : decodeE4M3(byte);
}
