//===- Sm90Decoded.cpp - products of weights in registers -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A unit of 64 weight rows by 64 of the depth is 16 bytes of codes and 4 of
// scales per thread, which become the fragments of four products. While tensor
// cores read those of one unit, the next one's codes are loaded and taken
// apart; the last step, a multiplication per pair, waits until the products are
// done: where input registers of a product are written while another one runs,
// ptxas serializes both (C7513). Other consumers' products run meanwhile.
//
// A word has four pairs of codes. A mask takes the sign, the two bits of
// exponent and the mantissa of a pair to where bf16 has them, after a shift for
// the second and the third pair; the fourth one is what bits are left. So
// moved, a code stands for 2^-126 of its number, 0.5 as a subnormal one, and a
// product with the scale, whose exponent is higher by as much, makes it whole.

#include "Sm90Products.h"

#include "../../InlinePtx.h"
#include "../../Word.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "moec/Dialect/Moe/Fragments.h"

using namespace mlir;
using namespace moec;
using moe::Fragments;
using sm90::Contract;

namespace {

/// Products of a unit: a word of codes each.
constexpr int64_t kProducts = 4;
/// A fragment's registers: of two rows, and of two octets of the depth.
constexpr int64_t kRegisters = 4;

/// A unit before the last step: words of two small numbers each, of all
/// products one after the other, and of two scales each, of both rows of one
/// group after the other.
struct OpenUnit {
  SmallVector<Value> numbers, scales;
};

/// Makes fragments of a thread's share of units.
class UnitDecoder {
public:
  explicit UnitDecoder(AsyncEmitter &emitter)
      : emitter(emitter), b(emitter.b) {}

  /// Takes apart a vector of four i32 and one i32 of four bytes.
  OpenUnit open(Value codes, Value scales);
  /// The fragments of all products.
  SmallVector<Value> close(const OpenUnit &unit);

private:
  static constexpr int64_t kScales = 4;

  Word word(Value value) { return {&b, value}; }
  Value toPair(Value word) {
    return LLVM::BitcastOp::create(b, VectorType::get(2, b.getBF16Type()),
                                   word);
  }
  /// The scale of a byte, twice.
  Value getScale(Value scales, int64_t byte);
  /// The pair of register `i`, as small numbers.
  Value move(Word codes, int64_t i);

  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
};

Value UnitDecoder::getScale(Value scales, int64_t byte) {
  // The byte below a zero (byte 4), twice; a bf16 has 7 bits below its
  // exponent.
  constexpr int64_t digits = 7;
  int64_t half = 0x40 | byte;
  Value selector = word(scales).constant(half << 8 | half).value;
  Value spread =
      NVVM::PermuteOp::create(b, b.getI32Type(), scales, emitter.i32(0),
                              selector, NVVM::PermuteMode::DEFAULT);
  return (word(spread) << digits).value;
}

Value UnitDecoder::move(Word codes, int64_t i) {
  constexpr int64_t all = 0x81C081C0;
  constexpr int64_t distance = 3;
  if (i + 1 < kRegisters)
    return ((i ? codes << distance * i : codes) & all).value;
  Word sign = (codes << 1) & 0x80008000;
  Word high = (codes >> 5) & 0x01000100;
  Word low = (codes >> 4) & 0x00C000C0;
  return (sign | high | low).value;
}

OpenUnit UnitDecoder::open(Value codes, Value scales) {
  OpenUnit unit;
  for (int64_t product = 0; product < kProducts; ++product)
    for (int64_t i = 0; i < kRegisters; ++i)
      unit.numbers.push_back(
          move(word(vector::ExtractOp::create(b, codes, product)), i));
  for (int64_t i = 0; i < kScales; ++i)
    unit.scales.push_back(getScale(scales, i));
  // Ahead of the wait, whatever LLVM would like.
  SmallVector<Value> all = unit.numbers;
  llvm::append_range(all, unit.scales);
  all = tieWords(b, all);
  unit.scales.assign(all.end() - kScales, all.end());
  all.pop_back_n(kScales);
  unit.numbers = all;
  return unit;
}

SmallVector<Value> UnitDecoder::close(const OpenUnit &unit) {
  // Adding -0 changes nothing.
  auto type = VectorType::get(2, b.getBF16Type());
  Value zero = arith::ConstantOp::create(
      b, DenseElementsAttr::get(type, b.getFloatAttr(b.getBF16Type(), -0.0)));
  // Behind the wait.
  SmallVector<Value> scales = tieWords(b, unit.scales);
  SmallVector<Value> fragments;
  for (int64_t product = 0; product < kProducts; ++product) {
    int64_t group = product * Fragments::kGroups / kProducts;
    for (int64_t i = 0; i < kRegisters; ++i) {
      Value number =
          math::FmaOp::create(b, toPair(unit.numbers[product * kRegisters + i]),
                              toPair(scales[2 * group + i % 2]), zero);
      fragments.push_back(LLVM::BitcastOp::create(b, b.getI32Type(), number));
    }
  }
  return fragments;
}

} // namespace

ContractSums Sm90Products::multiplyDecoded(int64_t height, RingPlace place) {
  int64_t numBlocks = shape.getBlocks(height), units = shape.getUnits();
  int64_t width = shape.getProductWidth(height);
  // Where the thread's words of a step begin, and its scales: a run of each
  // block has half of the warps.
  constexpr int64_t runThreads = Contract::kWarpgroup / 2, rowThreads = 4;
  Value thread = emitter.warpgroupThread();
  Value run = emitter.divide(thread, runThreads);
  Value inRun = emitter.remainder(thread, runThreads);
  auto offset = [&](int64_t unitBytes, Value share, int64_t shareBytes) {
    Value block = emitter.scale(consumer, numBlocks * units * unitBytes);
    Value half = emitter.scale(run, units * unitBytes / 2);
    return contract.addI32(contract.addI32(block, half),
                           emitter.scale(share, shareBytes));
  };
  constexpr int64_t codeBytes = Contract::kChunkBytes, scaleBytes = 4;
  Value ownCodes = offset(Contract::kUnitBytes, inRun, codeBytes);
  Value ownScales = offset(Contract::kUnitScaleBytes,
                           emitter.divide(inRun, rowThreads), scaleBytes);
  UnitDecoder decoder(emitter);
  auto codesType = VectorType::get(kProducts, b.getI32Type());
  auto load = [&](Value stage, int64_t block, int64_t unit) {
    auto at = [&](int64_t unitBytes) {
      return block * units * unitBytes + unit * unitBytes / 2;
    };
    Value codes = emitter.advance(
        contract.stageAddress(stage, at(Contract::kUnitBytes)), ownCodes);
    Value scales = emitter.advance(
        contract.sharedAddress(shape.getScaleOffset() +
                               at(Contract::kUnitScaleBytes)),
        contract.addI32(emitter.scale(stage, shape.getScaleBytes()),
                        ownScales));
    return decoder.open(emitter.load(codesType, codes, codeBytes),
                        emitter.load(b.getI32Type(), scales, scaleBytes));
  };
  int64_t rowBytes =
      shape.getUnitRowBytes(shape.mapRows ? height : shape.getMaxHeight());
  auto describeRows = [&](Value stage, int64_t unit) {
    // What the first stage has is known ahead.
    constexpr int64_t chunk = Contract::kChunkBytes;
    Value first = emitter.describeTile(
        contract.sharedAddress(contract.getInputOffset() + unit * rowBytes));
    return contract.addI32(first,
                           emitter.scale(stage, shape.getStageBytes() / chunk));
  };
  // All lanes have read their words.
  auto giveBack = [&](Value stage) {
    emitter.warpBarrier();
    release(stage);
  };
  return forSteps(
      numBlocks, width, place, giveBack,
      [&](RingPlace at, MutableArrayRef<Value> sums,
          function_ref<void()> giveBackBefore) {
        OpenUnit opened = load(at.stage, 0, 0);
        for (int64_t i = 0; i < units * numBlocks; ++i) {
          int64_t unit = i / numBlocks, block = i % numBlocks;
          emitter.waitProducts(0);
          SmallVector<Value> fragments = decoder.close(opened);
          Value rows = describeRows(at.stage, unit);
          emitter.fenceProducts();
          for (int64_t product = 0; product < kProducts; ++product)
            sums[block] =
                emitter.multiplyAsync(width,
                                      ArrayRef<Value>(fragments).slice(
                                          product * kRegisters, kRegisters),
                                      rows, product, sums[block]);
          emitter.commitProducts();
          if (i == 0)
            giveBackBefore();
          if (i + 1 < units * numBlocks)
            opened = load(at.stage, (i + 1) % numBlocks, (i + 1) / numBlocks);
        }
      });
}
