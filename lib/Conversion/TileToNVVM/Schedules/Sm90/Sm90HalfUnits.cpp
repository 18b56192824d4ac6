//===- Sm90HalfUnits.cpp - units that become bf16 or f16 --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Decoder of prepacked weights to bf16 or f16. A word has four pairs of
// quantized values, or two. A mask, perhaps after a shift, moves a pair to
// where a bf16 or f16 is its value times a small power of two. The
// multiplication with the scale, whose exponent is higher by that power,
// restores the value: exactly for floats if the scale is a power of two; with
// one rounding for integers less their zero point, which is subtracted exactly.
// A scale with more digits than a bf16 is stored as the sum of two. With a code
// book, all pairs of its entries are in shared memory.

#include "Sm90Units.h"

#include "../../InlinePtx.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <cmath>

using namespace mlir;
using namespace moec;
using moe::Fragments;

namespace {

/// mmas of a packed tile, each with one or two words of quantized values.
constexpr int64_t kProducts = 4;
/// A registers of a fragment: of two rows, and of two octets along K.
constexpr int64_t kRegisters = Fragments::kRegisters;

/// Decodes to bf16 or f16.
class HalfDecoder final : public UnitDecoder {
public:
  HalfDecoder(AsyncEmitter &emitter, const Fragments &format, Value book)
      : emitter(emitter), b(emitter.b), format(format),
        hasF16(format.numbers == Fragments::Numbers::F16), book(book) {}

  OpenUnit open(const PackedUnit &packed) override;
  SmallVector<I32> close(const OpenUnit &unit, int64_t part,
                         int64_t parts) override;

private:
  /// Bits of a bf16 below its exponent; bytes of a bf16 or f16.
  static constexpr int64_t kDigits = 7, kHalfBytes = 2;
  static constexpr int64_t kRows = Fragments::kQuadRows;

  Type getNumberType() {
    return hasF16 ? Type(b.getF16Type()) : Type(b.getBF16Type());
  }
  VectorType getPairType() { return VectorType::get(2, getNumberType()); }
  Value toPair(I32 word) {
    return LLVM::BitcastOp::create(b, getPairType(), word);
  }
  I32 toWord(Value pair) {
    return {b, LLVM::BitcastOp::create(b, b.getI32Type(), pair)};
  }
  Value makePair(double number) {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(getPairType(),
                                  b.getFloatAttr(getNumberType(), number)));
  }
  /// The midpoint of the quantized range, in the form of row 0 or 1 of the
  /// thread's two, in both halves.
  Value getMiddle(int64_t row) {
    constexpr int64_t unitRows[kRows] = {0, 8};
    return makePair(std::ldexp(double(format.getMiddle()),
                               -int(format.getExponent(unitRows[row]))));
  }
  /// `pair * other + addend` on words, rounded once; the product if there is no
  /// addend.
  I32 multiply(I32 pair, I32 other, I32 addend = {}) {
    // Adding -0 changes nothing.
    return toWord(
        math::FmaOp::create(b, toPair(pair), toPair(other),
                            addend ? toPair(addend) : makePair(-0.0)));
  }
  /// Half `half` of some words, in both halves.
  I32 repeat(ArrayRef<I32> words, int64_t half);
  /// Byte `number` of some words, with its lowest bit at `bit`, as the stored
  /// scale, in both halves.
  I32 getByte(ArrayRef<I32> words, int64_t number, int64_t bit);
  /// Scale `number`, in both halves.
  I32 getScale(ArrayRef<I32> words, int64_t number);
  /// The leading digits of a stored f16 as a bf16, in both halves, and the
  /// remaining digits.
  std::pair<I32, I32> split(ArrayRef<I32> words, int64_t number);
  /// All pairs of a word, not yet scaled.
  SmallVector<I32> takeApart(I32 codes);
  /// The pair of code book entries for a byte of two indices.
  I32 lookUp(I32 codes, int64_t byte);
  /// Pair of register `i`, not yet scaled, and the helpers per format; they
  /// take the values of the register or of its word.
  I32 move(I32 codes, int64_t i);
  I32 moveE2M1(I32 codes, int64_t i);
  I32 moveE4M3(I32 codes, int64_t i);
  /// Index of the scale of a register.
  int64_t getNumber(int64_t product, int64_t i) const {
    return kRows * (product * format.getGroups() / kProducts) + i % kRows;
  }

  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  Fragments format;
  bool hasF16;
  Value book;
};

I32 HalfDecoder::repeat(ArrayRef<I32> words, int64_t half) {
  constexpr int64_t perWord = 2;
  Value pair = toPair(words[half / perWord]);
  half %= perWord;
  return toWord(
      vector::ShuffleOp::create(b, pair, pair, ArrayRef<int64_t>{half, half}));
}

I32 HalfDecoder::getByte(ArrayRef<I32> words, int64_t number, int64_t bit) {
  // Bytes 0 and 2 move up to that bit of both halves, bytes 1 and 3 down.
  constexpr int64_t perWord = 4, byteBits = 8, both = 0x00010001;
  I32 kept = words[number / perWord];
  I32 moved = number % 2 ? kept >> (byteBits - bit) : kept << bit;
  I32 bytes = moved & (0xFF << bit) * both;
  // For f16 the exponent is stored as it is.
  if (format.areE5M3() && !hasF16) {
    int64_t least = format.getLeastExponent() << kDigits;
    bytes = bytes + least * both;
  }
  return repeat(bytes, number % perWord / 2);
}

I32 HalfDecoder::getScale(ArrayRef<I32> words, int64_t number) {
  switch (format.scales) {
  case Fragments::Scales::BF16:
  case Fragments::Scales::F16:
    return repeat(words, number);
  case Fragments::Scales::F32:
  case Fragments::Scales::Steps:
    break;
  case Fragments::Scales::E8M0:
    return getByte(words, number, kDigits);
  case Fragments::Scales::E5M3: {
    constexpr int64_t missing = 4, missingOfHalf = 7;
    return getByte(words, number, hasF16 ? missingOfHalf : missing);
  }
  }
  llvm_unreachable("all scales are listed");
}

std::pair<I32, I32> HalfDecoder::split(ArrayRef<I32> words, int64_t number) {
  // Digits of an f32 that a bf16 keeps.
  constexpr int64_t first = 0xFFFF0000, perWord = 2;
  F32 whole;
  I32 bits;
  if (format.scales == Fragments::Scales::F32) {
    bits = words[number];
    whole = F32::fromBits(bits);
  } else {
    Value halves = LLVM::BitcastOp::create(
        b, VectorType::get(perWord, b.getF16Type()), words[number / perWord]);
    F32 kept(b, castFloat(b, emitter.element<Value>(halves, number % perWord),
                          b.getF32Type()));
    whole = kept * std::ldexp(1.0, int(Fragments::kF16Bias));
    bits = whole.bits();
  }
  F32 rest = whole - F32::fromBits(bits & first);
  constexpr int64_t upper = 1;
  I32 leading = repeat(bits, upper);
  return {leading, repeat(rest.bits(), upper)};
}

I32 HalfDecoder::move(I32 codes, int64_t i) {
  switch (format.codes) {
  case Fragments::Codes::E2M1:
    return moveE2M1(codes, i);
  case Fragments::Codes::E4M3:
    return moveE4M3(codes, i % kRows);
  case Fragments::Codes::Int4: {
    // Both rows of an octet, adjacent.
    constexpr int64_t nibble = 0x000F000F, nibbleBits = 4, octetBits = 8;
    I32 octet = i / kRows ? codes >> octetBits : codes;
    return octet & (nibble << nibbleBits * (i % kRows));
  }
  case Fragments::Codes::Int8: {
    constexpr int64_t low = 0x00FF00FF;
    // Bytes 1 and 3, each below a zero byte (byte 4).
    constexpr int64_t high = 0x4341;
    if (i % kRows == 0)
      return codes & low;
    return emitter.permuteBytes(codes, emitter.i32(0), emitter.i32(high));
  }
  case Fragments::Codes::Book:
    return lookUp(codes, i);
  }
  llvm_unreachable("all codes are listed");
}

SmallVector<I32> HalfDecoder::takeApart(I32 codes) {
  SmallVector<I32> pairs;
  for (int64_t i = 0; i < format.getWordRegisters(); ++i)
    pairs.push_back(move(codes, i));
  return pairs;
}

I32 HalfDecoder::lookUp(I32 codes, int64_t byte) {
  constexpr int64_t byteBits = 8, wordBytes = 4;
  constexpr int64_t stride = Sm90Shape::kBookPairBytes;
  constexpr int64_t bits = (Sm90Shape::kBookPairs - 1) * stride;
  // The byte counts in strides; the lane's index has the lower bits.
  int64_t shift = byteBits * byte - llvm::Log2_64(stride);
  I32 moved = shift < 0 ? codes << -shift : codes >> shift;
  I32 own = emitter.lane() * wordBytes;
  return emitter.loadWord(emitter.advance(book, (moved & bits) | own));
}

I32 HalfDecoder::moveE4M3(I32 codes, int64_t i) {
  if (hasF16) {
    constexpr int64_t sign = 0x80008000, digits = 0x3F803F80;
    if (i == 0)
      return codes & (sign | digits);
    return ((codes << 1) & sign) | ((codes << 7) & digits);
  }
  constexpr int64_t all = 0x87F087F0, low = 0x80F080F0, high = 0x07000700;
  if (i == 0)
    return codes & all;
  return ((codes << 4) & low) | ((codes >> 4) & high);
}

I32 HalfDecoder::moveE2M1(I32 codes, int64_t i) {
  if (hasF16) {
    constexpr int64_t sign = 0x80008000, digits = 0x0E000E00;
    switch (i) {
    case 0:
      return codes & (sign | digits);
    case 1:
      return (codes << 3) & (sign | digits);
    case 2:
      return ((codes << 2) & sign) | ((codes << 6) & digits);
    default:
      return ((codes << 1) & sign) | ((codes << 9) & digits);
    }
  }
  constexpr int64_t all = 0x81C081C0, rotation = 4;
  switch (i) {
  case 0:
    return codes & all;
  case 1:
    return emitter.rotateRight(codes, rotation) & all;
  case 2:
    return (codes << 6) & all;
  default:
    return ((codes << 2) & 0x80C080C0) | ((codes >> 6) & 0x01000100);
  }
}

OpenUnit HalfDecoder::open(const PackedUnit &packed) {
  auto &[codes, scales] = packed;
  OpenUnit unit;
  SmallVector<I32> words{I32(b, scales)};
  if (isa<VectorType>(scales.getType()))
    words = emitter.elements<I32>(scales);
  int64_t count = kRows * format.getGroups();
  SmallVector<Value> zeroPoints;
  // Offset behind all scales, in half words.
  int64_t behind = count * format.getScaleBytes() / kHalfBytes;
  for (int64_t i = 0; i < count; ++i) {
    if (format.haveRests()) {
      auto [scale, rest] = split(words, i);
      unit.scales.push_back(scale);
      unit.rests.push_back(rest);
    } else {
      unit.scales.push_back(getScale(words, i));
    }
    if (format.hasMinima)
      unit.addends.push_back(repeat(words, behind + count + i));
    if (format.hasZeroPoints)
      zeroPoints.push_back(toPair(repeat(words, behind + i)));
    else if (format.haveRests() && format.areIntegers())
      zeroPoints.push_back(getMiddle(i % kRows));
  }
  for (int64_t at = 0; at < kProducts * format.getProductWords(); ++at) {
    I32 own = emitter.element<I32>(codes[at / Fragments::kThreadWords],
                                   at % Fragments::kThreadWords);
    for (I32 number : takeApart(own)) {
      auto i = int64_t(unit.numbers.size());
      if (!zeroPoints.empty())
        number = toWord(arith::SubFOp::create(
            b, toPair(number),
            zeroPoints[getNumber(i / kRegisters, i % kRegisters)]));
      unit.numbers.push_back(number);
    }
  }
  // The midpoint times a scale is exact, and a fused multiply-add rounds only
  // at the end.
  if (format.areIntegers() && zeroPoints.empty())
    for (auto [i, scale] : llvm::enumerate(unit.scales)) {
      Value middle = arith::NegFOp::create(b, getMiddle(i % kRows));
      unit.addends.push_back(multiply(scale, toWord(middle)));
    }
  unit.tie(b);
  return unit;
}

SmallVector<I32> HalfDecoder::close(const OpenUnit &unit, int64_t part,
                                    int64_t parts) {
  // After the wait.
  SmallVector<I32> scales = unit.scales;
  tieValues<I32>(b, scales);
  SmallVector<I32> fragments;
  int64_t inPart = kProducts / parts;
  for (int64_t product = part * inPart; product < (part + 1) * inPart;
       ++product)
    for (int64_t i = 0; i < kRegisters; ++i) {
      int64_t at = getNumber(product, i);
      I32 number = unit.numbers[product * kRegisters + i], addend;
      if (!unit.addends.empty())
        addend = unit.addends[at];
      if (format.haveRests())
        addend = multiply(number, unit.rests[at], addend);
      fragments.push_back(multiply(number, scales[at], addend));
    }
  return fragments;
}

} // namespace

std::unique_ptr<UnitDecoder> moec::makeHalfDecoder(AsyncEmitter &emitter,
                                                   const Fragments &format,
                                                   Value book) {
  return std::make_unique<HalfDecoder>(emitter, format, book);
}

void moec::storeBook(AsyncEmitter &emitter, const Fragments &format,
                     Value book) {
  constexpr int64_t halfBits = 16, wordBytes = 4, atOnce = 4;
  constexpr int64_t perPair = Sm90Shape::kBookPairBytes / (wordBytes * atOnce);
  SmallVector<int32_t> numbers;
  for (size_t code = 0; code < format.book->size(); ++code)
    numbers.push_back(int32_t(format.encodeOfBook(int64_t(code))));
  auto count = int64_t(numbers.size());
  Value table = emitter.constantTable(numbers);
  auto store = [&](Value i) {
    Index at(emitter.b, i);
    Index pair = at / perPair;
    I32 low = emitter.loadConstantI32(table, pair % count);
    I32 high = emitter.loadConstantI32(table, pair / count);
    Value copies = emitter.splat(low | (high << halfBits), atOnce);
    I32 offset = emitter.toI32(at) * (wordBytes * atOnce);
    emitter.store(copies, emitter.advance(book, offset), wordBytes * atOnce);
  };
  emitter.forThreads(emitter.index(0),
                     emitter.index(Sm90Shape::kBookPairs * perPair), store);
}
