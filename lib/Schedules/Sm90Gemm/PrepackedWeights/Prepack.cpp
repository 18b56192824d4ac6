//===- Prepack.cpp - the schedule sm90.prepack ------------------*- C++ -*-===//
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

#include "Prepack.h"

#include "Schedules/Interface/Emit.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace moec;
using moe::PrepackedFormat;

/// Bits of an f32 below those of a bf16, and below its exponent; its exponent
/// of 1.0, and of infinity and NaN.
constexpr int64_t kBelow = 16, kSingleDigits = 23, kBias = 127, kNoNumber = 255;

SmallVector<Value> Sm90Prepack::getIndices(I32 row) {
  SmallVector<Value> indices{emitter.toIndex(row)};
  if (cast<MemRefType>(op.getWeight().getType()).getRank() > 2)
    indices.insert(indices.begin(), matrix);
  return indices;
}

Value Sm90Prepack::getAddress(Value memref, int64_t tileHalf, Index byte) {
  moe::WeightLayoutAttr layout = op.getLayoutAttr();
  int64_t first = PrepackedFormat::getHalfRow(0, tileHalf, shape.rows, layout);
  int64_t stride =
      PrepackedFormat::getHalfRow(1, tileHalf, shape.rows, layout) - first;
  SmallVector<Value> indices = getIndices(block * stride + first);
  indices.push_back(byte);
  return emitter.address(emitter.operand(memref), indices);
}

I32 Sm90Prepack::getMatrixRow(I32 sharedRow) {
  moe::WeightLayoutAttr layout = op.getLayoutAttr();
  auto firstRow = [&](int64_t block, int64_t tileHalf) {
    return PrepackedFormat::getHalfRow(block, tileHalf, shape.rows, layout);
  };
  I32 tileHalf = sharedRow / PrepackedFormat::kHalfRows;
  I32 inTileHalf = sharedRow % PrepackedFormat::kHalfRows;
  return block * firstRow(1, 0) + tileHalf * firstRow(0, 1) + inTileHalf;
}

void Sm90Prepack::setPart(Index first) {
  firstPackedTile = first;
  endPackedTile = min(first + shape.partTiles, shape.getPackedTiles());
}

void Sm90Prepack::loadPart() {
  int64_t rowChunks = shape.getPartRowBytes() / kChunkBytes;
  // The previous part has been read.
  emitter.barrier();
  for (int64_t tileHalf = 0; tileHalf < kTileHalves; ++tileHalf) {
    Value to = emitter.advance(shared, tileHalf * PrepackedFormat::kHalfRows *
                                           rowChunks * kChunkBytes);
    emitter.forThreads(
        emitter.index(0), emitter.index(PrepackedFormat::kHalfRows * rowChunks),
        [&](Value index) {
          I32 chunk = emitter.toI32(index);
          Index row = emitter.toIndex(chunk / rowChunks);
          Index inRow = emitter.toIndex(chunk % rowChunks);
          Index byte =
              firstPackedTile * shape.getTileRowBytes() + inRow * kChunkBytes;
          auto copy = [&] {
            Value from = getAddress(op.getWeight(), tileHalf,
                                    row * shape.getWeightRowBytes() + byte);
            Value words = emitter.loadWords(from, kChunkBytes / kWordBytes);
            emitter.store(words, emitter.advance(to, chunk * kChunkBytes),
                          kChunkBytes);
          };
          if (shape.getPackedTiles() % shape.partTiles == 0)
            return copy();
          // The last part has fewer.
          Index end = endPackedTile * shape.getTileRowBytes();
          emitter.ifThen(byte < end, copy);
        });
  }
  emitter.barrier();
}

I32 Sm90Prepack::getOffset(I32 sharedRow, I32 byte) {
  I32 first = emitter.toI32(firstPackedTile) * shape.getTileRowBytes();
  return sharedRow * shape.getPartRowBytes() + (byte - first);
}

I32 Sm90Prepack::loadByte(I32 offset) {
  IntegerValue<int8_t> byte(
      b, emitter.load(b.getI8Type(), emitter.advance(shared, offset), 1));
  return byte.widened();
}

//===----------------------------------------------------------------------===//
// Scales and zero points
//===----------------------------------------------------------------------===//

I32 Sm90Prepack::getScaleRow(I32 sharedRow) {
  I32 row = getMatrixRow(sharedRow);
  int64_t group = moe::getScaleGroup(op.getQuant()).rows;
  if (group == 1)
    return row;
  auto getGroup = [&](I32 row) {
    return group == moe::ScaleGroup::kAll ? emitter.i32(0) : row / group;
  };
  if (!moe::hasHalves(op.getLayoutAttr()))
    return getGroup(row);
  // Halves belong to gate or up, which have rows of scales of their own.
  int64_t half = shape.rows / 2;
  int64_t scaleRows =
      moe::getNumScaleRows(op.getQuant(), shape.rows, op.getLayoutAttr()) / 2;
  I32 tileHalf = sharedRow / PrepackedFormat::kHalfRows;
  I32 inHalf = row - tileHalf * half;
  return tileHalf * scaleRows + getGroup(inHalf);
}

SmallVector<Value> Sm90Prepack::getScaleIndices(I32 sharedRow, I32 element) {
  SmallVector<Value> indices = getIndices(getScaleRow(sharedRow));
  indices.push_back(format.matrixGroup
                        ? emitter.toIndex(element / format.matrixGroup)
                        : emitter.index(0));
  return indices;
}

I32 Sm90Prepack::loadOfElement(Value memref, I32 sharedRow, I32 element) {
  int64_t bits = getElementType(memref).getIntOrFloatBitWidth();
  IntegerValue<int8_t> loaded(
      b, emitter.load(b.getIntegerType(bits),
                      emitter.address(emitter.operand(memref),
                                      getScaleIndices(sharedRow, element)),
                      bits / 8));
  return loaded.widened();
}

GroupScale Sm90Prepack::loadScale(I32 sharedRow, I32 element) {
  if (!format.matrixGroup)
    return {word(kBias << digits), word(0)};
  if (format.scale.isNumber()) {
    F32 scale = emitter.loadF32(emitter.operand(op.getScale()),
                                getScaleIndices(sharedRow, element));
    I32 bits = scale.bits();
    constexpr int64_t magnitude = 0x7FFFFFFF;
    I32 kept = bits & magnitude;
    // All other types stored as f16 have no more digits than it.
    if (format.scale.stored == moe::StoredScale::F16 &&
        getElementType(op.getScale()).isF32())
      kept = kept + select(kept > moe::kMostRounded, word(0),
                           word(1 << (kSingleDigits - digits - 1)));
    kept = kept >> (kSingleDigits - digits);
    I32 high = format.scale.bytes == kWordBytes ? bits : bits >> kBelow;
    return {kept, high & format.scale.getSign()};
  }
  I32 loaded = loadOfElement(op.getScale(), sharedRow, element);
  switch (format.scale.stored) {
  case moe::StoredScale::E8M0:
  case moe::StoredScale::Steps:
    return {loaded << digits, word(0)};
  case moe::StoredScale::BF16:
  case moe::StoredScale::F16:
  case moe::StoredScale::F32:
    break;
  case moe::StoredScale::E5M3: {
    // Exponent and mantissa in f32 position, which are the value times 2^-120.
    constexpr int64_t distance = 20, signDistance = 8, notANumber = 0x7F;
    I32 magnitude = loaded & notANumber;
    F32 number = F32::fromBits(magnitude << distance) * 0x1p120;
    I32 bits = select(magnitude == notANumber, word(kNoNumber << digits),
                      number.bits() >> kBelow);
    constexpr int64_t ofBF16 = 0x8000;
    return {bits, (loaded << signDistance) & ofBF16};
  }
  }
  llvm_unreachable("all scales are listed");
}

I32 Sm90Prepack::loadZeroPoint(I32 sharedRow, I32 element) {
  if (!format.hasZeroPoints || format.hasMinima)
    return word(moe::getImpliedZeroPoint(op.getQuant()));
  return loadOfElement(op.getZeroPoint(), sharedRow, element);
}

I32 Sm90Prepack::gather(I32 sharedRow, I32 element,
                        function_ref<I32(I32)> change) {
  int64_t groupBytes = format.group * shape.storageBits / 8,
          loadBytes = std::min(groupBytes, kChunkBytes);
  I32 first = getOffset(sharedRow, element / (8 / shape.storageBits));
  I32 all = word(0);
  for (int64_t byte = 0; byte < groupBytes; byte += loadBytes) {
    Value values =
        emitter.load(VectorType::get(loadBytes / kWordBytes, b.getI32Type()),
                     emitter.advance(shared, first + byte), loadBytes);
    for (I32 word : emitter.elements<I32>(values))
      all = all | change(word);
  }
  return all;
}

Flag Sm90Prepack::isZero(I32 sharedRow, I32 element) {
  if (format.book && !format.findZero())
    return emitter.flag(false);
  // 1 in every value of a word, and the mask without signs.
  int64_t ones = shape.storageBits == 4 ? 0x11111111 : 0x01010101,
          most = (1 << shape.storageBits) - 1, magnitude = most / 2;
  I32 zeroPoint = format.book ? word(*format.findZero())
                              : loadZeroPoint(sharedRow, element);
  I32 zeros = zeroPoint * ones;
  I32 differ = gather(sharedRow, element, [&](I32 values) {
    // Zeros of floats have a sign.
    if (!format.values.isInteger() && !format.book)
      return values & magnitude * ones;
    return values ^ zeros;
  });
  // No value equals a zero point above the range.
  if (format.hasZeroPoints && shape.storageBits < 8)
    differ = select(zeroPoint > most, word(1), differ);
  return differ == 0;
}

Flag Sm90Prepack::hasNaN(I32 sharedRow, I32 element) {
  // All bits except the sign: adding one to each yields a carry.
  constexpr int64_t ones = 0x01010101, magnitude = 0x7F7F7F7F;
  constexpr int64_t signs = 0x80808080;
  I32 carries = gather(sharedRow, element,
                       [&](I32 values) { return (values & magnitude) + ones; });
  return (carries & signs) != 0;
}

I32 Sm90Prepack::getKeptScale(I32 sharedRow, I32 element, int64_t tileRow) {
  GroupScale scale = loadScale(sharedRow, element);
  I32 excess = loadExcess(sharedRow);
  I32 bits = scale.bits + (format.values.getExponent(tileRow) << digits);
  bits = bits - (excess << digits);
  int64_t least = format.getLeastKept(tileRow) << digits;
  bits = select(bits > least - 1, bits, word(0));
  // NaN is expressed by the row's own factor.
  bits = min(bits, format.scale.getLargestKept());
  if (!format.scale.isPower())
    bits = select(scale.bits > (1 << digits) - 1, bits, 0);
  if (format.scale.isE5M3()) {
    constexpr int64_t missing = 4;
    I32 fromLeast = bits + -(format.scale.bias << digits);
    return max(fromLeast, word(0)) >> missing;
  }
  switch (format.scale.stored) {
  case moe::StoredScale::E8M0:
    return bits >> digits;
  case moe::StoredScale::E5M3:
    break;
  case moe::StoredScale::BF16:
    return bits | scale.sign;
  case moe::StoredScale::F32:
    return (bits << (kSingleDigits - digits)) | scale.sign;
  case moe::StoredScale::F16: {
    I32 rebiased = bits + -(format.scale.bias << digits);
    return max(rebiased, word(0)) | scale.sign;
  }
  case moe::StoredScale::Steps: {
    constexpr int64_t log2StepBits = 3;
    I32 step = (bits >> digits) + -moe::kLeastStep;
    return max(step, word(0)) << log2StepBits;
  }
  }
  llvm_unreachable("all scales are listed");
}

I32 Sm90Prepack::getKeptZeroPoint(I32 sharedRow, I32 element, int64_t tileRow) {
  F32 zeroPoint(b, arith::UIToFPOp::create(b, b.getF32Type(),
                                           loadZeroPoint(sharedRow, element)));
  return keepZeroPoint(zeroPoint, tileRow);
}

I32 Sm90Prepack::keepZeroPoint(F32 number, int64_t tileRow) {
  double power = std::ldexp(1.0, -int(format.values.getExponent(tileRow)));
  number = number * power;
  if (format.values.decoded == moe::DecodedType::BF16)
    return number.bits() >> kBelow;
  return toBits(castFloat(b, number, b.getF16Type())).widened();
}

std::pair<F32, F32> Sm90Prepack::splitMinimum(I32 sharedRow, I32 element) {
  SmallVector<Value> indices = getScaleIndices(sharedRow, element);
  F32 scale = emitter.loadF32(emitter.operand(op.getScale()), indices);
  F32 minimum = emitter.loadF32(emitter.operand(op.getZeroPoint()), indices);
  auto zero = double(format.values.zeroCode),
       most = double(format.values.getLargest()) - zero;
  // For NaN, as for 0 / 0, the minimum value.
  Value rounded = math::RoundEvenOp::create(b, minimum / scale);
  rounded = arith::MaxNumFOp::create(b, rounded, emitter.f32(-zero));
  F32 whole(b, arith::MinNumFOp::create(b, rounded, emitter.f32(most)));
  F32 negative = -minimum;
  F32 rest = fma(whole, scale, negative);
  Flag areZeros = isZero(sharedRow, element);
  whole = select(areZeros, emitter.f32(0), whole);
  rest = select(areZeros, negative, rest);
  return {whole, rest};
}

std::pair<I32, I32> Sm90Prepack::getKeptMinimum(I32 sharedRow, I32 element,
                                                int64_t tileRow) {
  auto [whole, rest] = splitMinimum(sharedRow, element);
  bool hasF16 = format.values.decoded == moe::DecodedType::F16;
  // 2^-r: as two normal powers of two if it is not normal itself.
  I32 excess = loadExcess(sharedRow);
  SmallVector<I32> parts{excess};
  if (!hasF16) {
    I32 half = excess >> 1;
    parts = {half, excess - half};
  }
  for (I32 part : parts)
    rest = rest * F32::fromBits((word(kBias) - part) << kSingleDigits);
  Type type = hasF16 ? Type(b.getF16Type()) : Type(b.getBF16Type());
  IntegerValue<int16_t> keptRest = toBits(castFloat(b, rest, type));
  auto zero = double(format.values.zeroCode);
  return {keepZeroPoint(whole + zero, tileRow), keptRest.widened()};
}

Sm90Prepack::Largest Sm90Prepack::findLargest(I32 row, Largest before) {
  int64_t groups = format.getGroups();
  return emitter.loop(
      firstPackedTile * groups, endPackedTile * groups, 1, before,
      [&](Index i, Largest largest) {
        I32 element = emitter.toI32(i) * format.group;
        I32 scale = loadScale(row, element).bits;
        I32 counted = select(isZero(row, element), word(0), scale);
        if (format.areRestsBounded()) {
          constexpr int64_t magnitude = 0x7FFFFFFF;
          I32 rest = splitMinimum(row, element).second.bits() & magnitude;
          counted =
              max(counted, ((rest >> kSingleDigits) + -format.getRestHeadroom())
                               << digits);
        }
        if (format.values.stored == moe::StoredValue::E4M3)
          scale =
              select(hasNaN(row, element), word(kNoNumber << digits), scale);
        return Largest{max(largest.used, counted), max(largest.all, scale)};
      });
}

Sm90Prepack::Largest Sm90Prepack::findLargest(Flag isRow) {
  Largest none{word(0), word(0)};
  return emitter.loop(
      emitter.index(0), emitter.index(shape.getPackedTiles()), shape.partTiles,
      none, [&](Index first, Largest largest) {
        setPart(first);
        loadPart();
        return emitter.choose(
            isRow, [&] { return findLargest(emitter.thread(), largest); },
            [&] { return largest; });
      });
}

void Sm90Prepack::storeExcess(I32 row, Largest largest) {
  I32 excess = (largest.used >> digits) + -format.getLargestExponent();
  excess = max(excess, word(format.scale.leastExcess));
  emitter.store(excess, excessAddress(row), kWordBytes);
  storeRowScale(row, excess, largest.all);
}

F32 Sm90Prepack::loadFactor(I32 sharedRow) {
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
  return emitter.loadF32(emitter.operand(op.getGlobalScale()),
                         getIndices(hasTwo
                                        ? sharedRow / PrepackedFormat::kHalfRows
                                        : emitter.i32(0)));
}

void Sm90Prepack::storeRowScale(I32 sharedRow, I32 excess, I32 largest) {
  // 2^excess, infinite from 2^128 on.
  I32 power = min(excess + kBias, 2 * kBias + 1) << kSingleDigits;
  constexpr int64_t notANumber = 0x7FC00000, infinite = 0x7F800000;
  auto check = [&](I32 bits, int64_t most, I32 result) {
    return select(bits > most, word(notANumber), result);
  };
  F32 scale = F32::fromBits(power);
  F32 factor = loadFactor(sharedRow);
  if (factor)
    scale = scale * factor;
  // Finite scales stay finite, because they may belong to zeros.
  double most = std::numeric_limits<float>::max();
  Value atMost = arith::MinimumFOp::create(b, scale, emitter.f32(most));
  scale = {b, arith::MaximumFOp::create(b, atMost, emitter.f32(-most))};
  I32 bits = check(largest, (kNoNumber << digits) - 1, scale.bits());
  if (factor)
    bits = check(factor.bits() & 0x7FFFFFFF, infinite - 1, bits);
  emitter.storeF32(F32::fromBits(bits), emitter.operand(op.getRowScale()),
                   getIndices(getMatrixRow(sharedRow)));
}

void Sm90Prepack::storeScales() {
  int64_t count = PrepackedFormat::kQuadRows * format.getGroups();
  int64_t quadBytes = format.getQuadBytes();
  Index firstCopy = firstPackedTile, endCopy = endPackedTile;
  if (format.scaleTiles > 1) {
    firstCopy = firstPackedTile / format.scaleTiles;
    endCopy = endPackedTile / format.scaleTiles;
  }
  for (int64_t tileHalf = 0; tileHalf < kTileHalves; ++tileHalf) {
    emitter.forThreads(
        firstCopy * PrepackedFormat::kQuads, endCopy * PrepackedFormat::kQuads,
        [&](Value index) {
          I32 at = emitter.toI32(index);
          I32 copy = at / PrepackedFormat::kQuads,
              inPackedTile = at % PrepackedFormat::kQuads;
          I32 row = inPackedTile / 8 * 16 + tileHalf * 32 + inPackedTile % 8;
          SmallVector<I32> words(quadBytes / kWordBytes, word(0));
          auto put = [&](int64_t byte, I32 kept) {
            I32 &to = words[byte / kWordBytes];
            int64_t distance = byte % kWordBytes * 8;
            to = to | (distance ? kept << distance : kept);
          };
          for (int64_t i = 0; i < count; ++i) {
            int64_t tileRow = i % PrepackedFormat::kQuadRows * 8;
            I32 from = getSharedRow(row + tileRow);
            I32 element = copy * (PrepackedFormat::kSizeK * format.scaleTiles) +
                          i / PrepackedFormat::kQuadRows * format.group;
            put(i * format.scale.bytes, getKeptScale(from, element, tileRow));
            int64_t bytes = format.getZeroPointBytes();
            int64_t zeroPoints = count * format.scale.bytes,
                    rests = zeroPoints + count * bytes;
            if (format.hasMinima) {
              auto [zeroPoint, rest] = getKeptMinimum(from, element, tileRow);
              put(zeroPoints + i * bytes, zeroPoint);
              put(rests + i * format.getRestBytes(), rest);
            } else if (bytes) {
              put(zeroPoints + i * bytes,
                  getKeptZeroPoint(from, element, tileRow));
            }
          }
          for (auto [i, kept] : llvm::enumerate(words))
            emitter.store(kept,
                          getAddress(op.getPackedScale(), tileHalf,
                                     Index(b, index) * quadBytes +
                                         int64_t(i) * kWordBytes),
                          kWordBytes);
        });
  }
}

void Sm90Prepack::emit() {
  Index blocks = emitter.index(shape.rows / PrepackedFormat::kRows);
  matrix = emitter.cta() / blocks;
  block = emitter.toI32(emitter.cta() % blocks);
  Flag isRow = emitter.thread() < PrepackedFormat::kRows;
  Largest largest = findLargest(isRow);
  emitter.ifThen(isRow, [&] { storeExcess(emitter.thread(), largest); });
  emitter.barrier();
  emitter.loop(emitter.index(0), emitter.index(shape.getPackedTiles()),
               shape.partTiles, [&](Index first) {
                 setPart(first);
                 // A single part is still in shared memory.
                 if (shape.partTiles < shape.getPackedTiles())
                   loadPart();
                 storeValues();
                 storeScales();
               });
}

LogicalResult moec::emitSm90Prepack(Operation *phase, KernelBody body) {
  AsyncEmitter emitter(body.func, body.kernel, body.threads);
  Sm90Prepack(cast<tile::PrepackOp>(phase), emitter).emit();
  return success();
}
