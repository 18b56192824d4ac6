//===- Sm90Decoded.cpp - products of weights in registers -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A unit of 64 weight rows by 64 of the depth is 16 or 32 bytes of codes and
// some of scales per thread, which become the fragments of four products, or,
// of e4m3 (Sm90ByteUnits.cpp), of two. While
// tensor cores read those of one unit, the next one's codes are loaded and
// taken apart; the last step, a multiplication per pair, waits until the
// products are done: where input registers of a product are written while
// another one runs, ptxas serializes both (C7513). Other consumers' products
// run meanwhile.
//
// Of 16 bits: a word has four pairs of codes, or two. A mask takes a pair,
// perhaps after a shift, to where a bf16 or f16 stands for its number times a
// small power of two. A product with the scale, whose exponent is higher by as
// much, makes it whole: of floats exactly where the scale is a power of two,
// and of integers less their zero point, which is subtracted exactly, with one
// rounding. A scale with more digits than a bf16 is the sum of two.

#include "Sm90Products.h"
#include "Sm90Units.h"

#include "../../InlinePtx.h"
#include "../../Word.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "moec/Dialect/Moe/Fragments.h"

#include <cmath>

using namespace mlir;
using namespace moec;
using moe::Fragments;
using sm90::Contract;

namespace {

/// Products of a unit: a word of codes each, or two.
constexpr int64_t kProducts = 4;
/// A fragment's registers: of two rows, and of two octets of the depth.
constexpr int64_t kRegisters = Fragments::kRegisters;

/// Of codes that become bf16 or f16.
class HalfDecoder final : public UnitDecoder {
public:
  HalfDecoder(AsyncEmitter &emitter, const Fragments &format)
      : emitter(emitter), b(emitter.b), format(format),
        hasF16(format.numbers == Fragments::Numbers::F16) {}

  OpenUnit open(ArrayRef<Value> codes, Value scales) override;
  SmallVector<Value> close(const OpenUnit &unit) override;

private:
  /// Bits of a bf16 below its exponent.
  static constexpr int64_t kDigits = 7;
  static constexpr int64_t kRows = Fragments::kQuadRows;

  Word word(Value value) { return {&b, value}; }
  Type getNumberType() {
    return hasF16 ? Type(b.getF16Type()) : Type(b.getBF16Type());
  }
  VectorType getPairType() { return VectorType::get(2, getNumberType()); }
  Value toPair(Value word) {
    return LLVM::BitcastOp::create(b, getPairType(), word);
  }
  Value toWord(Value pair) {
    return LLVM::BitcastOp::create(b, b.getI32Type(), pair);
  }
  Value makePair(double number) {
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(getPairType(),
                                  b.getFloatAttr(getNumberType(), number)));
  }
  /// The middle of all codes as a code of a row (0 or 1 of a thread's two)
  /// stands for it, twice.
  Value getMiddle(int64_t row) {
    constexpr int64_t unitRows[kRows] = {0, 8};
    return makePair(std::ldexp(double(format.getMiddle()),
                               -int(format.getExponent(unitRows[row]))));
  }
  /// `pair * other + addend`, of words, rounded once; without an addend the
  /// product.
  Value multiply(Value pair, Value other, Value addend = {}) {
    // Adding -0 changes nothing.
    return toWord(
        math::FmaOp::create(b, toPair(pair), toPair(other),
                            addend ? toPair(addend) : makePair(-0.0)));
  }
  /// A byte or two of some words, from that byte on, as both halves of one;
  /// a byte is the lower one there.
  Value spread(ArrayRef<Value> words, int64_t byte, int64_t bytes);
  /// The scale of that number, twice.
  Value getScale(ArrayRef<Value> words, int64_t number);
  /// The first digits of a kept f16, as a bf16, twice, and the others.
  std::pair<Value, Value> split(ArrayRef<Value> words, int64_t number);
  /// The pair of register `i`, as small numbers, and how, by the codes of it or
  /// of the word that it is in.
  Value move(Word codes, int64_t i);
  Value moveE2M1(Word codes, int64_t i);
  Value moveE4M3(Word codes, int64_t i);
  /// The number of the scale of a register.
  int64_t getNumber(int64_t product, int64_t i) const {
    return kRows * (product * format.getGroups() / kProducts) + i % kRows;
  }

  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  Fragments format;
  bool hasF16;
};

Value HalfDecoder::spread(ArrayRef<Value> words, int64_t byte, int64_t bytes) {
  constexpr int64_t wordBytes = 4;
  int64_t from = byte % wordBytes;
  // The byte above is that of a zero (byte 4), or the next one.
  int64_t half = (bytes > 1 ? from + 1 : wordBytes) << 4 | from;
  Value source = words[byte / wordBytes];
  Value selector = word(source).constant(half << 8 | half).value;
  return NVVM::PermuteOp::create(b, b.getI32Type(), source, emitter.i32(0),
                                 selector, NVVM::PermuteMode::DEFAULT);
}

Value HalfDecoder::getScale(ArrayRef<Value> words, int64_t number) {
  int64_t bytes = format.getScaleBytes();
  Word kept = word(spread(words, number * bytes, bytes));
  switch (format.scales) {
  case Fragments::Scales::BF16:
  case Fragments::Scales::F16:
    return kept.value;
  case Fragments::Scales::F32:
  case Fragments::Scales::Steps:
    break;
  case Fragments::Scales::E8M0:
    return (kept << kDigits).value;
  case Fragments::Scales::E5M3: {
    constexpr int64_t missing = 4, both = 0x00010001;
    int64_t least = Fragments::kLeastExponent << kDigits;
    return ((kept << missing) + least * both).value;
  }
  }
  llvm_unreachable("all scales are listed");
}

std::pair<Value, Value> HalfDecoder::split(ArrayRef<Value> words,
                                           int64_t number) {
  // Digits that a bf16 has of an f32.
  constexpr int64_t first = 0xFFFF0000, perWord = 2;
  auto toBits = [&](Value single) -> Value {
    return arith::BitcastOp::create(b, b.getI32Type(), single);
  };
  Value whole, bits;
  if (format.scales == Fragments::Scales::F32) {
    bits = words[number];
    whole = arith::BitcastOp::create(b, b.getF32Type(), bits);
  } else {
    Value halves = LLVM::BitcastOp::create(
        b, VectorType::get(perWord, b.getF16Type()), words[number / perWord]);
    Value kept =
        castFloat(b, vector::ExtractOp::create(b, halves, number % perWord),
                  b.getF32Type());
    whole = arith::MulFOp::create(
        b, kept, emitter.f32(std::ldexp(1.0, int(Fragments::kF16Bias))));
    bits = toBits(whole);
  }
  Value rest = arith::SubFOp::create(
      b, whole,
      arith::BitcastOp::create(b, b.getF32Type(), (word(bits) & first).value));
  constexpr int64_t upperHalf = 2, bytes = 2;
  return {spread(bits, upperHalf, bytes),
          spread(toBits(rest), upperHalf, bytes)};
}

Value HalfDecoder::move(Word codes, int64_t i) {
  switch (format.codes) {
  case Fragments::Codes::E2M1:
    return moveE2M1(codes, i);
  case Fragments::Codes::E4M3:
    return moveE4M3(codes, i % kRows);
  case Fragments::Codes::Int4: {
    // Both rows of an octet, side by side.
    constexpr int64_t nibble = 0x000F000F, nibbleBits = 4, octetBits = 8;
    Word octet = i / kRows ? codes >> octetBits : codes;
    return (octet & nibble << nibbleBits * (i % kRows)).value;
  }
  case Fragments::Codes::Int8: {
    constexpr int64_t low = 0x00FF00FF;
    // Bytes 1 and 3, each below one of a zero (byte 4).
    constexpr int64_t high = 0x4341;
    if (i % kRows == 0)
      return (codes & low).value;
    return NVVM::PermuteOp::create(b, b.getI32Type(), codes.value,
                                   emitter.i32(0), emitter.i32(high),
                                   NVVM::PermuteMode::DEFAULT);
  }
  }
  llvm_unreachable("all codes are listed");
}

Value HalfDecoder::moveE4M3(Word codes, int64_t i) {
  if (hasF16) {
    constexpr int64_t sign = 0x80008000, digits = 0x3F803F80;
    if (i == 0)
      return (codes & (sign | digits)).value;
    return (((codes << 1) & sign) | ((codes << 7) & digits)).value;
  }
  constexpr int64_t all = 0x87F087F0, low = 0x80F080F0, high = 0x07000700;
  if (i == 0)
    return (codes & all).value;
  return (((codes << 4) & low) | ((codes >> 4) & high)).value;
}

Value HalfDecoder::moveE2M1(Word codes, int64_t i) {
  constexpr int64_t all = 0x81C081C0, rotation = 4;
  switch (i) {
  case 0:
    return (codes & all).value;
  case 1:
    return (word(LLVM::FshrOp::create(b, codes.value, codes.value,
                                      emitter.i32(rotation))) &
            all)
        .value;
  case 2:
    return ((codes << 6) & all).value;
  default:
    return (((codes << 2) & 0x80C080C0) | ((codes >> 6) & 0x01000100)).value;
  }
}

OpenUnit HalfDecoder::open(ArrayRef<Value> codes, Value scales) {
  OpenUnit unit;
  SmallVector<Value> words{scales};
  if (auto type = dyn_cast<VectorType>(scales.getType())) {
    words.clear();
    for (int64_t i = 0; i < type.getNumElements(); ++i)
      words.push_back(vector::ExtractOp::create(b, scales, i));
  }
  int64_t count = kRows * format.getGroups();
  SmallVector<Value> zeroPoints;
  for (int64_t i = 0; i < count; ++i) {
    if (format.haveRests()) {
      auto [scale, rest] = split(words, i);
      unit.scales.push_back(scale);
      unit.rests.push_back(rest);
    } else {
      unit.scales.push_back(getScale(words, i));
    }
    if (int64_t bytes = format.getZeroPointBytes())
      zeroPoints.push_back(toPair(
          spread(words, count * format.getScaleBytes() + i * bytes, bytes)));
    else if (format.haveRests() && format.areIntegers())
      zeroPoints.push_back(getMiddle(i % kRows));
  }
  for (int64_t product = 0; product < kProducts; ++product)
    for (int64_t i = 0; i < kRegisters; ++i) {
      int64_t at =
          product * format.getProductWords() + i / format.getWordRegisters();
      Value number = move(
          word(vector::ExtractOp::create(b, codes[at / Fragments::kThreadWords],
                                         at % Fragments::kThreadWords)),
          i);
      if (!zeroPoints.empty())
        number = toWord(arith::SubFOp::create(
            b, toPair(number), zeroPoints[getNumber(product, i)]));
      unit.numbers.push_back(number);
    }
  // The middle times a scale is exact, and so is the rest of a fused
  // multiplication but for the end.
  if (format.areIntegers() && zeroPoints.empty())
    for (auto [i, scale] : llvm::enumerate(unit.scales)) {
      Value middle = arith::NegFOp::create(b, getMiddle(i % kRows));
      unit.addends.push_back(multiply(scale, toWord(middle)));
    }
  unit.tie(b);
  return unit;
}

SmallVector<Value> HalfDecoder::close(const OpenUnit &unit) {
  // Behind the wait.
  SmallVector<Value> scales = tieWords(b, unit.scales);
  SmallVector<Value> fragments;
  for (int64_t product = 0; product < kProducts; ++product)
    for (int64_t i = 0; i < kRegisters; ++i) {
      int64_t at = getNumber(product, i);
      Value number = unit.numbers[product * kRegisters + i], addend;
      if (format.haveRests())
        addend = multiply(number, unit.rests[at]);
      else if (!unit.addends.empty())
        addend = unit.addends[at];
      fragments.push_back(multiply(number, scales[at], addend));
    }
  return fragments;
}

} // namespace

void OpenUnit::tie(ImplicitLocOpBuilder &b) {
  SmallVector<Value> all = numbers;
  llvm::append_range(all, scales);
  llvm::append_range(all, rests);
  llvm::append_range(all, addends);
  ArrayRef<Value> tied(all = tieWords(b, all));
  for (SmallVector<Value> *some : {&numbers, &scales, &rests, &addends}) {
    some->assign(tied.begin(), tied.begin() + some->size());
    tied = tied.drop_front(some->size());
  }
}

static std::unique_ptr<UnitDecoder> makeDecoder(AsyncEmitter &emitter,
                                                const Fragments &format) {
  if (format.numbers == Fragments::Numbers::E4M3)
    return makeByteDecoder(emitter, format);
  return std::make_unique<HalfDecoder>(emitter, format);
}

namespace {

/// What a consumer reads of a step: units of weights, and the input rows that
/// they are multiplied with.
class UnitReader {
public:
  UnitReader(Sm90Contract &contract, Value consumer, int64_t height)
      : contract(contract), emitter(contract.emitter), shape(contract.shape),
        format(contract.op.getWeightQuantAttr()),
        decoder(makeDecoder(emitter, format)),
        element(getElementType(emitter.operand(contract.op.getInput()))),
        width(shape.getProductWidth(height)), units(shape.getUnits()),
        blocks(shape.getBlocks(height)),
        rowBytes(shape.getUnitRowBytes(shape.mapRows ? height
                                                     : shape.getMaxHeight())) {
    // A run of each block has half of the warps.
    constexpr int64_t runThreads = Contract::kWarpgroup / 2, rowThreads = 4;
    Value thread = emitter.warpgroupThread();
    Value run = emitter.divide(thread, runThreads);
    Value inRun = emitter.remainder(thread, runThreads);
    auto offset = [&](int64_t unitBytes, Value share, int64_t shareBytes) {
      Value block = emitter.scale(consumer, blocks * units * unitBytes);
      Value half = emitter.scale(run, units * unitBytes / 2);
      return contract.addI32(contract.addI32(block, half),
                             emitter.scale(share, shareBytes));
    };
    ownCodes = offset(shape.unitBytes, inRun, Contract::kChunkBytes);
    ownScales = offset(shape.unitScaleBytes, emitter.divide(inRun, rowThreads),
                       format.getQuadBytes());
  }

  const Fragments &getFormat() const { return format; }
  int64_t getTurns() const { return units * blocks; }
  /// Unit and block of a step come in turns: all blocks of a unit.
  OpenUnit load(Value stage, int64_t turn);
  SmallVector<Value> close(const OpenUnit &unit) {
    return decoder->close(unit);
  }
  /// Starts the products of a turn's fragments, added to sums; where `keeps`
  /// (i32) is there and 0, these are new ones.
  Value multiply(Value stage, int64_t turn, ArrayRef<Value> fragments,
                 Value sums, Value keeps = {});

private:
  Sm90Contract &contract;
  AsyncEmitter &emitter;
  const Contract &shape;
  Fragments format;
  std::unique_ptr<UnitDecoder> decoder;
  Type element;
  int64_t width, units, blocks, rowBytes;
  /// Where the thread's words of a step begin, and its scales.
  Value ownCodes, ownScales;
};

} // namespace

OpenUnit UnitReader::load(Value stage, int64_t turn) {
  int64_t unit = turn / blocks, block = turn % blocks;
  auto at = [&](int64_t unitBytes) {
    return block * units * unitBytes + unit * unitBytes / 2;
  };
  constexpr int64_t wordBytes = 4, codeBytes = Contract::kChunkBytes,
                    pieceBytes = Fragments::kPieceWords * wordBytes;
  int64_t scaleBytes = format.getQuadBytes();
  auto codesType =
      VectorType::get(Fragments::kThreadWords, emitter.b.getI32Type());
  Type scalesType = emitter.b.getI32Type();
  if (scaleBytes > wordBytes)
    scalesType = VectorType::get(scaleBytes / wordBytes, scalesType);
  SmallVector<Value> codes;
  for (int64_t piece = 0; piece < format.getPieces(); ++piece)
    codes.push_back(emitter.advance(
        contract.stageAddress(stage, at(shape.unitBytes) + piece * pieceBytes),
        ownCodes));
  Value scales = emitter.advance(
      contract.sharedAddress(shape.getScaleOffset() + at(shape.unitScaleBytes)),
      contract.addI32(emitter.scale(stage, shape.getScaleBytes()), ownScales));
  for (Value &piece : codes)
    piece = emitter.load(codesType, piece, codeBytes);
  return decoder->open(codes, emitter.load(scalesType, scales, scaleBytes));
}

Value UnitReader::multiply(Value stage, int64_t turn, ArrayRef<Value> fragments,
                           Value sums, Value keeps) {
  // What the first stage has is known ahead.
  Value first = emitter.describeTile(contract.sharedAddress(
      contract.getInputOffset() + turn / blocks * rowBytes));
  Value rows =
      contract.addI32(first, emitter.scale(stage, shape.getStageBytes() /
                                                      Contract::kChunkBytes));
  constexpr int64_t registers = Fragments::kRegisters;
  // A chain's first product comes with one.
  if (!keeps)
    emitter.fenceProducts();
  for (int64_t product = 0; product < format.getProducts(); ++product) {
    sums = emitter.multiplyAsync(
        element, width, fragments.slice(product * registers, registers), rows,
        shape.swizzledBytes, product, sums, keeps);
    keeps = {};
  }
  emitter.commitProducts();
  return sums;
}

ContractSums Sm90Products::multiplyDecoded(int64_t height, RingPlace place) {
  UnitReader reader(contract, consumer, height);
  int64_t numBlocks = shape.getBlocks(height);
  // All lanes have read their words.
  auto giveBack = [&](Value stage) {
    emitter.warpBarrier();
    release(stage);
  };
  return forSteps(numBlocks, shape.getProductWidth(height), place, giveBack,
                  [&](RingPlace at, MutableArrayRef<Value> sums,
                      function_ref<void()> giveBackBefore) {
                    OpenUnit opened = reader.load(at.stage, 0);
                    for (int64_t turn = 0; turn < reader.getTurns(); ++turn) {
                      Value &sum = sums[turn % numBlocks];
                      emitter.waitProducts(0);
                      sum = reader.multiply(at.stage, turn,
                                            reader.close(opened), sum);
                      if (turn == 0)
                        giveBackBefore();
                      if (turn + 1 < reader.getTurns())
                        opened = reader.load(at.stage, turn + 1);
                    }
                  });
}

/// The sums of a group are apart, in registers that the next group's take over,
/// and are added, times its scale, when they are done: of one group after the
/// other, each of which begins when those before have been added.
ContractSums Sm90Products::multiplyDecodedPromoted(int64_t height,
                                                   const ContractTile &tile,
                                                   RingPlace place) {
  UnitReader reader(contract, consumer, height);
  int64_t numBlocks = shape.getBlocks(height), turns = reader.getTurns();
  int64_t width = shape.getProductWidth(height), numSums = width / 2;
  // Units of a group that follow one another, with one block: several have
  // their sums in the same registers.
  int64_t chain = numBlocks > 1 ? 1 : reader.getFormat().getGroupUnits();
  if (turns % chain)
    chain = 1;
  // No compiler knows that a tile has rows, and that so these are zeros.
  Value never = arith::ExtUIOp::create(
      b, b.getI32Type(), emitter.isLess(tile.rows, emitter.i32(1)));
  Value zero = arith::BitcastOp::create(b, b.getF32Type(), never);
  auto promoteBefore = [&](Value products, ArrayRef<Value> scales,
                           MutableArrayRef<Value> sums) {
    // A thread's four sums of every 8 rows are two of either of its weight
    // rows.
    constexpr int64_t perOctet = 4;
    for (auto [i, product] : llvm::enumerate(emitter.getSums(products))) {
      Value scale =
          arith::BitcastOp::create(b, b.getF32Type(), scales[i % perOctet / 2]);
      sums[i] = math::FmaOp::create(b, product, scale, sums[i]);
    }
    llvm::copy(tieSums(b, sums), sums.begin());
  };
  SmallVector<Value> carried{
      place.stage,    place.parity,
      emitter.i32(0), emitter.makeSums(b.getF32Type(), width),
      emitter.i32(0), emitter.i32(0)};
  int64_t numOwn = carried.size();
  carried.append(numBlocks * numSums, zero);
  auto giveBack = [&](Value stage) {
    emitter.warpBarrier();
    release(stage);
  };
  SmallVector<Value> end = emitter.forLoop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, carried,
      [&](Value step, ValueRange values) {
        RingPlace at{values[0], values[1]};
        Value products = values[3];
        SmallVector<Value> scales{values[4], values[5]};
        SmallVector<Value> sums(values.drop_front(numOwn));
        emitter.waitBarrier(contract.fullBarrier(at.stage), at.parity);
        OpenUnit opened = reader.load(at.stage, 0);
        for (int64_t turn = 0; turn < turns; ++turn) {
          emitter.waitProducts(0);
          bool isNew = turn % chain == 0;
          if (isNew) {
            int64_t before = (turn + numBlocks - 1) % numBlocks;
            promoteBefore(
                products, scales,
                MutableArrayRef<Value>(sums).slice(before * numSums, numSums));
          }
          products = reader.multiply(at.stage, turn, reader.close(opened),
                                     products, isNew ? never : Value());
          scales = opened.scales;
          if (turn == 0) {
            Value hasBefore = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                                    step, emitter.index(0));
            emitter.ifThen(hasBefore, [&] { giveBack(values[2]); });
          }
          if (turn + 1 < turns)
            opened = reader.load(at.stage, turn + 1);
        }
        RingPlace next = contract.next(at);
        SmallVector<Value> all{next.stage, next.parity, at.stage,
                               products,   scales[0],   scales[1]};
        all.append(sums);
        return all;
      });
  emitter.waitProducts(0);
  SmallVector<Value> sums(ArrayRef<Value>(end).drop_front(numOwn));
  promoteBefore(end[3], {end[4], end[5]},
                MutableArrayRef<Value>(sums).take_back(numSums));
  giveBack(end[2]);
  ContractSums result{{end[0], end[1]}, {}};
  for (int64_t block = 0; block < numBlocks; ++block)
    result.blocks.emplace_back(
        ArrayRef<Value>(sums).slice(block * numSums, numSums));
  return result;
}
