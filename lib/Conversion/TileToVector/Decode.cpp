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

static Value constantLike(KernelEmitter &emitter, Value like, int64_t value) {
  Type element = getElementTypeOrSelf(like.getType());
  return emitter.constant(
      like.getType(),
      IntegerAttr::get(element, APInt(element.getIntOrFloatBitWidth(), value,
                                      /*isSigned=*/true,
                                      /*implicitTrunc=*/true)));
}

static Value multiply(KernelEmitter &emitter, Value values, double factor) {
  return arith::MulFOp::create(
      emitter.b, values,
      emitter.constant(values.getType(), emitter.b.getF32FloatAttr(factor)));
}

/// The fields of e4m3 are shifted to those of f16, where they mean 2^-8 of the
/// value, also for subnormals. NaN has all digits set; f16 needs the whole
/// exponent set as well.
Value moec::decodeE4M3(KernelEmitter &emitter, Value bytes) {
  ImplicitLocOpBuilder &b = emitter.b;
  constexpr int64_t sign = 0x8000, digits = 0x3F80, exponent = 0x7C00;
  Value bits =
      arith::ExtSIOp::create(b, getTypeLike(bytes, b.getI16Type()), bytes);
  auto constant = [&](int64_t value) {
    return constantLike(emitter, bits, value);
  };
  Value moved = arith::AndIOp::create(
      b, arith::ShLIOp::create(b, bits, constant(7)), constant(sign | digits));
  Value isNaN = arith::CmpIOp::create(
      b, arith::CmpIPredicate::eq,
      arith::AndIOp::create(b, moved, constant(digits)), constant(digits));
  Value halves = arith::SelectOp::create(
      b, isNaN, arith::OrIOp::create(b, moved, constant(exponent)), moved);
  Value narrow =
      arith::BitcastOp::create(b, getTypeLike(bytes, b.getF16Type()), halves);
  Value values =
      arith::ExtFOp::create(b, getTypeLike(bytes, b.getF32Type()), narrow);
  return multiply(emitter, values, 256);
}

/// The byte becomes the exponent of f32; 2^-127 is subnormal there.
Value moec::decodeE8M0(KernelEmitter &emitter, Value bytes) {
  ImplicitLocOpBuilder &b = emitter.b;
  constexpr int64_t least = 0x00400000, nan = 0x7FC00000;
  Value exponent =
      arith::ExtUIOp::create(b, getTypeLike(bytes, b.getI32Type()), bytes);
  auto constant = [&](int64_t value) {
    return constantLike(emitter, exponent, value);
  };
  auto replace = [&](int64_t code, int64_t by, Value other) -> Value {
    Value is = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, exponent,
                                     constant(code));
    return arith::SelectOp::create(b, is, constant(by), other);
  };
  Value bits = arith::ShLIOp::create(b, exponent, constant(23));
  bits = replace(255, nan, replace(0, least, bits));
  return arith::BitcastOp::create(b, getTypeLike(bytes, b.getF32Type()), bits);
}

Value moec::decodeInteger(KernelEmitter &emitter, Value bytes,
                          bool isUnsigned) {
  ImplicitLocOpBuilder &b = emitter.b;
  Type wide = getTypeLike(bytes, b.getI32Type());
  Value integers = isUnsigned ? Value(arith::ExtUIOp::create(b, wide, bytes))
                              : Value(arith::ExtSIOp::create(b, wide, bytes));
  return arith::SIToFPOp::create(b, getTypeLike(bytes, b.getF32Type()),
                                 integers);
}

/// The doubled magnitudes are the integers 0, 1, 2, 3, 4, 6, 8 and 12: the
/// maximum of m, 2m - 4 and 4m - 16 at each m.
Value moec::decodeE2M1(KernelEmitter &emitter, Value codes) {
  ImplicitLocOpBuilder &b = emitter.b;
  auto constant = [&](int64_t value) {
    return constantLike(emitter, codes, value);
  };
  auto line = [&](Value m, int64_t shift, int64_t less) -> Value {
    return arith::SubIOp::create(
        b, arith::ShLIOp::create(b, m, constant(shift)), constant(less));
  };
  Value m = arith::AndIOp::create(b, codes, constant(7));
  Value twice = arith::MaxSIOp::create(
      b, m, arith::MaxSIOp::create(b, line(m, 1, 4), line(m, 2, 16)));
  Value isNegative =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, codes, constant(7));
  twice = arith::SelectOp::create(
      b, isNegative, arith::SubIOp::create(b, constant(0), twice), twice);
  return multiply(emitter, decodeInteger(emitter, twice, /*isUnsigned=*/false),
                  0.5);
}

/// A binary tree of selects: each bit of the index halves the candidates.
Value moec::decodeByBook(KernelEmitter &emitter, const moe::CodeBook &book,
                         Value codes) {
  ImplicitLocOpBuilder &b = emitter.b;
  Type type = getTypeLike(codes, b.getF32Type());
  SmallVector<Value, std::tuple_size_v<moe::CodeBook>> numbers;
  for (float number : book)
    numbers.push_back(emitter.constant(type, b.getF32FloatAttr(number)));
  for (int64_t bit = 1; numbers.size() > 1; bit *= 2) {
    Value isSet = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ne,
        arith::AndIOp::create(b, codes, constantLike(emitter, codes, bit)),
        constantLike(emitter, codes, 0));
    for (size_t i = 0; i < numbers.size() / 2; ++i)
      numbers[i] =
          arith::SelectOp::create(b, isSet, numbers[2 * i + 1], numbers[2 * i]);
    numbers.truncate(numbers.size() / 2);
  }
  return numbers.front();
}

Value moec::decodeElements(KernelEmitter &emitter, moe::QuantAttr quant,
                           Value codes) {
  Type storage = quant.getStorage();
  if (isa<Float8E4M3FNType>(storage))
    return decodeE4M3(emitter, codes);
  if (isa<Float4E2M1FNType>(storage))
    return decodeE2M1(emitter, codes);
  if (std::optional<moe::CodeBook> book = moe::getCodeBook(storage))
    return decodeByBook(emitter, *book, codes);
  return decodeInteger(emitter, codes,
                       quant.getZeroPoint() || storage.isInteger(4));
}

Value moec::splitPairs(KernelEmitter &emitter, Value bytes) {
  ImplicitLocOpBuilder &b = emitter.b;
  Value low = arith::AndIOp::create(b, bytes, constantLike(emitter, bytes, 15));
  Value high =
      arith::ShRUIOp::create(b, bytes, constantLike(emitter, bytes, 4));
  return vector::InterleaveOp::create(b, low, high);
}

Value moec::loadScale(KernelEmitter &emitter, Value scales,
                      ValueRange indices) {
  ImplicitLocOpBuilder &b = emitter.b;
  Type element = getElementType(scales);
  if (element.getIntOrFloatBitWidth() > 8)
    return emitter.loadF32(scales, indices);
  Value byte = arith::BitcastOp::create(
      b, b.getI8Type(), memref::LoadOp::create(b, scales, indices));
  return isa<Float8E8M0FNUType>(element) ? decodeE8M0(emitter, byte)
                                         : decodeE4M3(emitter, byte);
}
