//===- PairDecoder.cpp - stored elements as 16 bits, by two -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PairDecoder.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;

I32 PairDecoder::adjust(I32 bits, I32 factor, I32 offset) {
  if (!factor && !offset)
    return bits;
  Pair pair = toPair(bits);
  Pair times = factor ? toPair(factor) : pair.like(1);
  // Adding -0 changes nothing.
  Pair plus = offset ? toPair(offset) : pair.like(-0.0);
  return fma(pair, times, plus).bits();
}

I32 PairDecoder::makePair(F32 value) {
  Value narrow = castFloat(b, value, element);
  return Pair(b, vector::FromElementsOp::create(b, Pair::typeOf(element),
                                                ValueRange{narrow, narrow}))
      .bits();
}

std::pair<F32, F32> PairDecoder::split(I32 bits) {
  Pair pair = toPair(bits);
  F32 low = pair.element(0);
  return {low, pair.element(1)};
}

I32 PairDecoder::decode(I32 word, int64_t number) {
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
  return bits < 0 ? word >> -bits : word << bits;
}

/// The two exponent bits and one digit, moved to the lowest exponent bits and
/// the highest digit, give values that are too small by the difference of the
/// exponent biases, also for subnormals.
I32 PairDecoder::decodeE2M1(I32 word, int64_t number) {
  bool isBF16 = element.isBF16();
  int64_t digitBits = isBF16 ? 7 : 10;
  int64_t lowest = 4 * number;
  I32 sign = shiftLeft(word, 12 - lowest) & 0x80008000;
  I32 digits = shiftLeft(word, digitBits - 1 - lowest) &
               (int64_t(0x00070007) << (digitBits - 1));
  Pair moved = toPair(sign | digits);
  return multiply(moved, moved.like(isBF16 ? 0x1p126 : 0x1p14)).bits();
}

/// As the lowest digits of 128 in bf16 or 1024 in f16, whose last digit is 1.
I32 PairDecoder::decodeInt4(I32 word, int64_t number) {
  bool isBF16 = element.isBF16();
  I32 values = shiftLeft(word, -4 * number) & 0x000F000F;
  double anchor = isBF16 ? 128 : 1024;
  Pair anchored = toPair(values | (isBF16 ? 0x43004300 : 0x64006400));
  Pair offset = anchored.like(-(anchor + getOffset(elements)));
  return fma(anchored, anchored.like(1), offset).bits();
}

I32 PairDecoder::permute(I32 first, I32 second, I32 selector) {
  ImplicitLocOpBuilder &b = first.builder();
  return {b, NVVM::PermuteOp::create(b, b.getI32Type(), first, second, selector,
                                     NVVM::PermuteMode::DEFAULT)};
}

/// Two words have the bytes of eight entries, selected by three bits of a
/// value; the fourth bit selects between these and the upper eight.
I32 PairDecoder::lookUp(I32 word, ArrayRef<uint32_t> table, int64_t byte) {
  auto getWord = [&](int64_t first) {
    uint32_t bytes = 0;
    for (int64_t i = 0; i < 4; ++i)
      bytes |= (table[first + i] >> 8 * byte & 0xFF) << 8 * i;
    return word.like(bytes);
  };
  I32 inHalf = word & 0x7777;
  I32 lower = permute(getWord(0), getWord(4), inHalf);
  I32 upper = permute(getWord(8), getWord(12), inHalf);
  I32 half = word >> 1 & 0x4444;
  return permute(lower, upper, half | 0x3210);
}

/// Looks up the two values' bytes of bf16 or f16 in the code book.
I32 PairDecoder::decodeByBook(I32 word, int64_t number) {
  SmallVector<uint32_t> table;
  for (float value : book) {
    APFloat rounded(value);
    bool isInexact;
    rounded.convert(cast<FloatType>(element).getFloatSemantics(),
                    APFloat::rmNearestTiesToEven, &isInexact);
    table.push_back(rounded.bitcastToAPInt().getZExtValue());
  }
  I32 values = shiftLeft(word, -4 * number) & 0x000F000F;
  I32 both = values | values >> 12;
  I32 low = lookUp(both, table, 0);
  return permute(low, lookUp(both, table, 1), 0x5140);
}

SmallVector<F32> PairDecoder::decodeFour(I32 word) {
  if (elements == Elements::CodeBook) {
    SmallVector<uint32_t> table;
    for (float value : book)
      table.push_back(llvm::bit_cast<uint32_t>(value));
    SmallVector<I32> bytes;
    for (int64_t byte = 0; byte < 4; ++byte)
      bytes.push_back(lookUp(word, table, byte));
    SmallVector<F32> four;
    for (int64_t selector : {0x5140, 0x7362}) {
      I32 low = permute(bytes[0], bytes[1], selector);
      I32 high = permute(bytes[2], bytes[3], selector);
      for (int64_t ofElement : {0x5410, 0x7632})
        four.push_back(F32::fromBits(permute(low, high, ofElement)));
    }
    return four;
  }
  // The upper two elements where a pair has its second ones.
  I32 spread = word | word << 8;
  auto [first, third] = split(decode(spread, 0));
  auto [second, fourth] = split(decode(spread, 1));
  return {first, second, third, fourth};
}

/// In f16 as int4. In bf16, where numbers near 128 have 7 binary digits, the
/// eighth bit decides whether 128 or 256 is subtracted.
I32 PairDecoder::decodeInt8(I32 word, int64_t number) {
  auto spread = [&](I32 from, int64_t upper) {
    // Bytes 2n and 2n + 1 below bytes of `upper`.
    return permute(from, from.like(upper), number ? 0x4342 : 0x4140);
  };
  bool isSigned = elements == Elements::Int8;
  constexpr double half = getOffset(Elements::UInt8);
  if (!element.isBF16()) {
    I32 biased = isSigned ? word ^ 0x80808080 : word;
    Pair anchored = toPair(spread(biased, 0x64646464));
    return fma(anchored, anchored.like(1), anchored.like(-(1024 + half)))
        .bits();
  }
  I32 bytes = spread(word, 0);
  I32 low = (bytes & 0x007F007F) | 0x43004300;
  I32 high = (bytes & 0x00800080) ^ (isSigned ? 0xC300C300 : 0xC380C380);
  Pair digits = toPair(low), anchor = toPair(high);
  return fma(digits, digits.like(1), anchor).bits();
}
