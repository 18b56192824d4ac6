//===- PrepackWords.cpp - values in the order of tensor cores ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Words of prepacked weights. Each thread composes words from the quantized
// values in shared memory.

#include "Prepack.h"

#include <map>

using namespace mlir;
using namespace moec;
using moe::PrepackedFormat;

I32 Sm90Prepack::getSharedRow(I32 tileRow) {
  moe::WeightLayoutAttr layout = op.getLayoutAttr();
  if (!layout)
    return tileRow;
  // 8 rows of gate, then 8 of up.
  constexpr int64_t paired = sm90::kPairedRows;
  I32 projection = tileRow / paired % 2;
  I32 column = tileRow / (2 * paired) * paired + tileRow % paired;
  if (layout.getOrder() == moe::GateUpOrder::Interleaved)
    return column * 2 + projection;
  return projection * PrepackedFormat::kHalfRows + column;
}

/// Rotates the bits of each mask left by its distance.
static I32 moveBits(ThreadEmitter &emitter, I32 values,
                    const std::map<int64_t, int64_t> &masks) {
  constexpr int64_t wordBits = 32;
  I32 placed = values.like(0);
  for (auto [distance, mask] : masks) {
    I32 some = values & mask;
    if (distance)
      some = emitter.rotateLeft(some, (distance + wordBits) % wordBits);
    placed = placed | some;
  }
  return placed;
}

/// Moves values at the low ends of both halves to pair `i` of a word.
static I32 placePair(ThreadEmitter &emitter, const PrepackedFormat &format,
                     I32 values, int64_t i) {
  constexpr int64_t halfBits = 16, wordBits = 2 * halfBits;
  // Adjacent bits with one distance move together.
  std::map<int64_t, int64_t> masks;
  for (int64_t code : {0, 1}) {
    auto bits = format.values.getPairBits(i, code);
    for (auto [n, to] : llvm::enumerate(bits)) {
      int64_t from = code * halfBits + int64_t(bits.size() - 1 - n);
      masks[(to - from + wordBits) % wordBits] |= int64_t(1) << from;
    }
  }
  return moveBits(emitter, values, masks);
}

I32 Sm90Prepack::loadPair(I32 sharedRow, I32 byte) {
  I32 offset = getOffset(sharedRow, byte);
  if (shape.storageBits == 8) {
    constexpr int64_t ones = 0x00010001;
    I32 pair = loadByte(offset) | (loadByte(offset + 1) << 16);
    int64_t turned = format.getInvertedBits();
    return turned ? pair ^ turned * ones : pair;
  }
  I32 pair = loadByte(offset);
  if (format.scale.stored == moe::StoredScale::E5M3) {
    // Stored scales have neither zero nor sign: both are applied to the values.
    constexpr int64_t signs = 0x88;
    GroupScale scale = loadScale(sharedRow, byte * 2);
    pair = select(scale.sign > 0, pair ^ signs, pair);
    pair = select(scale.bits > 0, pair, 0);
  }
  return (pair & 15) | ((pair >> 4) << 16);
}

/// Moves four values in a word's lowest bits to a register's position in the
/// packed word.
static I32 placeFour(ThreadEmitter &emitter, const PrepackedFormat &format,
                     I32 values, int64_t inWord) {
  constexpr int64_t nibble = 4;
  // Adjacent bits with one distance move together.
  std::map<int64_t, int64_t> masks;
  for (int64_t code = 0; code < 4; ++code) {
    auto bits = format.values.getBits(inWord, code);
    for (auto [n, to] : llvm::enumerate(bits)) {
      int64_t from = nibble * code + int64_t(bits.size() - 1 - n);
      masks[to - from] |= int64_t(1) << from;
    }
  }
  return moveBits(emitter, values, masks);
}

I32 Sm90Prepack::weaken(I32 values, I32 sharedRow, I32 element) {
  I32 excess = loadExcess(sharedRow);
  I32 exponent = (loadScale(sharedRow, element).bits >> digits) - excess;
  I32 by = word(moe::kLeastStep) - exponent;
  I32 table = word(moe::kWeakenedValues[0]);
  for (int64_t i = 1; i <= moe::kWeakened; ++i)
    table = select(by > i - 1, word(moe::kWeakenedValues[i]), table);
  constexpr int64_t nibble = 4, magnitude = 7, signs = 0x8888;
  I32 weakened = values & signs;
  for (int64_t i = 0; i < 4; ++i) {
    I32 code = (values >> nibble * i) & magnitude;
    I32 looked = table >> (code << 2);
    weakened = weakened | ((looked & magnitude) << nibble * i);
  }
  return weakened;
}

I32 Sm90Prepack::loadFour(I32 sharedRow, I32 byte) {
  I32 offset = getOffset(sharedRow, byte);
  I32 values = loadByte(offset) | (loadByte(offset + 1) << 8);
  if (format.scale.stored == moe::StoredScale::Steps)
    return weaken(values, sharedRow, byte * 2);
  constexpr int64_t ones = 0x1111, magnitude = 7;
  values = values ^ format.getInvertedBits() * ones;
  I32 negative = (values >> 3) & ones;
  return values ^ negative * magnitude;
}

I32 Sm90Prepack::loadE4M3(I32 sharedRow, I32 byte) {
  constexpr int64_t ones = 0x01010101;
  I32 values =
      emitter.loadWord(emitter.advance(shared, getOffset(sharedRow, byte)));
  return values ^ format.getInvertedBits() * ones;
}

I32 Sm90Prepack::packBytes(I32 sharedRow, I32 byte) {
  constexpr int64_t stretchBytes = 8;
  I32 first = placeFour(emitter, format, loadFour(sharedRow, byte), 0);
  I32 second = byte + stretchBytes;
  return first | placeFour(emitter, format, loadFour(sharedRow, second), 1);
}

void Sm90Prepack::storeValues() {
  int64_t tileWords = format.values.getHalfWords();
  int64_t wordPairs = format.values.getWordRegisters();
  // Bytes of a pair of values.
  int64_t pairBytes = shape.storageBits / 4;
  for (int64_t tileHalf = 0; tileHalf < kTileHalves; ++tileHalf) {
    emitter.forThreads(
        firstPackedTile * tileWords, endPackedTile * tileWords,
        [&](Value index) {
          I32 at = emitter.toI32(index);
          I32 packedTile = at / tileWords, inPackedTile = at % tileWords;
          // The thread of the warpgroup that reads the word, and the index of
          // its word.
          I32 inChunk = inPackedTile;
          if (format.values.getChunks() > 1)
            inChunk = inPackedTile % PrepackedFormat::kChunkWords;
          I32 thread = inChunk / PrepackedFormat::kThreadWords;
          I32 own = inChunk % PrepackedFormat::kThreadWords;
          if (format.values.getChunks() > 1)
            own = own + inPackedTile / PrepackedFormat::kChunkWords *
                            PrepackedFormat::kThreadWords;
          I32 warp = thread / 32 + tileHalf * 2;
          I32 lane = thread % 32;
          I32 row = warp * 16 + lane / 4;
          auto store = [&](I32 packed) {
            emitter.store(packed,
                          getAddress(op.getPacked(), tileHalf,
                                     Index(b, index) * kWordBytes),
                          kWordBytes);
          };
          if (format.values.isNative()) {
            // Order within an mma: two words of the first row, then two of the
            // other.
            constexpr int64_t productBytes = 32, wordBytes = 16, laneBytes = 4;
            I32 from = getSharedRow(row + own / 2 % 2 * 8);
            I32 word = own / 4 * productBytes + own % 2 * wordBytes;
            I32 byte = packedTile * PrepackedFormat::kSizeK + word +
                       lane % 4 * laneBytes;
            return store(loadE4M3(from, byte));
          }
          if (format.values.decoded == moe::DecodedType::E4M3) {
            // Alternates between two rows, 16 bytes of K each.
            constexpr int64_t tileBytes = 32, wordBytes = 16, laneBytes = 2;
            I32 from = getSharedRow(row + own % 2 * 8);
            I32 byte = packedTile * tileBytes + own / 2 * wordBytes +
                       lane % 4 * laneBytes;
            return store(packBytes(from, byte));
          }
          // A packed tile is 32 pairs deep, and a word has 4 for each two of
          // its own.
          int64_t deep = 2 * wordPairs;
          I32 byte = packedTile * (32 * pairBytes) + own * (deep * pairBytes) +
                     lane % 4 * pairBytes;
          I32 packed;
          for (int64_t i = 0; i < wordPairs; ++i) {
            I32 from = getSharedRow(row + i % 2 * 8);
            I32 pair = byte + i / 2 * 4 * pairBytes;
            I32 placed = placePair(emitter, format, loadPair(from, pair), i);
            packed = packed ? packed | placed : placed;
          }
          store(packed);
        });
  }
}
