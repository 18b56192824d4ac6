//===- Sm90RepackWords.cpp - codes in the order of tensor cores -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Words of prepacked weights. Each thread composes words from the quantized
// values in shared memory.

#include "Sm90Repack.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <map>

using namespace mlir;
using namespace moec;
using moe::Fragments;

Value Sm90Repack::getSharedRow(Value unitRow) {
  moe::WeightLayoutAttr layout = op.getLayoutAttr();
  if (!layout)
    return unitRow;
  // 8 rows of gate, then 8 of up.
  constexpr int64_t paired = sm90::Contract::kPairedRows;
  Value projection = emitter.remainder(emitter.divide(unitRow, paired), 2);
  Value column =
      addI32(emitter.scale(emitter.divide(unitRow, 2 * paired), paired),
             emitter.remainder(unitRow, paired));
  if (layout.getOrder() == moe::GateUpOrder::Interleaved)
    return addI32(emitter.scale(column, 2), projection);
  return addI32(emitter.scale(projection, Fragments::kRunRows), column);
}

/// Rotates the bits of each mask left by its distance.
static I32 moveBits(I32 codes, const std::map<int64_t, int64_t> &masks) {
  constexpr int64_t wordBits = 32;
  ImplicitLocOpBuilder &b = codes.builder();
  I32 placed = codes.like(0);
  for (auto [distance, mask] : masks) {
    I32 some = codes & mask;
    if (distance)
      some = {b,
              LLVM::FshlOp::create(
                  b, some, some, codes.like((distance + wordBits) % wordBits))};
    placed = placed | some;
  }
  return placed;
}

/// Moves values at the low ends of both halves to pair `i` of a word.
static I32 placePair(const Fragments &format, I32 codes, int64_t i) {
  constexpr int64_t halfBits = 16, wordBits = 2 * halfBits;
  // Adjacent bits with one distance move together.
  std::map<int64_t, int64_t> masks;
  for (int64_t code : {0, 1}) {
    auto bits = format.getPairBits(i, code);
    for (auto [n, to] : llvm::enumerate(bits)) {
      int64_t from = code * halfBits + int64_t(bits.size() - 1 - n);
      masks[(to - from + wordBits) % wordBits] |= int64_t(1) << from;
    }
  }
  return moveBits(codes, masks);
}

I32 Sm90Repack::loadPair(Value sharedRow, Value byte) {
  Value offset = getOffset(sharedRow, byte);
  if (shape.codeBits == 8) {
    constexpr int64_t ones = 0x00010001;
    I32 pair = loadByte(offset) | (loadByte(emitter.scale(offset, 1, 1)) << 16);
    int64_t turned = format.getTurnedBits();
    return turned ? pair ^ turned * ones : pair;
  }
  I32 pair = loadByte(offset);
  if (format.scales == Fragments::Scales::E5M3) {
    // Stored scales have neither zero nor sign: both are applied to the values.
    constexpr int64_t signs = 0x88;
    GroupScale scale = loadScale(sharedRow, emitter.scale(byte, 2));
    pair = select(scale.sign > 0, pair ^ signs, pair);
    pair = select(scale.bits > 0, pair, 0);
  }
  return (pair & 15) | ((pair >> 4) << 16);
}

/// Moves four values in a word's lowest bits to a register's position in the
/// packed word.
static I32 placeFour(const Fragments &format, I32 codes, int64_t inWord) {
  constexpr int64_t nibble = 4;
  // Adjacent bits with one distance move together.
  std::map<int64_t, int64_t> masks;
  for (int64_t code = 0; code < 4; ++code) {
    auto bits = format.getBits(inWord, code);
    for (auto [n, to] : llvm::enumerate(bits)) {
      int64_t from = nibble * code + int64_t(bits.size() - 1 - n);
      masks[to - from] |= int64_t(1) << from;
    }
  }
  return moveBits(codes, masks);
}

I32 Sm90Repack::weaken(I32 codes, Value sharedRow, Value element) {
  I32 excess =
      word(emitter.load(b.getI32Type(), excessAddress(sharedRow), kWordBytes));
  I32 exponent = (loadScale(sharedRow, element).bits >> digits) - excess;
  I32 by = word(Fragments::kLeastStep) - exponent;
  I32 table = word(Fragments::kWeakenedCodes[0]);
  for (int64_t i = 1; i <= Fragments::kWeakened; ++i)
    table = select(by > i - 1, word(Fragments::kWeakenedCodes[i]), table);
  constexpr int64_t nibble = 4, magnitude = 7, signs = 0x8888;
  I32 weakened = codes & signs;
  for (int64_t i = 0; i < 4; ++i) {
    I32 code = (codes >> nibble * i) & magnitude;
    I32 looked = word(arith::ShRUIOp::create(b, table, (code << 2)));
    weakened = weakened | ((looked & magnitude) << nibble * i);
  }
  return weakened;
}

I32 Sm90Repack::loadFour(Value sharedRow, Value byte) {
  Value offset = getOffset(sharedRow, byte);
  I32 codes = loadByte(offset) | (loadByte(emitter.scale(offset, 1, 1)) << 8);
  if (format.scales == Fragments::Scales::Steps)
    return weaken(codes, sharedRow, emitter.scale(byte, 2));
  constexpr int64_t ones = 0x1111, magnitude = 7;
  codes = codes ^ format.getTurnedBits() * ones;
  I32 negative = (codes >> 3) & ones;
  return word(
      arith::XOrIOp::create(b, codes, emitter.scale(negative, magnitude)));
}

I32 Sm90Repack::loadE4M3(Value sharedRow, Value byte) {
  constexpr int64_t ones = 0x01010101;
  Value codes = emitter.load(
      b.getI32Type(), emitter.advance(shared, getOffset(sharedRow, byte)),
      kWordBytes);
  return word(codes) ^ format.getTurnedBits() * ones;
}

I32 Sm90Repack::packBytes(Value sharedRow, Value byte) {
  constexpr int64_t stretchBytes = 8;
  I32 first = placeFour(format, loadFour(sharedRow, byte), 0);
  Value second = emitter.scale(byte, 1, stretchBytes);
  return first | placeFour(format, loadFour(sharedRow, second), 1);
}

void Sm90Repack::storeCodes() {
  int64_t unitWords = format.getRunWords();
  int64_t wordPairs = format.getWordRegisters();
  // Bytes of a pair of values.
  int64_t pairBytes = shape.codeBits / 4;
  for (int64_t run = 0; run < kRuns; ++run) {
    emitter.forThreads(
        emitter.mul(firstUnit, unitWords), emitter.mul(endUnit, unitWords),
        [&](Value index) {
          Value at = toI32(index);
          Value unit = emitter.divide(at, unitWords);
          Value inUnit = emitter.remainder(at, unitWords);
          // The thread of the warpgroup that reads the word, and the index of
          // its word.
          Value inPiece = inUnit;
          if (format.getPieces() > 1)
            inPiece = emitter.remainder(inUnit, Fragments::kPieceWords);
          Value thread = emitter.divide(inPiece, Fragments::kThreadWords);
          Value own = emitter.remainder(inPiece, Fragments::kThreadWords);
          if (format.getPieces() > 1)
            own = addI32(own, emitter.scale(emitter.divide(
                                                inUnit, Fragments::kPieceWords),
                                            Fragments::kThreadWords));
          Value warp = emitter.scale(emitter.divide(thread, 32), 1, run * 2);
          Value lane = emitter.remainder(thread, 32);
          Value row = addI32(emitter.scale(warp, 16), emitter.divide(lane, 4));
          auto store = [&](Value packed) {
            emitter.store(
                packed,
                getAddress(op.getPacked(), run, emitter.mul(index, kWordBytes)),
                kWordBytes);
          };
          if (format.isE4M3()) {
            // Order within an mma: two words of the first row, then two of the
            // other.
            constexpr int64_t productBytes = 32, wordBytes = 16, laneBytes = 4;
            Value parity = emitter.remainder(emitter.divide(own, 2), 2);
            Value from = getSharedRow(addI32(row, emitter.scale(parity, 8)));
            Value word =
                addI32(emitter.scale(emitter.divide(own, 4), productBytes),
                       emitter.scale(emitter.remainder(own, 2), wordBytes));
            Value byte =
                addI32(addI32(emitter.scale(unit, Fragments::kDepth), word),
                       emitter.scale(emitter.remainder(lane, 4), laneBytes));
            return store(loadE4M3(from, byte));
          }
          if (format.numbers == Fragments::Numbers::E4M3) {
            // Alternates between two rows, 16 bytes of K each.
            constexpr int64_t unitBytes = 32, wordBytes = 16, laneBytes = 2;
            Value parity = emitter.remainder(own, 2);
            Value from = getSharedRow(addI32(row, emitter.scale(parity, 8)));
            Value byte =
                addI32(addI32(emitter.scale(unit, unitBytes),
                              emitter.scale(emitter.divide(own, 2), wordBytes)),
                       emitter.scale(emitter.remainder(lane, 4), laneBytes));
            return store(packBytes(from, byte));
          }
          // A packed tile is 32 pairs deep, and a word has 4 for each two of
          // its own.
          int64_t deep = 2 * wordPairs;
          Value byte =
              addI32(addI32(emitter.scale(unit, 32 * pairBytes),
                            emitter.scale(own, deep * pairBytes)),
                     emitter.scale(emitter.remainder(lane, 4), pairBytes));
          Value packed;
          for (int64_t i = 0; i < wordPairs; ++i) {
            Value from = getSharedRow(emitter.scale(row, 1, i % 2 * 8));
            Value pair = emitter.scale(byte, 1, i / 2 * 4 * pairBytes);
            I32 placed = placePair(format, loadPair(from, pair), i);
            packed = packed ? (word(packed) | placed) : placed;
          }
          store(packed);
        });
  }
}
