//===- Sm90Repack.cpp - the schedule sm90.repack ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Weight prepacking. A CTA reorders a block of 64 rows: two halves of 32 rows
// that are contiguous in memory. It reads the quantized values of both into
// shared memory, in parts along K, finds the largest scale of each row, and
// writes words. If there are several parts, they are read again to write words,
// because the stored form of a row's scales depends on all of them.

#include "Sm90Repack.h"

#include "../../Emit.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace moec;
using moe::Fragments;

/// Bits of an f32 below those of a bf16, and below its exponent; its exponent
/// of 1.0, and of infinity and NaN.
constexpr int64_t kBelow = 16, kSingleDigits = 23, kBias = 127, kNoNumber = 255;
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

Value Sm90Repack::getMatrixRow(Value sharedRow) {
  moe::WeightLayoutAttr layout = op.getLayoutAttr();
  auto firstRow = [&](int64_t block, int64_t run) {
    return Fragments::getRunRow(block, run, shape.rows, layout);
  };
  Value run = emitter.divide(sharedRow, Fragments::kRunRows);
  Value inRun = emitter.remainder(sharedRow, Fragments::kRunRows);
  return addI32(addI32(emitter.scale(block, firstRow(1, 0)),
                       emitter.scale(run, firstRow(0, 1))),
                inRun);
}

void Sm90Repack::setPart(Value first) {
  firstUnit = first;
  endUnit = emitter.min(emitter.add(first, shape.partUnits),
                        emitter.index(shape.getUnits()));
}

void Sm90Repack::loadPart() {
  auto type = VectorType::get(kPieceBytes / kWordBytes, b.getI32Type());
  int64_t rowPieces = shape.getPartRowBytes() / kPieceBytes;
  // The previous part has been read.
  emitter.barrier();
  for (int64_t run = 0; run < kRuns; ++run) {
    Value to = emitter.advance(shared, run * Fragments::kRunRows * rowPieces *
                                           kPieceBytes);
    emitter.forThreads(
        emitter.index(0), emitter.index(Fragments::kRunRows * rowPieces),
        [&](Value index) {
          Value piece = toI32(index);
          Value row = emitter.toIndex(emitter.divide(piece, rowPieces));
          Value inRow = emitter.toIndex(emitter.remainder(piece, rowPieces));
          Value byte =
              emitter.add(emitter.mul(firstUnit, shape.getUnitRowBytes()),
                          emitter.mul(inRow, kPieceBytes));
          auto copy = [&] {
            Value from = getAddress(
                op.getWeight(), run,
                emitter.add(emitter.mul(row, shape.getCodeRowBytes()), byte));
            emitter.store(
                emitter.load(type, from, kPieceBytes),
                emitter.advance(to, emitter.scale(piece, kPieceBytes)),
                kPieceBytes);
          };
          if (shape.getUnits() % shape.partUnits == 0)
            return copy();
          // The last part has fewer.
          Value end = emitter.mul(endUnit, shape.getUnitRowBytes());
          emitter.ifThen(
              arith::CmpIOp::create(b, arith::CmpIPredicate::slt, byte, end),
              copy);
        });
  }
  emitter.barrier();
}

Value Sm90Repack::getOffset(Value sharedRow, Value byte) {
  Value first = emitter.scale(toI32(firstUnit), shape.getUnitRowBytes());
  return addI32(emitter.scale(sharedRow, shape.getPartRowBytes()),
                b.createOrFold<arith::SubIOp>(byte, first));
}

I32 Sm90Repack::loadByte(Value offset) {
  Value byte = emitter.load(b.getI8Type(), emitter.advance(shared, offset), 1);
  return word(arith::ExtUIOp::create(b, b.getI32Type(), byte));
}

//===----------------------------------------------------------------------===//
// Scales and zero points
//===----------------------------------------------------------------------===//

Value Sm90Repack::getScaleRow(Value sharedRow) {
  Value row = getMatrixRow(sharedRow);
  int64_t group = moe::getScaleGroup(op.getQuant()).rows;
  if (group == 1)
    return row;
  auto getGroup = [&](Value row) {
    return group == moe::ScaleGroup::kAll ? emitter.i32(0)
                                          : emitter.divide(row, group);
  };
  if (!moe::hasHalves(op.getLayoutAttr()))
    return getGroup(row);
  // Halves belong to gate or up, which have rows of scales of their own.
  int64_t half = shape.rows / 2;
  int64_t scaleRows =
      moe::getNumScaleRows(op.getQuant(), shape.rows, op.getLayoutAttr()) / 2;
  Value run = emitter.divide(sharedRow, Fragments::kRunRows);
  Value inHalf = arith::SubIOp::create(b, row, emitter.scale(run, half));
  return addI32(emitter.scale(run, scaleRows), getGroup(inHalf));
}

SmallVector<Value> Sm90Repack::getScaleIndices(Value sharedRow, Value element) {
  SmallVector<Value> indices = getIndices(getScaleRow(sharedRow));
  indices.push_back(format.matrixGroup ? emitter.toIndex(emitter.divide(
                                             element, format.matrixGroup))
                                       : emitter.index(0));
  return indices;
}

I32 Sm90Repack::loadOfElement(Value memref, Value sharedRow, Value element) {
  int64_t bits = getElementType(memref).getIntOrFloatBitWidth();
  Value loaded =
      emitter.load(b.getIntegerType(bits),
                   emitter.address(emitter.operand(memref),
                                   getScaleIndices(sharedRow, element)),
                   bits / 8);
  return word(arith::ExtUIOp::create(b, b.getI32Type(), loaded));
}

GroupScale Sm90Repack::loadScale(Value sharedRow, Value element) {
  if (!format.matrixGroup)
    return {word(kBias << digits), word(0)};
  if (format.areNumbers()) {
    I32 bits = toBits(emitter.loadF32(emitter.operand(op.getScale()),
                                      getScaleIndices(sharedRow, element)));
    constexpr int64_t magnitude = 0x7FFFFFFF;
    I32 kept = bits & magnitude;
    // All other types stored as f16 have no more digits than it.
    if (format.scales == Fragments::Scales::F16 &&
        getElementType(op.getScale()).isF32())
      kept = kept + select(kept > Fragments::kMostRounded, word(0),
                           word(1 << (kSingleDigits - digits - 1)));
    kept = kept >> (kSingleDigits - digits);
    I32 high = format.getScaleBytes() == kWordBytes ? bits : bits >> kBelow;
    return {kept, high & format.getSign()};
  }
  I32 loaded = loadOfElement(op.getScale(), sharedRow, element);
  switch (format.scales) {
  case Fragments::Scales::E8M0:
  case Fragments::Scales::Steps:
    return {loaded << digits, word(0)};
  case Fragments::Scales::BF16:
  case Fragments::Scales::F16:
  case Fragments::Scales::F32:
    break;
  case Fragments::Scales::E5M3: {
    // Exponent and mantissa in f32 position, which are the value times 2^-120.
    constexpr int64_t distance = 20, signDistance = 8, notANumber = 0x7F;
    I32 magnitude = loaded & notANumber;
    Value number = arith::MulFOp::create(b, toSingle(magnitude << distance),
                                         emitter.f32(0x1p120));
    I32 bits = select(magnitude == notANumber, word(kNoNumber << digits),
                      toBits(number) >> kBelow);
    constexpr int64_t ofBF16 = 0x8000;
    return {bits, (loaded << signDistance) & ofBF16};
  }
  }
  llvm_unreachable("all scales are listed");
}

I32 Sm90Repack::loadZeroPoint(Value sharedRow, Value element) {
  if (!format.hasZeroPoints || format.hasMinima)
    return word(moe::getImpliedZeroPoint(op.getQuant()));
  return loadOfElement(op.getZeroPoint(), sharedRow, element);
}

I32 Sm90Repack::gather(Value sharedRow, Value element,
                       function_ref<I32(I32)> change) {
  int64_t groupBytes = format.group * shape.codeBits / 8,
          loadBytes = std::min(groupBytes, kPieceBytes);
  Value first =
      getOffset(sharedRow, emitter.divide(element, 8 / shape.codeBits));
  I32 all = word(0);
  for (int64_t byte = 0; byte < groupBytes; byte += loadBytes) {
    Value codes = emitter.load(
        VectorType::get(loadBytes / kWordBytes, b.getI32Type()),
        emitter.advance(shared, addI32(first, emitter.i32(byte))), loadBytes);
    for (int64_t i = 0; i < loadBytes / kWordBytes; ++i)
      all = all | change(word(vector::ExtractOp::create(b, codes, i)));
  }
  return all;
}

Value Sm90Repack::isZero(Value sharedRow, Value element) {
  if (format.book && !format.findZero())
    return arith::ConstantOp::create(b, b.getBoolAttr(false));
  // 1 in every value of a word, and the mask without signs.
  int64_t ones = shape.codeBits == 4 ? 0x11111111 : 0x01010101,
          most = (1 << shape.codeBits) - 1, magnitude = most / 2;
  I32 zeroPoint = format.book ? word(*format.findZero())
                              : loadZeroPoint(sharedRow, element);
  I32 zeros = word(emitter.scale(zeroPoint, ones));
  I32 differ = gather(sharedRow, element, [&](I32 codes) {
    // Zeros of floats have a sign.
    if (!format.areIntegers() && !format.book)
      return codes & magnitude * ones;
    return word(arith::XOrIOp::create(b, codes, zeros));
  });
  // No value equals a zero point above the range.
  if (format.hasZeroPoints && shape.codeBits < 8)
    differ = select(zeroPoint > most, word(1), differ);
  return isEqual(differ, 0);
}

Value Sm90Repack::hasNaN(Value sharedRow, Value element) {
  // All bits except the sign: adding one to each yields a carry.
  constexpr int64_t ones = 0x01010101, magnitude = 0x7F7F7F7F;
  constexpr int64_t signs = 0x80808080;
  I32 carries = gather(sharedRow, element,
                       [&](I32 codes) { return (codes & magnitude) + ones; });
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, (carries & signs),
                               emitter.i32(0));
}

I32 Sm90Repack::getKeptScale(Value sharedRow, Value element, int64_t unitRow) {
  GroupScale scale = loadScale(sharedRow, element);
  Value excess =
      emitter.load(b.getI32Type(), excessAddress(sharedRow), kWordBytes);
  I32 bits = scale.bits + (format.getExponent(unitRow) << digits);
  bits = bits - (word(excess) << digits);
  int64_t least = format.getLeastKept(unitRow) << digits;
  bits = select(bits > least - 1, bits, word(0));
  // NaN is expressed by the row's own factor.
  bits = min(bits, format.getLargestKept());
  if (!format.arePowers())
    bits = select(scale.bits > (1 << digits) - 1, bits, 0);
  if (format.areE5M3()) {
    constexpr int64_t missing = 4;
    I32 fromLeast = bits + -(format.getLeastExponent() << digits);
    return max(fromLeast, word(0)) >> missing;
  }
  switch (format.scales) {
  case Fragments::Scales::E8M0:
    return bits >> digits;
  case Fragments::Scales::E5M3:
    break;
  case Fragments::Scales::BF16:
    return bits | scale.sign;
  case Fragments::Scales::F32:
    return (bits << (kSingleDigits - digits)) | scale.sign;
  case Fragments::Scales::F16: {
    I32 rebiased = bits + -(format.getKeptBias() << digits);
    return max(rebiased, word(0)) | scale.sign;
  }
  case Fragments::Scales::Steps: {
    constexpr int64_t log2StepBits = 3;
    I32 step = (bits >> digits) + -Fragments::kLeastStep;
    return max(step, word(0)) << log2StepBits;
  }
  }
  llvm_unreachable("all scales are listed");
}

I32 Sm90Repack::getKeptZeroPoint(Value sharedRow, Value element,
                                 int64_t unitRow) {
  return keepZeroPoint(
      arith::UIToFPOp::create(b, b.getF32Type(),
                              loadZeroPoint(sharedRow, element)),
      unitRow);
}

I32 Sm90Repack::keepZeroPoint(Value number, int64_t unitRow) {
  double power = std::ldexp(1.0, -int(format.getExponent(unitRow)));
  number = arith::MulFOp::create(b, number, emitter.f32(power));
  if (format.numbers == Fragments::Numbers::BF16)
    return toBits(number) >> kBelow;
  Value half = castFloat(b, number, b.getF16Type());
  return word(arith::ExtUIOp::create(
      b, b.getI32Type(),
      arith::BitcastOp::create(b, b.getIntegerType(16), half)));
}

std::pair<Value, Value> Sm90Repack::splitMinimum(Value sharedRow,
                                                 Value element) {
  SmallVector<Value> indices = getScaleIndices(sharedRow, element);
  Value scale = emitter.loadF32(emitter.operand(op.getScale()), indices);
  Value minimum = emitter.loadF32(emitter.operand(op.getZeroPoint()), indices);
  auto zero = double(format.getZeroCode()),
       most = double(format.getLargestCode()) - zero;
  // For NaN, as for 0 / 0, the minimum value.
  Value whole =
      math::RoundEvenOp::create(b, arith::DivFOp::create(b, minimum, scale));
  whole = arith::MinNumFOp::create(
      b, arith::MaxNumFOp::create(b, whole, emitter.f32(-zero)),
      emitter.f32(most));
  Value negative = arith::NegFOp::create(b, minimum);
  Value rest = math::FmaOp::create(b, whole, scale, negative);
  Value areZeros = isZero(sharedRow, element);
  whole = arith::SelectOp::create(b, areZeros, emitter.f32(0), whole);
  rest = arith::SelectOp::create(b, areZeros, negative, rest);
  return {whole, rest};
}

std::pair<I32, I32> Sm90Repack::getKeptMinimum(Value sharedRow, Value element,
                                               int64_t unitRow) {
  auto [whole, rest] = splitMinimum(sharedRow, element);
  bool hasF16 = format.numbers == Fragments::Numbers::F16;
  // 2^-r: as two normal powers of two if it is not normal itself.
  I32 excess =
      word(emitter.load(b.getI32Type(), excessAddress(sharedRow), kWordBytes));
  SmallVector<I32> parts{excess};
  if (!hasF16) {
    I32 half = excess >> 1;
    parts = {half, excess - half};
  }
  for (I32 part : parts)
    rest = arith::MulFOp::create(
        b, rest, toSingle((word(kBias) - part) << kSingleDigits));
  Type type = hasF16 ? Type(b.getF16Type()) : Type(b.getBF16Type());
  Value kept =
      arith::BitcastOp::create(b, b.getI16Type(), castFloat(b, rest, type));
  auto zero = double(format.getZeroCode());
  return {keepZeroPoint(arith::AddFOp::create(b, whole, emitter.f32(zero)),
                        unitRow),
          word(arith::ExtUIOp::create(b, b.getI32Type(), kept))};
}

SmallVector<Value> Sm90Repack::findLargest(Value row, ValueRange before) {
  int64_t groups = format.getGroups();
  return emitter.forLoop(
      emitter.mul(firstUnit, groups), emitter.mul(endUnit, groups), 1, before,
      [&](Value i, ValueRange carried) {
        Value element = emitter.scale(toI32(i), format.group);
        I32 scale = loadScale(row, element).bits;
        I32 counted = select({b, isZero(row, element)}, word(0), scale);
        if (format.areRestsBounded()) {
          constexpr int64_t magnitude = 0x7FFFFFFF;
          I32 rest = toBits(splitMinimum(row, element).second) & magnitude;
          counted =
              max(counted, ((rest >> kSingleDigits) + -format.getRestRoom())
                               << digits);
        }
        if (format.codes == Fragments::Codes::E4M3)
          scale = select({b, hasNaN(row, element)}, word(kNoNumber << digits),
                         scale);
        return SmallVector<Value>{max(word(carried[0]), counted),
                                  max(word(carried[1]), scale)};
      });
}

SmallVector<Value> Sm90Repack::findLargest(Value isRow) {
  return emitter.forLoop(
      emitter.index(0), emitter.index(shape.getUnits()), shape.partUnits,
      {emitter.i32(0), emitter.i32(0)}, [&](Value first, ValueRange carried) {
        setPart(first);
        loadPart();
        return emitter.choose(
            isRow, carried.getTypes(),
            [&] { return findLargest(emitter.thread(), carried); },
            [&] { return SmallVector<Value>(carried); });
      });
}

void Sm90Repack::storeExcess(Value row, ValueRange largest) {
  I32 excess = (word(largest[0]) >> digits) + -format.getLargestExponent();
  excess = max(excess, word(format.getLeastExcess()));
  emitter.store(excess, excessAddress(row), kWordBytes);
  storeRowScale(row, excess, largest[1]);
}

Value Sm90Repack::loadFactor(Value sharedRow) {
  if (!format.matrixGroup) {
    SmallVector<Value> indices = getIndices(getScaleRow(sharedRow));
    indices.push_back(emitter.index(0));
    return emitter.loadF32(emitter.operand(op.getScale()), indices);
  }
  if (!op.getGlobalScale())
    return {};
  // Gate and up are separate halves.
  bool hasTwo = moe::getNumSecondScales(op.getQuant(), shape.rows,
                                        op.getLayoutAttr()) == 2;
  return emitter.loadF32(
      emitter.operand(op.getGlobalScale()),
      getIndices(hasTwo ? emitter.divide(sharedRow, Fragments::kRunRows)
                        : emitter.i32(0)));
}

void Sm90Repack::storeRowScale(Value sharedRow, Value excess, Value largest) {
  // 2^excess, infinite from 2^128 on.
  I32 power = min(word(excess) + kBias, 2 * kBias + 1) << kSingleDigits;
  constexpr int64_t notANumber = 0x7FC00000, infinite = 0x7F800000;
  auto check = [&](I32 bits, int64_t most, I32 result) {
    return select(bits > most, word(notANumber), result);
  };
  Value scale = toSingle(power);
  Value factor = loadFactor(sharedRow);
  if (factor)
    scale = arith::MulFOp::create(b, scale, factor);
  // Finite scales stay finite, because they may belong to zeros.
  double most = std::numeric_limits<float>::max();
  scale = arith::MaximumFOp::create(
      b, arith::MinimumFOp::create(b, scale, emitter.f32(most)),
      emitter.f32(-most));
  I32 bits = check(word(largest), (kNoNumber << digits) - 1, toBits(scale));
  if (factor)
    bits = check(toBits(factor) & 0x7FFFFFFF, infinite - 1, bits);
  emitter.storeF32(toSingle(bits), emitter.operand(op.getRowScale()),
                   getIndices(getMatrixRow(sharedRow)));
}

void Sm90Repack::storeScales() {
  int64_t count = Fragments::kQuadRows * format.getGroups();
  int64_t quadBytes = format.getQuadBytes();
  for (int64_t run = 0; run < kRuns; ++run) {
    emitter.forThreads(
        emitter.mul(firstUnit, Fragments::kQuads),
        emitter.mul(endUnit, Fragments::kQuads), [&](Value index) {
          Value at = toI32(index);
          Value unit = emitter.divide(at, Fragments::kQuads);
          Value inUnit = emitter.remainder(at, Fragments::kQuads);
          Value row =
              addI32(emitter.scale(emitter.divide(inUnit, 8), 16, run * 32),
                     emitter.remainder(inUnit, 8));
          SmallVector<I32> words(quadBytes / kWordBytes, word(0));
          auto put = [&](int64_t byte, I32 kept) {
            I32 &to = words[byte / kWordBytes];
            int64_t distance = byte % kWordBytes * 8;
            to = to | (distance ? kept << distance : kept);
          };
          for (int64_t i = 0; i < count; ++i) {
            int64_t unitRow = i % Fragments::kQuadRows * 8;
            Value from = getSharedRow(emitter.scale(row, 1, unitRow));
            Value element =
                emitter.scale(unit, Fragments::kDepth,
                              i / Fragments::kQuadRows * format.group);
            put(i * format.getScaleBytes(),
                getKeptScale(from, element, unitRow));
            int64_t bytes = format.getZeroPointBytes();
            int64_t zeroPoints = count * format.getScaleBytes(),
                    rests = zeroPoints + count * bytes;
            if (format.hasMinima) {
              auto [zeroPoint, rest] = getKeptMinimum(from, element, unitRow);
              put(zeroPoints + i * bytes, zeroPoint);
              put(rests + i * format.getRestBytes(), rest);
            } else if (bytes) {
              put(zeroPoints + i * bytes,
                  getKeptZeroPoint(from, element, unitRow));
            }
          }
          for (auto [i, kept] : llvm::enumerate(words))
            emitter.store(kept,
                          getAddress(op.getPackedScale(), run,
                                     emitter.add(emitter.mul(index, quadBytes),
                                                 int64_t(i) * kWordBytes)),
                          kWordBytes);
        });
  }
}

void Sm90Repack::emit() {
  Value blocks = emitter.index(shape.rows / Fragments::kRows);
  matrix = arith::DivUIOp::create(b, emitter.cta(), blocks);
  block = toI32(arith::RemUIOp::create(b, emitter.cta(), blocks));
  Value isRow = emitter.isLess(emitter.thread(), emitter.i32(Fragments::kRows));
  SmallVector<Value> largest = findLargest(isRow);
  emitter.ifThen(isRow, [&] { storeExcess(emitter.thread(), largest); });
  emitter.barrier();
  emitter.forLoop(emitter.index(0), emitter.index(shape.getUnits()),
                  shape.partUnits, [&](Value first) {
                    setPart(first);
                    // A single part is still in shared memory.
                    if (shape.partUnits < shape.getUnits())
                      loadPart();
                    storeCodes();
                    storeScales();
                  });
}

LogicalResult moec::emitSm90Repack(Operation *phase, KernelBody height) {
  AsyncEmitter emitter(height.func, height.kernel, height.threads);
  Sm90Repack(cast<tile::RepackOp>(phase), emitter).emit();
  return success();
}
