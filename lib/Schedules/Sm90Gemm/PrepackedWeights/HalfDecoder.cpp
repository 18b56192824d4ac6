//===- HalfDecoder.cpp - packed tiles that become bf16 or f16 ---*- C++ -*-===//
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

#include "KernelBuilder/Pair.h"
#include "PackedTiles.h"

#include "KernelBuilder/InlinePtx.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <cmath>

using namespace mlir;
using namespace moec;
using moe::PrepackedFormat;

namespace {

/// mmas of a packed tile, each with one or two words of quantized values.
constexpr int64_t kProducts = 4;
/// A registers of a fragment: of two rows, and of two octets along K.
constexpr int64_t kRegisters = PrepackedFormat::kRegisters;

/// Decodes to bf16 or f16.
class HalfDecoder final : public PackedTileDecoder {
public:
  HalfDecoder(AsyncEmitter &emitter, const PrepackedFormat &format, Value book)
      : emitter(emitter), b(emitter.b), format(format),
        hasF16(format.values.decoded == moe::DecodedType::F16), book(book) {}

  UnpackedTile open(const LoadedTile &packed) override;
  SmallVector<I32> close(const UnpackedTile &unpacked, int64_t part,
                         int64_t parts) override;

private:
  /// Bits of a bf16 below its exponent; bytes of a bf16 or f16.
  static constexpr int64_t kDigits = 7, kHalfBytes = 2;
  static constexpr int64_t kRows = PrepackedFormat::kQuadRows;

  Type getNumberType() {
    return hasF16 ? Type(b.getF16Type()) : Type(b.getBF16Type());
  }
  Pair toPair(I32 word) { return Pair::fromBits(word, getNumberType()); }
  Pair makePair(double number) {
    auto both = DenseElementsAttr::get(Pair::typeOf(getNumberType()),
                                       b.getFloatAttr(getNumberType(), number));
    return {b, arith::ConstantOp::create(b, both)};
  }
  /// The midpoint of the quantized range, in the form of row 0 or 1 of the
  /// thread's two, in both halves.
  Pair getMiddle(int64_t row) {
    constexpr int64_t tileRows[kRows] = {0, 8};
    return makePair(std::ldexp(double(format.values.middle),
                               -int(format.values.getExponent(tileRows[row]))));
  }
  /// `pair * other + addend` on words, rounded once; the product if there is no
  /// addend.
  I32 multiply(I32 pair, I32 other, I32 addend = {}) {
    // Adding -0 changes nothing.
    return fma(toPair(pair), toPair(other),
               addend ? toPair(addend) : makePair(-0.0))
        .bits();
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
  SmallVector<I32> takeApart(I32 values);
  /// The pair of code book entries for a byte of two indices.
  I32 lookUp(I32 values, int64_t byte);
  /// Pair of register `i` of a word, not yet scaled.
  I32 move(I32 values, int64_t i);
  /// Index of the scale of a register.
  int64_t getNumber(int64_t product, int64_t i) const {
    return kRows * (product * format.getGroups() / kProducts) + i % kRows;
  }

  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  PrepackedFormat format;
  bool hasF16;
  Value book;
};

I32 HalfDecoder::repeat(ArrayRef<I32> words, int64_t half) {
  constexpr int64_t perWord = 2;
  Pair pair = toPair(words[half / perWord]);
  half %= perWord;
  const int64_t both[] = {half, half};
  return Pair(b, vector::ShuffleOp::create(b, pair, pair, both)).bits();
}

I32 HalfDecoder::getByte(ArrayRef<I32> words, int64_t number, int64_t bit) {
  // Bytes 0 and 2 move up to that bit of both halves, bytes 1 and 3 down.
  constexpr int64_t perWord = 4, byteBits = 8, both = 0x00010001;
  I32 kept = words[number / perWord];
  I32 moved = number % 2 ? kept >> (byteBits - bit) : kept << bit;
  I32 bytes = moved & (0xFF << bit) * both;
  // For f16 the exponent is stored as it is.
  if (format.scale.isE5M3() && !hasF16) {
    int64_t least = format.scale.bias << kDigits;
    bytes = bytes + least * both;
  }
  return repeat(bytes, number % perWord / 2);
}

I32 HalfDecoder::getScale(ArrayRef<I32> words, int64_t number) {
  switch (format.scale.stored) {
  case moe::StoredScale::BF16:
  case moe::StoredScale::F16:
    return repeat(words, number);
  case moe::StoredScale::F32:
  case moe::StoredScale::Steps:
    break;
  case moe::StoredScale::E8M0:
    return getByte(words, number, kDigits);
  case moe::StoredScale::E5M3: {
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
  if (format.scale.stored == moe::StoredScale::F32) {
    bits = words[number];
    whole = F32::fromBits(bits);
  } else {
    Value halves = LLVM::BitcastOp::create(
        b, VectorType::get(perWord, b.getF16Type()), words[number / perWord]);
    F32 kept(b, castFloat(b, emitter.element<Value>(halves, number % perWord),
                          b.getF32Type()));
    whole = kept * std::ldexp(1.0, int(moe::kF16Bias));
    bits = whole.bits();
  }
  F32 rest = whole - F32::fromBits(bits & first);
  constexpr int64_t upper = 1;
  I32 leading = repeat(bits, upper);
  return {leading, repeat(rest.bits(), upper)};
}

I32 HalfDecoder::move(I32 values, int64_t i) {
  if (format.book)
    return lookUp(values, i);
  if (format.values.stored == moe::StoredValue::Int8 && i == 1) {
    // Bytes 1 and 3, each below a zero byte (byte 4).
    constexpr int64_t high = 0x4341;
    return emitter.permuteBytes(values, emitter.i32(0), emitter.i32(high));
  }
  I32 sum;
  for (const moe::DecodeStep &step : format.values.getSteps(i)) {
    I32 moved = step.rotates    ? emitter.rotateRight(values, -step.left)
                : step.left > 0 ? values << step.left
                : step.left < 0 ? values >> -step.left
                                : values;
    I32 term = moved & step.mask;
    sum = sum ? sum | term : term;
  }
  return sum;
}

SmallVector<I32> HalfDecoder::takeApart(I32 values) {
  SmallVector<I32> pairs;
  for (int64_t i = 0; i < format.values.getWordRegisters(); ++i)
    pairs.push_back(move(values, i));
  return pairs;
}

I32 HalfDecoder::lookUp(I32 values, int64_t byte) {
  constexpr int64_t byteBits = 8, wordBytes = 4;
  constexpr int64_t stride = sm90::kBookPairBytes;
  constexpr int64_t bits = (sm90::kBookPairs - 1) * stride;
  // The byte counts in strides; the lane's index has the lower bits.
  int64_t shift = byteBits * byte - llvm::Log2_64(stride);
  I32 moved = shift < 0 ? values << -shift : values >> shift;
  I32 own = emitter.lane() * wordBytes;
  return emitter.loadWord(emitter.advance(book, (moved & bits) | own));
}

UnpackedTile HalfDecoder::open(const LoadedTile &packed) {
  auto &[values, scales] = packed;
  UnpackedTile unpacked;
  SmallVector<I32> words{I32(b, scales)};
  if (isa<VectorType>(scales.getType()))
    words = emitter.elements<I32>(scales);
  int64_t count = kRows * format.getGroups();
  SmallVector<Value> zeroPoints;
  // Offset behind all scales, in half words.
  int64_t behind = count * format.scale.bytes / kHalfBytes;
  for (int64_t i = 0; i < count; ++i) {
    if (format.scale.isSum) {
      auto [scale, rest] = split(words, i);
      unpacked.scales.push_back(scale);
      unpacked.rests.push_back(rest);
    } else {
      unpacked.scales.push_back(getScale(words, i));
    }
    if (format.hasMinima)
      unpacked.addends.push_back(repeat(words, behind + count + i));
    if (format.hasZeroPoints)
      zeroPoints.push_back(toPair(repeat(words, behind + i)));
    else if (format.scale.isSum && format.values.isInteger())
      zeroPoints.push_back(getMiddle(i % kRows));
  }
  for (int64_t at = 0; at < kProducts * format.values.getProductWords(); ++at) {
    I32 own = emitter.element<I32>(values[at / PrepackedFormat::kThreadWords],
                                   at % PrepackedFormat::kThreadWords);
    for (I32 number : takeApart(own)) {
      auto i = int64_t(unpacked.numbers.size());
      if (!zeroPoints.empty()) {
        Value zero = zeroPoints[getNumber(i / kRegisters, i % kRegisters)];
        number = Pair(b, arith::SubFOp::create(b, toPair(number), zero)).bits();
      }
      unpacked.numbers.push_back(number);
    }
  }
  // The midpoint times a scale is exact, and a fused multiply-add rounds only
  // at the end.
  if (format.values.isInteger() && zeroPoints.empty())
    for (auto [i, scale] : llvm::enumerate(unpacked.scales)) {
      Pair middle(b, arith::NegFOp::create(b, getMiddle(i % kRows)));
      unpacked.addends.push_back(multiply(scale, middle.bits()));
    }
  unpacked.tie(b);
  return unpacked;
}

SmallVector<I32> HalfDecoder::close(const UnpackedTile &unpacked, int64_t part,
                                    int64_t parts) {
  // After the wait.
  SmallVector<I32> scales = unpacked.scales;
  tieValues<I32>(b, scales);
  SmallVector<I32> fragments;
  int64_t inPart = kProducts / parts;
  for (int64_t product = part * inPart; product < (part + 1) * inPart;
       ++product)
    for (int64_t i = 0; i < kRegisters; ++i) {
      int64_t at = getNumber(product, i);
      I32 number = unpacked.numbers[product * kRegisters + i], addend;
      if (!unpacked.addends.empty())
        addend = unpacked.addends[at];
      if (format.scale.isSum)
        addend = multiply(number, unpacked.rests[at], addend);
      fragments.push_back(multiply(number, scales[at], addend));
    }
  return fragments;
}

} // namespace

std::unique_ptr<PackedTileDecoder>
moec::makeHalfDecoder(AsyncEmitter &emitter, const PrepackedFormat &format,
                      Value book) {
  return std::make_unique<HalfDecoder>(emitter, format, book);
}

void moec::storeBook(AsyncEmitter &emitter, const PrepackedFormat &format,
                     Value book) {
  constexpr int64_t halfBits = 16, wordBytes = 4, atOnce = 4;
  constexpr int64_t perPair = sm90::kBookPairBytes / (wordBytes * atOnce);
  SmallVector<int32_t> numbers;
  for (size_t code = 0; code < format.book->size(); ++code)
    numbers.push_back(
        int32_t(moe::encodeFloat(format.values.decoded, (*format.book)[code])));
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
                     emitter.index(sm90::kBookPairs * perPair), store);
}
