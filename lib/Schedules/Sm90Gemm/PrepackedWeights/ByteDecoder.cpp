//===- ByteDecoder.cpp - fragments of e4m3 ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Decoder of prepacked weights to e4m3. A word has eight 4-bit values of a row,
// which become two registers of four e4m3 each, or it has four e4m3 whose signs
// are converted.
//
// For e2m1, three bits select one of eight bytes; a permutation of two words
// (prmt) does that for four values at once. The eight bytes are the e2m1
// magnitudes at the lowest step. A group's step is added to their exponents,
// bits 3 to 6, except to that of 0. Signs come from the word itself, and from
// the word shifted by 4.
//
// The lowest four bits of an e4m3 count in steps of 2^-9, as those of a bf16 in
// steps of 2^-133. An int4 in sign and magnitude form is therefore an e4m3
// subnormal as it stands; the magnitude of negative values is stored less one,
// and 1 is added. Scales of its groups have more digits than an e4m3: they are
// multiplied with the sums of groups.

#include "PackedTiles.h"

using namespace mlir;
using namespace moec;
using moe::PrepackedFormat;

namespace {

constexpr int64_t kRows = PrepackedFormat::kQuadRows;
/// The highest and the lowest bit of each byte.
constexpr int64_t kSigns = 0x80808080, kOnes = 0x01010101;

class ByteDecoder final : public PackedTileDecoder {
public:
  ByteDecoder(AsyncEmitter &emitter, const PrepackedFormat &format)
      : emitter(emitter), b(emitter.b), format(format) {}

  UnpackedTile open(const LoadedTile &packed) override;
  SmallVector<I32> close(const UnpackedTile &unpacked, int64_t part,
                         int64_t parts) override;

private:
  /// Unpacks a word into two registers and the addends for the end.
  void openE2M1(I32 values, I32 steps, int64_t number, UnpackedTile &unpacked);
  void openInt4(I32 values, UnpackedTile &unpacked);
  /// Scales of the sums of both rows, group by group, as f32 bits.
  SmallVector<I32> openScales(Value scales);
  /// Finishes a register, after the wait.
  I32 close(I32 number, const UnpackedTile &unpacked, int64_t i);

  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  PrepackedFormat format;
};

void ByteDecoder::openE2M1(I32 values, I32 steps, int64_t number,
                           UnpackedTile &unpacked) {
  // 0, 0.5, 1 and 1.5, then 2, 3, 4 and 6, at the lowest step.
  constexpr int64_t lowNumbers = 0x14100800, highNumbers = 0x24201C18;
  // Selectors: the step's byte everywhere, and everywhere except for the value
  // 0, which gets a zero byte.
  constexpr int64_t zero = 4;
  int64_t all = number * 0x1111, others = (all & 0xFFF0) | zero;
  I32 none = values.like(0);
  I32 low = emitter.permuteBytes(steps, none, values.like(others)) + lowNumbers;
  I32 high = emitter.permuteBytes(steps, none, values.like(all)) + highNumbers;
  constexpr int64_t magnitudes = 0x77777777, halfBits = 16, signDistance = 4;
  I32 selector = values & magnitudes;
  unpacked.numbers.push_back(emitter.permuteBytes(low, high, selector));
  unpacked.numbers.push_back(
      emitter.permuteBytes(low, high, selector >> halfBits));
  unpacked.addends.push_back(values);
  unpacked.addends.push_back(values << signDistance);
}

void ByteDecoder::openInt4(I32 values, UnpackedTile &unpacked) {
  constexpr int64_t magnitudes = 0x07070707, nibble = 4, signBit = 7;
  for (I32 some : {values, emitter.rotateRight(values, nibble)}) {
    unpacked.numbers.push_back(some & (kSigns | magnitudes));
    unpacked.addends.push_back((some >> signBit) & kOnes);
  }
}

UnpackedTile ByteDecoder::open(const LoadedTile &packed) {
  auto &[values, scales] = packed;
  UnpackedTile unpacked;
  int64_t products = format.values.getProducts(),
          words = format.values.getProductWords();
  for (int64_t product = 0; product < products; ++product)
    for (int64_t row = 0; row < words; ++row) {
      int64_t at = product * words + row;
      I32 some =
          emitter.element<I32>(values[at / PrepackedFormat::kThreadWords],
                               at % PrepackedFormat::kThreadWords);
      int64_t group = product * format.getGroups() / products;
      if (format.values.stored == moe::StoredValue::E2M1)
        openE2M1(some, {b, scales}, group * kRows + row, unpacked);
      else if (format.values.stored == moe::StoredValue::E4M3)
        unpacked.numbers.push_back(some);
      else
        openInt4(some, unpacked);
    }
  if (format.areScalesOfSums())
    unpacked.scales = openScales(scales);
  unpacked.tie(b);
  return unpacked;
}

SmallVector<I32> ByteDecoder::openScales(Value scales) {
  SmallVector<I32> words{I32(b, scales)};
  if (isa<VectorType>(scales.getType()))
    words = emitter.elements<I32>(scales);
  // Masks of the upper half of an f32, its exponent, or all of it.
  constexpr int64_t wordBits = 32, digits = 23, upperHalf = 0xFFFF0000,
                    exponent = 0x7F800000;
  bool arePowers = format.scale.stored == moe::StoredScale::E8M0;
  int64_t bits = 8 * format.scale.bytes, perWord = wordBits / bits;
  int64_t lowest = wordBits - bits - (arePowers ? 1 : 0);
  int64_t mask = arePowers ? exponent : upperHalf;
  static_assert(exponent == 0xFF << digits);
  SmallVector<I32> opened;
  for (int64_t i = 0; i < kRows * format.getGroups(); ++i) {
    I32 from = words[i / perWord];
    int64_t distance = lowest - i % perWord * bits;
    I32 moved = distance > 0   ? from << distance
                : distance < 0 ? from >> -distance
                               : from;
    bool isWhole = bits == wordBits || (!arePowers && distance > 0);
    opened.push_back(isWhole ? moved : moved & mask);
  }
  return opened;
}

I32 ByteDecoder::close(I32 number, const UnpackedTile &unpacked, int64_t i) {
  switch (format.values.stored) {
  case moe::StoredValue::E4M3:
    return number ^ kSigns;
  case moe::StoredValue::E2M1:
    return number | (unpacked.addends[i] & kSigns);
  default:
    return number + unpacked.addends[i];
  }
}

SmallVector<I32> ByteDecoder::close(const UnpackedTile &unpacked, int64_t part,
                                    int64_t parts) {
  // Registers of a word belong to one row; the registers of an mma alternate
  // between both rows.
  SmallVector<I32> closed;
  int64_t inPart = int64_t(unpacked.numbers.size()) / parts;
  for (int64_t i = part * inPart; i < (part + 1) * inPart; ++i)
    closed.push_back(close(unpacked.numbers[i], unpacked, i));
  SmallVector<I32> fragments;
  for (size_t first = 0; first < closed.size();
       first += PrepackedFormat::kRegisters)
    for (size_t i : {0, 2, 1, 3})
      fragments.push_back(closed[first + i]);
  return fragments;
}

} // namespace

std::unique_ptr<PackedTileDecoder>
moec::makeByteDecoder(AsyncEmitter &emitter, const PrepackedFormat &format) {
  return std::make_unique<ByteDecoder>(emitter, format);
}
