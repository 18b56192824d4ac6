//===- TensorCores.cpp - gpu.gemv with tensor cores -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorCores.h"

using namespace mlir;
using namespace moec;

/// Lanes that share a row, and accumulators per lane of an instruction's tile.
static constexpr int64_t kRowLanes = 4, kTileSums = 4;
static constexpr int64_t kChunkWords = anygpu::Gemv::kChunkBytes / 4;

void GemvTensor::findAddresses(Index firstRow, Index lastRow,
                               Index firstColumn) {
  I32 inTile = emitter.lane() % kRowLanes * shape.getChunkElements();
  Index sizeK =
      emitter.toIndex(emitter.warp() * anygpu::Gemv::kTensorK + inTile);
  Index side = emitter.toIndex(emitter.lane() / kRowLanes);
  auto add = [&](Value memref, Index first, Index last, int64_t count) {
    for (int64_t i = 0; i < count; i += kSide) {
      Index row = first + i + side;
      addresses.push_back(emitter.address(memref, {min(row, last), sizeK}));
    }
  };
  add(input, firstRow, lastRow, shape.m);
  add(weight, firstColumn, emitter.index(shape.columns - 1), shape.n);
}

GemvTensor::Chunks GemvTensor::load(Index tile, int64_t count) {
  int64_t tileBytes =
      anygpu::Gemv::kTensorK * shape.elementBytes * shape.getWarps();
  Chunks chunks;
  for (int64_t i = 0; i < count; ++i) {
    I64 bytes = emitter.toI64((tile + i) * tileBytes);
    for (Value address : addresses)
      chunks.push_back(
          emitter.loadWords(emitter.advance(address, bytes), kChunkWords));
  }
  return chunks;
}

void GemvTensor::multiplyTile(ArrayRef<I32> chunks, Sums &sums) {
  Type element = getElementType(weight);
  auto word = [&](int64_t chunk, int64_t i) {
    return chunks[chunk].element(i);
  };
  int64_t rows = shape.m / kSide, columns = shape.n / kSide;
  for (int64_t half = 0; half < kChunkWords; half += 2)
    for (int64_t row = 0; row < rows; row += 2) {
      Value a[] = {word(row, half), word(row + 1, half), word(row, half + 1),
                   word(row + 1, half + 1)};
      for (int64_t column = 0; column < columns; ++column) {
        Value w[] = {word(rows + column, half), word(rows + column, half + 1)};
        auto tile = MutableArrayRef<F32>(sums).slice(
            (row / 2 * columns + column) * kTileSums, kTileSums);
        SmallVector<Value> old(tile.begin(), tile.end());
        for (auto [sum, next] :
             llvm::zip(tile, emitter.multiply(element, a, w, old)))
          sum = {b, next};
      }
    }
}

void GemvTensor::multiply(ArrayRef<I32> chunks, Sums &sums) {
  for (; !chunks.empty(); chunks = chunks.drop_front(shape.getChunksPerStep()))
    multiplyTile(chunks.take_front(shape.getChunksPerStep()), sums);
}

void GemvTensor::multiplyRest(Sums &sums) {
  int64_t rest = shape.getTensorSteps() % shape.getWarps();
  if (rest == 0)
    return;
  auto multiplyOne = [&] {
    Sums next = sums;
    multiply(load(emitter.index(shape.getTensorSteps() / shape.getWarps()), 1),
             next);
    return next;
  };
  sums =
      emitter.choose(emitter.warp() < rest, multiplyOne, [&] { return sums; });
}

/// Prefetches the chunks of the next k tiles before it multiplies the current
/// ones.
void GemvTensor::emit(Index firstRow, Index lastRow, Index firstColumn,
                      Value table) {
  findAddresses(firstRow, lastRow, firstColumn);
  Sums sums(shape.m * shape.n / kWarp, emitter.f32(0.0));
  int64_t tiles = shape.getTensorSteps() / shape.getWarps();
  int64_t atOnce = shape.getStepsAtOnce();
  int64_t whole = tiles - tiles % atOnce;
  if (whole) {
    using State = std::tuple<Sums, Chunks>;
    State first(sums, load(emitter.index(0), atOnce));
    auto [next, chunks] =
        emitter.loop(emitter.index(atOnce), emitter.index(whole), atOnce, first,
                     [&](Index tile, State state) -> State {
                       auto &[sums, chunks] = state;
                       Chunks nextChunks = load(tile, atOnce);
                       multiply(chunks, sums);
                       return {sums, nextChunks};
                     });
    sums = next;
    multiply(chunks, sums);
  }
  if (tiles > whole)
    multiply(load(emitter.index(whole), tiles - whole), sums);
  multiplyRest(sums);
  store(sums, table);
}

void GemvTensor::store(ArrayRef<F32> sums, Value table) {
  int64_t columns = shape.n / kSide;
  I32 row = emitter.lane() / kRowLanes;
  I32 column = emitter.lane() % kRowLanes * 2;
  I32 first = emitter.warp() * shape.getWarpSums() +
              (row * shape.getSumStride() + column);
  for (int64_t i = 0, number = sums.size(); i < number; i += 2) {
    int64_t tile = i / kTileSums, lower = i % kTileSums ? kSide : 0;
    int64_t at = (tile / columns * 2 * kSide + lower) * shape.getSumStride() +
                 tile % columns * kSide;
    emitter.storeVector(emitter.makeVector(sums.slice(i, 2)), table,
                        emitter.toIndex(first) + at);
  }
}
