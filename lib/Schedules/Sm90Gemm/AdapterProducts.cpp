//===- AdapterProducts.cpp - k tiles of adapters in sm90.gemm ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// K tiles of the adapters that a tile's rows have, behind those of the input.
// Threads copy them in chunks of 16 bytes to the places that tensor maps give
// input rows and weights, so that consumers multiply them in the same way.

#include "AdapterProducts.h"

#include "KernelBuilder/InlinePtx.h"

using namespace mlir;
using namespace moec;

SmallVector<I32> Sm90AdapterProducts::load(const Sm90Tile &tile, int64_t rows) {
  Value adapters = emitter.operand(gemm.op.getAdapters());
  I32 last = tile.rows + -1;
  SmallVector<I32> loaded;
  for (int64_t first = 0; first < rows; first += kWarp) {
    I32 row = tile.firstRow + min(emitter.lane() + first, last);
    loaded.push_back(
        emitter.loadI32(adapters, {emitter.toIndex(row), emitter.index(0)}));
  }
  return loaded;
}

I32 Sm90AdapterProducts::find(ArrayRef<I32> loaded) {
  I32 found;
  for (I32 own : loaded) {
    I32 bit = select(own < 0, emitter.i32(0), emitter.i32(1) << max(own, 0));
    found = found ? found | bit : bit;
  }
  return emitter.warpOr(found);
}

I32 Sm90AdapterProducts::countTiles(I32 found) {
  int64_t together = tiles.getAdaptersOfTile();
  I32 count = found.popcount();
  if (together > 1)
    return divideUp(count, together);
  return count * tiles.getTilesOfAdapter();
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

I32 Sm90AdapterProducts::readNumber() {
  constexpr int64_t others = kWarpgroup - sm90::kRowThreads;
  return readThread(b) + -others;
}

SmallVector<I32> Sm90AdapterProducts::findRows(const Sm90Tile &tile) {
  Value adapters = emitter.operand(gemm.op.getAdapters());
  int64_t count = llvm::divideCeil(shape.tile().getMaxBlockM(), kRowsAtOnce);
  I32 first = readNumber() / Tiles::kRowChunks, last = tile.rows + -1;
  SmallVector<I32> words;
  for (int64_t i = 0; i < count; ++i) {
    I32 row = tile.firstRow + min(first + i * kRowsAtOnce, last);
    I32 own =
        emitter.loadI32(adapters, {emitter.toIndex(row), emitter.index(0)});
    own = own & kByte;
    if (int64_t byte = i % kBytes)
      words.back() = words.back() | own << 8 * byte;
    else
      words.push_back(own);
  }
  return words;
}

I32 Sm90AdapterProducts::take(I32 &left) {
  constexpr int64_t highest = int64_t(1) << 31;
  I32 slot = readNumber() % Tiles::kWeightChunks / tiles.getChunks();
  I32 own = emitter.i32(kNone);
  for (int64_t i = 0; i < tiles.getAdaptersOfTile(); ++i) {
    I32 lowest = select(left == 0, emitter.i32(kNone),
                        emitter.lowestBit(left | highest));
    own = tiles.getAdaptersOfTile() == 1 ? lowest
                                         : select(slot == i, lowest, own);
    left = left & (left + -1);
  }
  return own;
}

I32 Sm90AdapterProducts::getChunk(I32 number, I32 part) {
  I32 own = number % Tiles::kWeightChunks;
  if (tiles.getAdaptersOfTile() > 1)
    return own % tiles.getChunks();
  return own + part * Tiles::kWeightChunks;
}

Value Sm90AdapterProducts::getPlace(I32 stage, int64_t offset, I32 row,
                                    I32 chunk) {
  return emitter.advance(gemm.pipeline.stageAddress(stage, offset),
                         row * sm90::kStepBytes +
                             swizzle(row, chunk) * sm90::kChunkBytes);
}

void Sm90AdapterProducts::copyRows(const Sm90Tile &tile, ArrayRef<I32> rows,
                                   I32 adapter, I32 part, I32 stage) {
  I32 number = readNumber();
  Value shrunk = emitter.operand(gemm.op.getShrunk());
  I32 first = number / Tiles::kRowChunks, own = number % Tiles::kRowChunks;
  Index column =
      emitter.toIndex(getChunk(number, part) * Tiles::kChunk +
                      own / Tiles::kWeightChunks * tiles.getColumns());
  int64_t count = llvm::divideCeil(shape.tile().getMaxBlockM(), kRowsAtOnce);
  for (int64_t i = 0; i < count; ++i) {
    I32 row = first + i * kRowsAtOnce;
    I32 owner = (rows[i / kBytes] >> 8 * (i % kBytes)) & kByte;
    emitter.ifThen(row < tile.rows, [&] {
      Index position = emitter.toIndex(tile.firstRow + row);
      I32 bytes = select(owner == adapter, emitter.i32(sm90::kChunkBytes), 0);
      emitter.copyAsync(getPlace(stage, gemm.getInputOffset(), row, own),
                        emitter.address(shrunk, {position, column}), bytes);
    });
  }
}

void Sm90AdapterProducts::copyWeights(const Sm90Tile &tile, I32 adapter,
                                      I32 part, I32 stage) {
  I32 number = readNumber();
  Flag exists = adapter != kNone;
  adapter = select(exists, adapter, 0);
  int64_t chunksOfMatrix = tiles.rank / Tiles::kChunk;
  I32 chunk = getChunk(number, part);
  I32 matrix = chunk / chunksOfMatrix;
  SmallVector<Value> indices{
      emitter.toIndex(adapter), emitter.toIndex(tile.group), emitter.index(0),
      emitter.toIndex(chunk % chunksOfMatrix * Tiles::kChunk)};
  ValueRange matrices = gemm.op.getMatrices();
  Value from = emitter.address(emitter.operand(matrices.front()), indices);
  bool isPaired = tiles.matrices == 2;
  if (isPaired)
    from = select(matrix == 0, from,
                  emitter.address(emitter.operand(matrices.back()), indices));
  // In memory, up comes before gate in one of the orders.
  bool isUpFirst = isPaired && gemm.op.getLayoutAttr().getOrder() ==
                                   moe::GateUpOrder::UpGate;
  constexpr int64_t elementBytes = 2;
  int64_t rowBytes = tiles.rank * elementBytes;
  int64_t weightRows = shape.tile().getWeightRows();
  I32 first = number / Tiles::kWeightChunks;
  for (int64_t i = 0; i * kWeightsAtOnce < weightRows; ++i) {
    I32 row = first + i * kWeightsAtOnce, column = row;
    Flag isThere = exists;
    if (isPaired) {
      constexpr int64_t paired = sm90::kPairedRows;
      column = row / (2 * paired) * paired + row % paired;
      I32 own = row / paired % 2;
      isThere = isThere & ((isUpFirst ? 1 - own : own) == matrix);
    }
    column = tile.firstColumn + column;
    if (shape.problem().columns % shape.tile().blockN) {
      isThere = isThere & (column < shape.problem().columns);
      column = min(column, shape.problem().columns - 1);
    }
    auto copy = [&] {
      emitter.copyAsync(
          getPlace(stage, /*offset=*/0, row, number % Tiles::kWeightChunks),
          emitter.advance(from, column.toI64() * rowBytes),
          select(isThere, emitter.i32(sm90::kChunkBytes), 0));
    };
    if ((i + 1) * kWeightsAtOnce <= weightRows)
      copy();
    else
      emitter.ifThen(row < weightRows, copy);
  }
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

void Sm90AdapterProducts::keepFinite(I32 stage) {
  // Added to a pair of 16-bit numbers, carries to the sign of infinities and
  // NaNs alone.
  bool isBF16 = getElementTypeOrSelf(gemm.op.getWeight()).isBF16();
  constexpr int64_t magnitudes = 0x7fff7fff, signs = 0x80008000, half = 0xffff;
  int64_t carry = isBF16 ? 0x00800080 : 0x04000400;
  int64_t greatest = isBF16 ? 0x7f7f7f7f : 0x7bff7bff;
  constexpr int64_t words = sm90::kChunkBytes / 4;
  int64_t threads = shape.tile().getConsumers() * kWarpgroup;
  int64_t rowsAtOnce = threads / Tiles::kWeightChunks;
  I32 own = readThread(b) + -kWarpgroup;
  I32 row = own / Tiles::kWeightChunks, chunk = own % Tiles::kWeightChunks;
  Value first = getPlace(stage, /*offset=*/0, row, chunk);
  auto forChunks = [&](function_ref<void(Value, I32, I32)> body) {
    for (int64_t i = 0; i < shape.tile().getWeightRows(); i += rowsAtOnce) {
      Value place = emitter.advance(first, i * sm90::kStepBytes);
      I32 loaded = emitter.loadWords(place, words);
      body(place, loaded, ((loaded & magnitudes) + carry) & signs);
    }
  };
  I32 any = emitter.i32(0);
  forChunks([&](Value, I32, I32 wrong) {
    for (I32 word : emitter.elements<I32>(wrong))
      any = any | word;
  });
  emitter.ifThen(any != 0, [&] {
    forChunks([&](Value place, I32 loaded, I32 wrong) {
      I32 halves = (wrong >> 15) * half;
      I32 clamped = (loaded & signs) | greatest;
      emitter.store((loaded & ~halves) | (clamped & halves), place,
                    sm90::kChunkBytes);
    });
    emitter.fenceAsync();
  });
  emitter.consumerBarrier();
}
