//===- AdapterProducts.cpp - k tiles of adapters in sm90.gemm ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// K tiles of the adapters that a tile's rows have, behind those of the input.
// Threads copy them in chunks of 16 bytes to the places that tensor maps give
// input rows and weights, so that consumers multiply them in the same way. A
// thread makes its own chunks of weights finite before it publishes them, while
// consumers multiply k tiles before.

#include "AdapterProducts.h"

#include "KernelBuilder/InlinePtx.h"
#include "KernelBuilder/Pair.h"

using namespace mlir;
using namespace moec;

SmallVector<I32> Sm90AdapterProducts::load(const Sm90Tile &tile, int64_t rows) {
  Value adapters = emitter.operand(gemm.op.getAdapters());
  I32 last = max(tile.rows + -1, 0);
  SmallVector<I32> loaded;
  for (int64_t first = 0; first < rows; first += kWarp) {
    I32 row = tile.firstRow + min(emitter.lane() + first, last);
    loaded.push_back(
        emitter.loadI32(adapters, {emitter.toIndex(row), emitter.index(0)}));
  }
  return loaded;
}

SmallVector<I32> Sm90AdapterProducts::loadAwaited(Sm90Gemm &gemm,
                                                  const Sm90Tile &tile) {
  // The warp has awaited rows already if it copies them.
  if (!gemm.awaitsRows() || !gemm.shape.tile().mapRows)
    gemm.waitInRole();
  return Sm90AdapterProducts(gemm).load(tile, gemm.shape.tile().getMaxBlockM());
}

SmallVector<I32> Sm90AdapterProducts::loadNone(Sm90Gemm &gemm) {
  int64_t words = llvm::divideCeil(gemm.shape.tile().getMaxBlockM(), kWarp);
  return SmallVector<I32>(words, gemm.emitter.i32(-1));
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

SmallVector<I32> Sm90AdapterProducts::loadRows(const Sm90Tile &tile) {
  Value adapters = emitter.operand(gemm.op.getAdapters());
  I32 first = readNumber() / Tiles::kChunks, last = max(tile.rows + -1, 0);
  SmallVector<I32> loaded;
  for (int64_t i = 0; i < shape.tile().getMaxBlockM(); i += kRowsAtOnce) {
    I32 row = tile.firstRow + min(first + i, last);
    loaded.push_back(
        emitter.loadI32(adapters, {emitter.toIndex(row), emitter.index(0)}));
  }
  return loaded;
}

SmallVector<I32> Sm90AdapterProducts::packRows(ArrayRef<I32> loaded) {
  SmallVector<I32> words;
  for (auto [i, adapter] : llvm::enumerate(loaded)) {
    I32 own = adapter & kByte;
    if (int64_t byte = int64_t(i) % kBytes)
      words.back() = words.back() | own << 8 * byte;
    else
      words.push_back(own);
  }
  return words;
}

I32 Sm90AdapterProducts::take(I32 &left) {
  constexpr int64_t highest = int64_t(1) << 31;
  int64_t together = tiles.getAdaptersOfTile();
  I32 slot = readNumber() % Tiles::kHalfChunks / tiles.getHalfChunks();
  I32 adapter = emitter.i32(kNone);
  for (int64_t i = 0; i < together; ++i) {
    I32 lowest = select(left == 0, emitter.i32(kNone),
                        emitter.lowestBit(left | highest));
    adapter = together == 1 ? lowest : select(slot == i, lowest, adapter);
    left = left & (left + -1);
  }
  return adapter;
}

I32 Sm90AdapterProducts::getChunk() {
  I32 own = readNumber() % Tiles::kChunks;
  if (tiles.getAdaptersOfTile() == 1)
    return own;
  int64_t inHalf = tiles.getHalfChunks();
  return own / Tiles::kHalfChunks * inHalf + own % inHalf;
}

Sm90AdapterProducts::Own Sm90AdapterProducts::getPart(I32 adapter, I32 part) {
  I32 chunk = getChunk() + part * Tiles::kChunks;
  if (!tiles.hasEmptyChunks())
    return {adapter, chunk};
  Flag isThere = chunk < tiles.getChunks();
  return {select(isThere, adapter, kNone), select(isThere, chunk, 0)};
}

Value Sm90AdapterProducts::getPlace(I32 stage, int64_t offset, I32 row) {
  I32 chunk = readNumber() % Tiles::kChunks;
  return emitter.advance(gemm.pipeline.stageAddress(stage, offset),
                         row * sm90::kStepBytes +
                             swizzle(row, chunk) * sm90::kChunkBytes);
}

I32 Sm90AdapterProducts::getHalf(I32 chunk) {
  if (tiles.matrices == 1)
    return emitter.i32(0);
  // In memory, up comes before gate in one of the orders.
  bool isUpFirst =
      gemm.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate;
  return select(chunk < tiles.getChunksOfMatrix(), emitter.i32(isUpFirst),
                !isUpFirst);
}

I32 Sm90AdapterProducts::getWeightRow(I32 column, I32 half) {
  constexpr int64_t paired = sm90::kPairedRows;
  if (tiles.matrices == 1)
    return column;
  return column / paired * (2 * paired) + half * paired + column % paired;
}

int64_t Sm90AdapterProducts::getColumns() const {
  return shape.tile().getWeightRows() / tiles.matrices;
}

I32 Sm90AdapterProducts::getZeros() {
  return {b, emitter.constant(VectorType::get(kChunkWords, b.getI32Type()),
                              b.getI32IntegerAttr(0))};
}

void Sm90AdapterProducts::forWeights(
    I32 stage, I32 half, function_ref<void(int64_t, Value, Flag)> body) {
  // Swizzled offsets repeat after two groups of rows that are copied at once.
  constexpr int64_t period = 2;
  static_assert(period * kRowsAtOnce % kSwizzleRows == 0,
                "offsets repeat after a whole pattern");
  int64_t columns = getColumns();
  I32 first = readNumber() / Tiles::kChunks;
  Value begin[period];
  for (int64_t i = 0; i < period; ++i)
    begin[i] = getPlace(stage, /*offset=*/0,
                        getWeightRow(first + i * kRowsAtOnce, half));
  for (int64_t column = 0; column < columns; column += kRowsAtOnce) {
    int64_t i = column / kRowsAtOnce;
    int64_t rows = i / period * period * kRowsAtOnce * tiles.matrices;
    body(column, emitter.advance(begin[i % period], rows * sm90::kStepBytes),
         column + kRowsAtOnce > columns ? first < columns - column : Flag());
  }
}

void Sm90AdapterProducts::emitIf(Flag flag, function_ref<void()> body) {
  if (flag.isNull())
    body();
  else
    emitter.ifThen(flag, body);
}

void Sm90AdapterProducts::copyRows(const Sm90Tile &tile, ArrayRef<I32> rows,
                                   Own own, I32 stage) {
  constexpr int64_t period = 2, elementBytes = 2;
  Value shrunk = emitter.operand(gemm.op.getShrunk());
  I32 first = readNumber() / Tiles::kChunks;
  Value from =
      emitter.address(shrunk, {emitter.toIndex(tile.firstRow + first),
                               emitter.toIndex(own.chunk) * Tiles::kChunk});
  Value begin[period];
  for (int64_t i = 0; i < period; ++i)
    begin[i] = getPlace(stage, gemm.getInputOffset(), first + i * kRowsAtOnce);
  int64_t count = llvm::divideCeil(shape.tile().getMaxBlockM(), kRowsAtOnce);
  for (int64_t i = 0; i < count; ++i) {
    I32 owner = (rows[i / kBytes] >> 8 * (i % kBytes)) & kByte;
    emitter.ifThen(first < tile.rows + -i * kRowsAtOnce, [&] {
      I32 bytes =
          select(owner == own.adapter, emitter.i32(sm90::kChunkBytes), 0);
      int64_t before = i / period * period * kRowsAtOnce;
      emitter.copyAsync(
          emitter.advance(begin[i % period], before * sm90::kStepBytes),
          emitter.advance(from, i * kRowsAtOnce * tiles.matrices * tiles.rank *
                                    elementBytes),
          bytes);
    });
  }
}

void Sm90AdapterProducts::copyWeights(const Sm90Tile &tile, Own own,
                                      I32 stage) {
  Flag exists = own.adapter != kNone;
  int64_t columns = shape.problem().columns;
  bool hasTail = columns % shape.tile().blockN;
  I32 first = tile.firstColumn + readNumber() / Tiles::kChunks;
  SmallVector<Value> indices{
      emitter.toIndex(select(exists, own.adapter, 0)),
      emitter.toIndex(tile.group),
      hasTail ? emitter.index(0) : emitter.toIndex(first),
      emitter.toIndex(own.chunk % tiles.getChunksOfMatrix() * Tiles::kChunk)};
  ValueRange matrices = gemm.op.getMatrices();
  Value from = emitter.address(emitter.operand(matrices.front()), indices);
  I32 half = getHalf(own.chunk);
  if (tiles.matrices == 2)
    from = select(own.chunk < tiles.getChunksOfMatrix(), from,
                  emitter.address(emitter.operand(matrices.back()), indices));
  if (tiles.matrices == 2)
    clearOther(stage, half);
  I32 bytes = select(exists, emitter.i32(sm90::kChunkBytes), 0);
  constexpr int64_t elementBytes = 2;
  int64_t rowBytes = tiles.rank * elementBytes;
  forWeights(stage, half, [&](int64_t column, Value place, Flag isThere) {
    emitIf(isThere, [&] {
      if (!hasTail) {
        emitter.copyAsync(place, emitter.advance(from, column * rowBytes),
                          bytes);
        return;
      }
      I32 inside = min(first + column, columns - 1);
      emitter.copyAsync(place, emitter.advance(from, inside.toI64() * rowBytes),
                        select(first < columns - column, bytes, 0));
    });
  });
}

void Sm90AdapterProducts::clearOther(I32 stage, I32 half) {
  // From a weight row to the one of the other matrix.
  I32 aside = (1 - 2 * half) * (sm90::kPairedRows * sm90::kStepBytes);
  forWeights(stage, half, [&](int64_t, Value place, Flag isThere) {
    emitIf(isThere, [&] {
      emitter.store(getZeros(), emitter.advance(place, aside),
                    sm90::kChunkBytes);
    });
  });
}

//===----------------------------------------------------------------------===//
// Finite weights
//===----------------------------------------------------------------------===//

I32 Sm90AdapterProducts::addNonfinite(I32 sums, I32 words) {
  Type element = getElementTypeOrSelf(gemm.op.getWeight());
  SmallVector<I32> next;
  for (auto [sum, word] :
       llvm::zip(emitter.elements<I32>(sums), emitter.elements<I32>(words))) {
    Pair pair = Pair::fromBits(word, element);
    next.push_back(
        fma(pair, pair.like(0.0), Pair::fromBits(sum, element)).bits());
  }
  return emitter.makeVector<I32>(next);
}

void Sm90AdapterProducts::clamp(I32 stage, I32 half) {
  // Added to a pair of 16-bit numbers, carries to the sign of infinities and
  // NaNs alone.
  bool isBF16 = getElementTypeOrSelf(gemm.op.getWeight()).isBF16();
  constexpr int64_t magnitudes = 0x7fff7fff, signs = 0x80008000, ones = 0xffff;
  int64_t carry = isBF16 ? 0x00800080 : 0x04000400;
  int64_t greatest = isBF16 ? 0x7f7f7f7f : 0x7bff7bff;
  I32 first = readNumber() / Tiles::kChunks;
  emitter.loop(first, emitter.i32(getColumns()), emitter.i32(kRowsAtOnce),
               [&](I32 column) {
                 Value place =
                     getPlace(stage, /*offset=*/0, getWeightRow(column, half));
                 I32 loaded = emitter.loadWords(place, kChunkWords);
                 I32 wrong = ((loaded & magnitudes) + carry) & signs;
                 I32 halves = (wrong >> 15) * ones;
                 I32 clamped = (loaded & signs) | greatest;
                 emitter.store((loaded & ~halves) | (clamped & halves), place,
                               sm90::kChunkBytes);
               });
}

void Sm90AdapterProducts::keepFinite(I32 stage) {
  // Chunks of several k tiles may be of either matrix.
  bool hasBoth = tiles.matrices == 2 && tiles.getTilesOfAdapter() > 1;
  auto forHalves = [&](I32 sums, function_ref<I32(I32, I32)> body) {
    return hasBoth ? emitter.loop(emitter.i32(0), emitter.i32(2), 1, sums, body)
                   : body(getHalf(getChunk()), sums);
  };
  I32 sums = forHalves(getZeros(), [&](I32 half, I32 sums) {
    Value first;
    forWeights(stage, half, [&](int64_t, Value place, Flag isThere) {
      if (!first)
        first = place;
      if (!isThere.isNull())
        place = select(isThere, place, first);
      sums = addNonfinite(sums, emitter.loadWords(place, kChunkWords));
    });
    return sums;
  });
  I32 any = emitter.i32(0);
  for (I32 sum : emitter.elements<I32>(sums))
    any = any | sum;
  emitter.ifThen(any != 0, [&] {
    forHalves(any, [&](I32 half, I32 any) {
      clamp(stage, half);
      return any;
    });
  });
}
