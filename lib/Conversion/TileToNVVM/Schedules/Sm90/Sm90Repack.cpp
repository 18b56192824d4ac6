//===- Sm90Repack.cpp - the schedule sm90.repack ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA brings a block of 64 rows into the order of tensor cores: two runs of
// 32 rows that follow one another in memory. It reads both into shared memory,
// for what it writes lies where they were, finds the largest scale of each row,
// and writes words.

#include "../../AsyncEmitter.h"
#include "../../Emit.h"
#include "../../Word.h"
#include "moec/Analysis/Sm90.h"

using namespace mlir;
using namespace moec;
using moe::Fragments;

namespace {

constexpr int64_t kRuns = Fragments::kRows / Fragments::kRunRows;
constexpr int64_t kWordBytes = 4, kPieceBytes = 16;

class Sm90Repack {
public:
  Sm90Repack(tile::RepackOp op, AsyncEmitter &emitter)
      : op(op), emitter(emitter), b(emitter.b), shape(op),
        shared(emitter.dynamicShared()) {}

  void emit();

private:
  /// The address of a byte (index) of a run in a memref.
  Value getAddress(Value memref, int64_t run, Value byte);
  /// Indices of a row of the CTA's block.
  SmallVector<Value> getIndices(Value row);
  void loadBlock();
  /// A thread per row: how much less its exponents are stored, and its scale.
  void findExcess();
  void storeCodes();
  void storeScales();
  /// The row, in shared memory, of a row of a unit (i32).
  Value getSharedRow(Value unitRow);
  /// A byte at an offset of shared memory, as i32.
  Word loadByte(Value offset);
  Word word(Value value) { return {&b, value}; }
  Value toI32(Value index) { return emitter.toI32(index); }
  Value addI32(Value x, Value y) { return b.createOrFold<arith::AddIOp>(x, y); }
  Value excessAddress(Value row) {
    return emitter.advance(shared,
                           emitter.scale(row, sm90::Repack::kExcessBytes,
                                         shape.getExcessOffset()));
  }

  tile::RepackOp op;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  sm90::Repack shape;
  Value shared;
  /// The CTA's matrix and block; index and i32.
  Value matrix, block;
};

SmallVector<Value> Sm90Repack::getIndices(Value row) {
  SmallVector<Value> indices{emitter.toIndex(row)};
  if (cast<MemRefType>(op.getWeight().getType()).getRank() > 2)
    indices.insert(indices.begin(), matrix);
  return indices;
}

Value Sm90Repack::getAddress(Value memref, int64_t run, Value byte) {
  moe::WeightLayoutAttr layout = op.getLayoutAttr();
  int64_t first = Fragments::getRunRow(0, run, shape.rows, layout);
  int64_t stride = Fragments::getRunRow(1, run, shape.rows, layout) - first;
  SmallVector<Value> indices = getIndices(emitter.scale(block, stride, first));
  indices.push_back(byte);
  return emitter.address(emitter.operand(memref), indices);
}

void Sm90Repack::loadBlock() {
  auto type = VectorType::get(kPieceBytes / kWordBytes, b.getI32Type());
  auto copy = [&](Value memref, int64_t offset, int64_t runBytes) {
    for (int64_t run = 0; run < kRuns; ++run) {
      Value to = emitter.advance(shared, offset + run * runBytes);
      emitter.forThreads(
          emitter.index(0), emitter.index(runBytes / kPieceBytes),
          [&](Value piece) {
            Value from =
                getAddress(memref, run, emitter.mul(piece, kPieceBytes));
            emitter.store(
                emitter.load(type, from, kPieceBytes),
                emitter.advance(to, emitter.scale(toI32(piece), kPieceBytes)),
                kPieceBytes);
          });
    }
  };
  copy(op.getWeight(), 0, Fragments::kRunRows * shape.getCodeRowBytes());
  copy(op.getScale(), shape.getScaleOffset(),
       Fragments::kRunRows * shape.getScaleRowBytes());
}

Word Sm90Repack::loadByte(Value offset) {
  Value byte = emitter.load(b.getI8Type(), emitter.advance(shared, offset), 1);
  return word(arith::ExtUIOp::create(b, b.getI32Type(), byte));
}

void Sm90Repack::findExcess() {
  Value row = emitter.thread();
  emitter.ifThen(emitter.isLess(row, emitter.i32(Fragments::kRows)), [&] {
    Value firstScale =
        emitter.scale(row, shape.getScaleRowBytes(), shape.getScaleOffset());
    Value firstCode = emitter.scale(row, shape.getCodeRowBytes());
    SmallVector<Value> largest = emitter.forLoop(
        emitter.index(0), emitter.index(shape.getScaleRowBytes()), 1,
        {emitter.i32(0), emitter.i32(0)}, [&](Value i, ValueRange carried) {
          Word scale = loadByte(addI32(firstScale, toI32(i)));
          // The group's codes without their signs.
          constexpr int64_t groupBytes = Fragments::kGroup / 2;
          Value codes = emitter.load(
              VectorType::get(groupBytes / kWordBytes, b.getI32Type()),
              emitter.advance(
                  shared,
                  addI32(firstCode, emitter.scale(toI32(i), groupBytes))),
              groupBytes);
          Word all = word(vector::ExtractOp::create(b, codes, 0));
          for (int64_t n = 1; n < groupBytes / kWordBytes; ++n)
            all = all | word(vector::ExtractOp::create(b, codes, n));
          Value isZero =
              arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                    (all & 0x77777777).value, emitter.i32(0));
          Value counted = word(isZero).choose(scale.constant(0), scale).value;
          return SmallVector<Value>{
              arith::MaxSIOp::create(b, carried[0], counted),
              arith::MaxSIOp::create(b, carried[1], scale.value)};
        });
    Value excess = arith::MaxSIOp::create(
        b, emitter.scale(largest[0], 1, -Fragments::kLargestScale),
        emitter.i32(0));
    emitter.store(excess, excessAddress(row), kWordBytes);
    // 2^excess, or NaN; exponents of f32 are 127 more.
    constexpr int64_t bias = 127, digits = 23, notANumber = 0x7FC00000;
    constexpr int64_t largestNumber = 254;
    Word power = (word(excess) + bias) << digits;
    Word bits = word(largest[1])
                    .isGreater(largestNumber)
                    .choose(power.constant(notANumber), power);
    Value scale = arith::BitcastOp::create(b, b.getF32Type(), bits.value);
    Value run = emitter.divide(row, Fragments::kRunRows);
    Value inRun = emitter.remainder(row, Fragments::kRunRows);
    moe::WeightLayoutAttr layout = op.getLayoutAttr();
    auto firstRow = [&](int64_t block, int64_t run) {
      return Fragments::getRunRow(block, run, shape.rows, layout);
    };
    Value inMatrix = addI32(addI32(emitter.scale(block, firstRow(1, 0)),
                                   emitter.scale(run, firstRow(0, 1))),
                            inRun);
    emitter.storeF32(scale, emitter.operand(op.getRowScale()),
                     getIndices(inMatrix));
  });
}

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

/// Codes of four bits at the low ends of both halves, as pair `i` of a word.
static Word placePair(Word codes, int64_t i) {
  constexpr int64_t ones = 0x00010001;
  auto part = [&](int64_t mask, int64_t distance) {
    Word bits = codes & ones * mask;
    return distance ? bits << distance : bits;
  };
  switch (i) {
  case 0:
    return part(8, 12) | part(7, 6);
  case 1:
    return part(8, 9) | part(7, 3);
  case 2:
    return part(8, 6) | part(7, 0);
  default:
    return part(12, 11) | part(3, 10);
  }
}

void Sm90Repack::storeCodes() {
  int64_t units = shape.depth / Fragments::kDepth;
  int64_t runWords = units * Fragments::kCodeWords;
  for (int64_t run = 0; run < kRuns; ++run) {
    emitter.forThreads(
        emitter.index(0), emitter.index(runWords), [&](Value index) {
          Value at = toI32(index);
          Value unit = emitter.divide(at, Fragments::kCodeWords);
          Value inUnit = emitter.remainder(at, Fragments::kCodeWords);
          // The thread of the warpgroup that reads the word, and its product.
          Value thread = emitter.divide(inUnit, 4);
          Value product = emitter.remainder(inUnit, 4);
          Value warp = emitter.scale(emitter.divide(thread, 32), 1, run * 2);
          Value lane = emitter.remainder(thread, 32);
          Value row = addI32(emitter.scale(warp, 16), emitter.divide(lane, 4));
          // Two elements are a byte, a unit 32 bytes, a product 8 of them.
          Value byte =
              addI32(addI32(emitter.scale(unit, 32), emitter.scale(product, 8)),
                     emitter.remainder(lane, 4));
          Value packed;
          for (int64_t i = 0; i < 4; ++i) {
            Value from = getSharedRow(emitter.scale(row, 1, i % 2 * 8));
            Word pair =
                loadByte(addI32(emitter.scale(from, shape.getCodeRowBytes()),
                                emitter.scale(byte, 1, i / 2 * 4)));
            Word codes = (pair & 15) | ((pair >> 4) << 16);
            Word placed = placePair(codes, i);
            packed = packed ? (word(packed) | placed).value : placed.value;
          }
          emitter.store(
              packed,
              getAddress(op.getPacked(), run, emitter.mul(index, kWordBytes)),
              kWordBytes);
        });
  }
}

void Sm90Repack::storeScales() {
  int64_t units = shape.depth / Fragments::kDepth;
  for (int64_t run = 0; run < kRuns; ++run) {
    emitter.forThreads(
        emitter.index(0), emitter.index(units * Fragments::kScaleWords),
        [&](Value index) {
          Value at = toI32(index);
          Value unit = emitter.divide(at, Fragments::kScaleWords);
          Value inUnit = emitter.remainder(at, Fragments::kScaleWords);
          Value row =
              addI32(emitter.scale(emitter.divide(inUnit, 8), 16, run * 32),
                     emitter.remainder(inUnit, 8));
          Value packed;
          for (int64_t byte = 0; byte < kWordBytes; ++byte) {
            Value from = getSharedRow(emitter.scale(row, 1, byte % 2 * 8));
            Value offset =
                addI32(emitter.scale(from, shape.getScaleRowBytes(),
                                     shape.getScaleOffset() + byte / 2),
                       emitter.scale(unit, Fragments::kGroups));
            Value excess =
                emitter.load(b.getI32Type(), excessAddress(from), kWordBytes);
            Word scale = loadByte(offset);
            Word exponent = scale + Fragments::kExponent - word(excess);
            // The row's own number says where there is a NaN.
            constexpr int64_t largestNumber = 254;
            exponent =
                word(arith::MaxSIOp::create(b, exponent.value, emitter.i32(0)))
                    .min(largestNumber);
            Word placed = byte ? exponent << 8 * byte : exponent;
            packed = packed ? (word(packed) | placed).value : placed.value;
          }
          emitter.store(packed,
                        getAddress(op.getPackedScale(), run,
                                   emitter.mul(index, kWordBytes)),
                        kWordBytes);
        });
  }
}

void Sm90Repack::emit() {
  Value blocks = emitter.index(shape.rows / Fragments::kRows);
  matrix = arith::DivUIOp::create(b, emitter.cta(), blocks);
  block = toI32(arith::RemUIOp::create(b, emitter.cta(), blocks));
  loadBlock();
  emitter.barrier();
  findExcess();
  emitter.barrier();
  storeCodes();
  storeScales();
}

} // namespace

LogicalResult moec::emitSm90Repack(Operation *phase, KernelBody height) {
  AsyncEmitter emitter(height.func, height.kernel, height.threads);
  Sm90Repack(cast<tile::RepackOp>(phase), emitter).emit();
  return success();
}
