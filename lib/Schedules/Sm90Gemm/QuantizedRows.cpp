//===- QuantizedRows.cpp - rows quantized on their way ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Rows wait in shared memory, not in registers, until they are quantized: many
// k tiles are in flight, and the threads of a CTA with reduced registers have
// few. Since a lane reads only what it has copied, it waits for no other one.

#include "QuantizedRows.h"

using namespace mlir;
using namespace moec;

/// Elements of a chunk of quantized values, and of a vector of raw ones.
static constexpr int64_t kChunkElements = sm90::kChunkBytes,
                         kVector = sm90::kChunkBytes * 8 / sm90::kRawBits,
                         kRawChunkBytes = kChunkElements * sm90::kRawBits / 8;

Sm90QuantizedRows::Sm90QuantizedRows(Sm90Gemm &gemm)
    : gemm(gemm), emitter(gemm.emitter), shape(gemm.shape), scales(gemm),
      quantizer(gemm.b, getElementType(emitter.operand(gemm.op.getInput())),
                gemm.op.getInputQuantAttr(), /*hasInstructions=*/true),
      input(emitter.operand(gemm.op.getInput())) {
  constexpr int64_t rowChunks = kWarp / kRowsAtOnce;
  ownRow = emitter.lane() / rowChunks;
  ownChunk = emitter.lane() % rowChunks;
  if (Value scale = emitter.operand(gemm.op.getInputScale()))
    given = quantizer.takeApart(emitter.loadF32(scale, {emitter.index(0)}));
}

Value Sm90QuantizedRows::getRaw(I32 stage) {
  int64_t offset = gemm.getInputOffset() +
                   shape.shared().getSwizzledBytes(shape.tile().getMaxBlockM());
  Value begin = gemm.pipeline.stageAddress(stage, offset);
  return emitter.advance(begin, ownRow * shape.shared().getRawRowBytes() +
                                    ownChunk * kRawChunkBytes);
}

void Sm90QuantizedRows::forRows(const Sm90Tile &tile,
                                function_ref<void(I32)> body) {
  // All lanes of a warp take part in the shuffles of a row.
  I32 end = tile.rows + (kRowsAtOnce - 1);
  emitter.loop(emitter.i32(0), end / kRowsAtOnce, 1,
               [&](I32 i) { body(i * kRowsAtOnce); });
}

void Sm90QuantizedRows::copy(const Sm90Tile &tile, I32 position, I32 step,
                             I32 stage) {
  Value raw = getRaw(stage);
  I32 first = step * shape.tile().blockK + ownChunk * kChunkElements;
  forRows(tile, [&](I32 firstRow) {
    I32 row = firstRow + ownRow;
    I32 from = emitter.getFromLane(position, row);
    emitter.ifThen(row < tile.rows, [&] {
      Index at = emitter.toIndex(from);
      Value to =
          emitter.advance(raw, firstRow * shape.shared().getRawRowBytes());
      for (int64_t half = 0; half < kChunkElements; half += kVector) {
        I32 column = first + half, bytes;
        if (shape.problem().sizeK % shape.tile().blockK) {
          // Rows are whole chunks, so that a chunk is inside or outside of the
          // row. Zeros past its end do not change the scale.
          Flag isInside = column < shape.problem().sizeK;
          bytes = select(isInside, emitter.i32(sm90::kChunkBytes), 0);
          column = select(isInside, column, 0);
        }
        emitter.copyAsync(emitter.advance(to, half * sm90::kRawBits / 8),
                          emitter.address(input, {at, emitter.toIndex(column)}),
                          bytes);
      }
    });
  });
}

void Sm90QuantizedRows::quantize(const Sm90Tile &tile, I32 stage) {
  forRows(tile,
          [&](I32 firstRow) { quantizeRow(tile, stage, firstRow + ownRow); });
  if (given)
    return;
  // Consumers load the scales of rows past the end too.
  I32 other = emitter.lane();
  emitter.ifThen(tile.rows <= other & other < shape.tile().getMaxBlockM(),
                 [&] { scales.storeRow(stage, other, emitter.f32(0)); });
}

Quantizer::Divisor Sm90QuantizedRows::findDivisor(ArrayRef<F32> values) {
  F32 largest = quantizer.findLargest(values);
  for (int64_t mask = 1; mask < kWarp / kRowsAtOnce; mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  return quantizer.getDivisor(largest);
}

Value Sm90QuantizedRows::encodeByGiven(F32 values) {
  constexpr int64_t perWord = 4;
  SmallVector<I32> words;
  for (int64_t first = 0; first < kVector; first += perWord) {
    SmallVector<F32> quotients;
    for (int64_t i = 0; i < perWord; ++i)
      quotients.push_back(
          quantizer.divideBy(values.element(first + i), *given));
    words.push_back(quantizer.round(quotients));
  }
  return emitter.makeVector<I32>(words);
}

void Sm90QuantizedRows::quantizeRow(const Sm90Tile &tile, I32 stage, I32 row) {
  ImplicitLocOpBuilder &b = gemm.b;
  Flag exists = row < tile.rows;
  Value from = emitter.advance(
      getRaw(stage), (row - ownRow) * shape.shared().getRawRowBytes());
  Type element = getElementType(input);
  auto type = VectorType::get(kVector, element);
  auto load = [&](int64_t offset) {
    return emitter.load(type, emitter.advance(from, offset), sm90::kChunkBytes);
  };
  auto [low, high] = emitter.choose(
      exists,
      [&] {
        Value low = load(0);
        return std::tuple(low, load(sm90::kChunkBytes));
      },
      [&] {
        Value zeros = castFloat(b, emitter.splat(0.0, kVector), element);
        return std::tuple(zeros, zeros);
      });
  SmallVector<F32> values;
  for (Value half : {low, high})
    values.push_back({b, castFloat(b, half, b.getF32Type())});
  std::optional<Quantizer::Divisor> divisor;
  if (!given)
    divisor = findDivisor(values);
  SmallVector<Value> quantized;
  for (F32 vector : values)
    quantized.push_back(divisor ? quantizer.encode(vector, *divisor)
                                : encodeByGiven(vector));
  emitter.ifThen(exists, [&] {
    Value rows = gemm.pipeline.stageAddress(stage, gemm.getInputOffset());
    I32 chunk = swizzle(row, ownChunk);
    Value to =
        emitter.advance(rows, row * kSwizzleBytes + chunk * sm90::kChunkBytes);
    for (auto [i, bytes] : llvm::enumerate(quantized))
      emitter.store(bytes, emitter.advance(to, int64_t(i) * kVector), kVector);
    if (divisor)
      emitter.ifThen(ownChunk == 0,
                     [&] { scales.storeRow(stage, row, divisor->scale); });
  });
}
