//===- Sm90ByteUnits.cpp - fragments of e4m3 --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A word has eight codes of a row, which become two registers of four e4m3, or
// four e4m3, of which the signs are turned.
//
// Three bits of e2m1 select a byte of eight, which a permutation of two words
// does with four codes at once. The eight are the numbers of e2m1 with the
// lowest step, and a group's step is added to their exponents, which are bits 3
// to 6, but to 0's. Signs come from the word as it is, and from one shifted by
// 4.
//
// The lowest four bits of an e4m3 count in steps of 2^-9, as those of a bf16 in
// steps of 2^-133. So an int4 of sign and magnitude is one by its place; of
// negative ones, whose magnitude is kept less one, 1 is added. Its groups have
// scales that no e4m3 has digits for: sums of groups are multiplied with them.

#include "Sm90Units.h"

#include "../../InlinePtx.h"
#include "../../Word.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;
using moe::Fragments;

namespace {

constexpr int64_t kRows = Fragments::kQuadRows;
/// The highest bit of each byte, and the lowest.
constexpr int64_t kSigns = 0x80808080, kOnes = 0x01010101;

class ByteDecoder final : public UnitDecoder {
public:
  ByteDecoder(AsyncEmitter &emitter, const Fragments &format)
      : emitter(emitter), b(emitter.b), format(format) {}

  OpenUnit open(const PackedUnit &packed) override;
  SmallVector<Value> close(const OpenUnit &unit, int64_t part,
                           int64_t parts) override;

private:
  Word word(Value value) { return {&b, value}; }
  Word permute(Word low, Word high, Word selector) {
    return word(NVVM::PermuteOp::create(b, b.getI32Type(), low.value,
                                        high.value, selector.value,
                                        NVVM::PermuteMode::DEFAULT));
  }
  /// Of a word, the two registers and what is added to them in the end.
  void openE2M1(Word codes, Word steps, int64_t number, OpenUnit &unit);
  void openInt4(Word codes, OpenUnit &unit);
  /// The scales of the sums of both rows, group by group, as the bits of f32.
  SmallVector<Value> openScales(Value scales);
  /// A register, behind the wait.
  Word close(Word number, const OpenUnit &unit, int64_t i);

  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  Fragments format;
};

void ByteDecoder::openE2M1(Word codes, Word steps, int64_t number,
                           OpenUnit &unit) {
  // 0, 0.5, 1 and 1.5, and 2, 3, 4 and 6, as the lowest step has them.
  constexpr int64_t lowNumbers = 0x14100800, highNumbers = 0x24201C18;
  // The byte of the step everywhere, and everywhere but in the place of 0,
  // which gets one of a zero.
  constexpr int64_t zero = 4;
  int64_t all = number * 0x1111, others = (all & 0xFFF0) | zero;
  Word none = codes.constant(0);
  Word low = permute(steps, none, codes.constant(others)) + lowNumbers;
  Word high = permute(steps, none, codes.constant(all)) + highNumbers;
  constexpr int64_t magnitudes = 0x77777777, halfBits = 16, signDistance = 4;
  Word selector = codes & magnitudes;
  unit.numbers.push_back(permute(low, high, selector).value);
  unit.numbers.push_back(permute(low, high, selector >> halfBits).value);
  unit.addends.push_back(codes.value);
  unit.addends.push_back((codes << signDistance).value);
}

void ByteDecoder::openInt4(Word codes, OpenUnit &unit) {
  constexpr int64_t magnitudes = 0x07070707, nibble = 4, signBit = 7;
  Word turned = word(
      LLVM::FshrOp::create(b, codes.value, codes.value, emitter.i32(nibble)));
  for (Word some : {codes, turned}) {
    unit.numbers.push_back((some & (kSigns | magnitudes)).value);
    unit.addends.push_back(((some >> signBit) & kOnes).value);
  }
}

OpenUnit ByteDecoder::open(const PackedUnit &packed) {
  auto &[codes, scales] = packed;
  OpenUnit unit;
  int64_t products = format.getProducts(), words = format.getProductWords();
  for (int64_t product = 0; product < products; ++product)
    for (int64_t row = 0; row < words; ++row) {
      int64_t at = product * words + row;
      Word some =
          word(vector::ExtractOp::create(b, codes[at / Fragments::kThreadWords],
                                         at % Fragments::kThreadWords));
      int64_t group = product * format.getGroups() / products;
      if (format.codes == Fragments::Codes::E2M1)
        openE2M1(some, word(scales), group * kRows + row, unit);
      else if (format.codes == Fragments::Codes::E4M3)
        unit.numbers.push_back(some.value);
      else
        openInt4(some, unit);
    }
  if (format.areScalesOfSums())
    unit.scales = openScales(scales);
  unit.tie(b);
  return unit;
}

SmallVector<Value> ByteDecoder::openScales(Value scales) {
  SmallVector<Word> words;
  if (auto type = dyn_cast<VectorType>(scales.getType()))
    for (int64_t i = 0; i < type.getNumElements(); ++i)
      words.push_back(word(vector::ExtractOp::create(b, scales, i)));
  else
    words.push_back(word(scales));
  // The upper half of an f32, its exponent, or all of it.
  constexpr int64_t wordBits = 32, digits = 23, upperHalf = 0xFFFF0000,
                    exponent = 0x7F800000;
  bool arePowers = format.scales == Fragments::Scales::E8M0;
  int64_t bits = 8 * format.getScaleBytes(), perWord = wordBits / bits;
  int64_t lowest = wordBits - bits - (arePowers ? 1 : 0);
  int64_t mask = arePowers ? exponent : upperHalf;
  static_assert(exponent == 0xFF << digits);
  SmallVector<Value> opened;
  for (int64_t i = 0; i < kRows * format.getGroups(); ++i) {
    Word from = words[i / perWord];
    int64_t distance = lowest - i % perWord * bits;
    Word moved = distance > 0   ? from << distance
                 : distance < 0 ? from >> -distance
                                : from;
    bool isWhole = bits == wordBits || (!arePowers && distance > 0);
    opened.push_back(isWhole ? moved.value : (moved & mask).value);
  }
  return opened;
}

Word ByteDecoder::close(Word number, const OpenUnit &unit, int64_t i) {
  switch (format.codes) {
  case Fragments::Codes::E4M3:
    return number ^ kSigns;
  case Fragments::Codes::E2M1:
    return number | (word(unit.addends[i]) & kSigns);
  default:
    return number + word(unit.addends[i]);
  }
}

SmallVector<Value> ByteDecoder::close(const OpenUnit &unit, int64_t part,
                                      int64_t parts) {
  // Those of a word are one row's: of a product its registers are of both in
  // turns.
  SmallVector<Value> closed;
  int64_t ofPart = int64_t(unit.numbers.size()) / parts;
  for (int64_t i = part * ofPart; i < (part + 1) * ofPart; ++i)
    closed.push_back(close(word(unit.numbers[i]), unit, i).value);
  SmallVector<Value> fragments;
  for (size_t first = 0; first < closed.size(); first += Fragments::kRegisters)
    for (size_t i : {0, 2, 1, 3})
      fragments.push_back(closed[first + i]);
  return fragments;
}

} // namespace

std::unique_ptr<UnitDecoder> moec::makeByteDecoder(AsyncEmitter &emitter,
                                                   const Fragments &format) {
  return std::make_unique<ByteDecoder>(emitter, format);
}
