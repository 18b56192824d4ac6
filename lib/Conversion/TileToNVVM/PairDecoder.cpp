//===- PairDecoder.cpp - stored elements as 16 bits, by two -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PairDecoder.h"

#include "../Emission/KernelEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

Value PairDecoder::splat(double value) {
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(getPairType(), b.getFloatAttr(element, value)));
}

Value PairDecoder::toPair(Value word) {
  return LLVM::BitcastOp::create(b, getPairType(), word);
}

Value PairDecoder::toWord(Value pair) {
  return LLVM::BitcastOp::create(b, b.getI32Type(), pair);
}

/// Fused, the only bf16 arithmetic of sm_80.
Value PairDecoder::multiplyAdd(Value pair, Value factor, Value offset) {
  return math::FmaOp::create(b, pair, factor, offset);
}

Value PairDecoder::adjust(Value pair, Value factor, Value offset) {
  if (!factor && !offset)
    return pair;
  // Adding -0 changes nothing.
  return toWord(multiplyAdd(toPair(pair), factor ? toPair(factor) : splat(1),
                            offset ? toPair(offset) : splat(-0.0)));
}

Value PairDecoder::makePair(Value value) {
  Value narrow = castFloat(b, value, element);
  return toWord(vector::FromElementsOp::create(b, getPairType(),
                                               ValueRange{narrow, narrow}));
}

std::pair<Value, Value> PairDecoder::split(Value pair) {
  Value vector = toPair(pair);
  auto extract = [&](int64_t i) {
    return castFloat(b, vector::ExtractOp::create(b, vector, i),
                     b.getF32Type());
  };
  Value low = extract(0);
  return {low, extract(1)};
}

Value PairDecoder::decode(Value word, int64_t number) {
  switch (elements) {
  case Elements::E4M3:
    return element.isBF16() ? floats.extendPairToBF16(word, number)
                            : floats.extendPair(word, number);
  case Elements::E2M1:
    return decodeE2M1(word, number);
  case Elements::CodeBook:
    return decodeByBook(word, number);
  case Elements::Int4:
  case Elements::UInt4:
    return decodeInt4(word, number);
  case Elements::Int8:
  case Elements::UInt8:
    return decodeInt8(word, number);
  case Elements::Plain:
    break;
  }
  llvm_unreachable("plain elements are not decoded");
}

static I32 shiftLeft(I32 word, int64_t bits) {
  if (bits == 0)
    return word;
  return bits > 0 ? word << bits : word >> -bits;
}

/// The two exponent bits and one digit, moved to the lowest exponent bits and
/// the highest digit, give values that are too small by the difference of the
/// exponent biases, also for subnormals.
Value PairDecoder::decodeE2M1(Value word, int64_t number) {
  bool isBF16 = element.isBF16();
  int64_t digitBits = isBF16 ? 7 : 10;
  int64_t lowest = 4 * number;
  I32 codes{b, word};
  I32 sign = shiftLeft(codes, 12 - lowest) & 0x80008000;
  I32 digits = shiftLeft(codes, digitBits - 1 - lowest) &
               (int64_t(0x00070007) << (digitBits - 1));
  Value moved = toPair((sign | digits));
  return toWord(
      multiplyAdd(moved, splat(isBF16 ? 0x1p126 : 0x1p14), splat(-0.0)));
}

/// As the lowest digits of 128 in bf16 or 1024 in f16, whose last digit is 1.
Value PairDecoder::decodeInt4(Value word, int64_t number) {
  bool isBF16 = element.isBF16();
  I32 codes = shiftLeft(I32{b, word}, -4 * number) & 0x000F000F;
  I32 anchored = codes | codes.like(isBF16 ? 0x43004300 : 0x64006400);
  double anchor = isBF16 ? 128 : 1024;
  Value offset = splat(-(anchor + getOffset(elements)));
  return toWord(multiplyAdd(toPair(anchored), splat(1), offset));
}

Value PairDecoder::permute(Value first, Value second, Value selector) {
  return NVVM::PermuteOp::create(b, b.getI32Type(), first, second, selector,
                                 NVVM::PermuteMode::DEFAULT);
}

Value PairDecoder::permute(Value first, Value second, int64_t selector) {
  return permute(first, second, I32{b, first}.like(selector));
}

/// Two words have the bytes of eight entries, selected by three bits of a
/// value; the fourth bit selects between these and the upper eight.
Value PairDecoder::lookUp(Value codes, ArrayRef<uint32_t> table, int64_t byte) {
  I32 word{b, codes};
  auto getWord = [&](int64_t first) {
    uint32_t bytes = 0;
    for (int64_t i = 0; i < 4; ++i)
      bytes |= (table[first + i] >> 8 * byte & 0xFF) << 8 * i;
    return word.like(bytes);
  };
  Value place = (word & 0x7777);
  Value lower = permute(getWord(0), getWord(4), place);
  Value upper = permute(getWord(8), getWord(12), place);
  I32 half = word >> 1 & 0x4444;
  return permute(lower, upper, (half | word.like(0x3210)));
}

/// Looks up the two values' bytes of bf16 or f16 in the code book.
Value PairDecoder::decodeByBook(Value word, int64_t number) {
  SmallVector<uint32_t> table;
  for (float value : book) {
    APFloat rounded(value);
    bool isInexact;
    rounded.convert(cast<FloatType>(element).getFloatSemantics(),
                    APFloat::rmNearestTiesToEven, &isInexact);
    table.push_back(rounded.bitcastToAPInt().getZExtValue());
  }
  I32 codes = shiftLeft(I32{b, word}, -4 * number) & 0x000F000F;
  Value both = (codes | codes >> 12);
  Value low = lookUp(both, table, 0);
  return permute(low, lookUp(both, table, 1), 0x5140);
}

SmallVector<Value> PairDecoder::decodeFour(Value word) {
  if (elements == Elements::CodeBook) {
    SmallVector<uint32_t> table;
    for (float value : book)
      table.push_back(llvm::bit_cast<uint32_t>(value));
    SmallVector<Value> bytes, four;
    for (int64_t byte = 0; byte < 4; ++byte)
      bytes.push_back(lookUp(word, table, byte));
    for (int64_t selector : {0x5140, 0x7362}) {
      Value low = permute(bytes[0], bytes[1], selector);
      Value high = permute(bytes[2], bytes[3], selector);
      for (int64_t ofElement : {0x5410, 0x7632})
        four.push_back(arith::BitcastOp::create(b, b.getF32Type(),
                                                permute(low, high, ofElement)));
    }
    return four;
  }
  // The upper two elements where a pair has its second ones.
  I32 codes{b, word};
  Value spread = (codes | (codes << 8));
  auto [first, third] = split(decode(spread, 0));
  auto [second, fourth] = split(decode(spread, 1));
  return {first, second, third, fourth};
}

/// In f16 as int4. In bf16, where numbers near 128 have 7 binary digits, the
/// eighth bit decides whether 128 or 256 is subtracted.
Value PairDecoder::decodeInt8(Value word, int64_t number) {
  I32 codes{b, word};
  auto spread = [&](I32 from, int64_t upper) {
    // Bytes 2n and 2n + 1 below bytes of `upper`.
    int64_t selector = number ? 0x4342 : 0x4140;
    return I32{b, permute(from, codes.like(upper), selector)};
  };
  bool isSigned = elements == Elements::Int8;
  constexpr double half = getOffset(Elements::UInt8);
  if (!element.isBF16()) {
    I32 biased = isSigned ? codes ^ 0x80808080 : codes;
    I32 anchored = spread(biased, 0x64646464);
    return toWord(
        multiplyAdd(toPair(anchored), splat(1), splat(-(1024 + half))));
  }
  I32 bytes = spread(codes, 0);
  I32 low = (bytes & 0x007F007F) | codes.like(0x43004300);
  I32 high = (bytes & 0x00800080) ^ (isSigned ? 0xC300C300 : 0xC380C380);
  return toWord(multiplyAdd(toPair(low), splat(1), toPair(high)));
}
