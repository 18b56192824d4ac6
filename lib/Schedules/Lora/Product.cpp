//===- Product.cpp - products that the warps of a CTA share -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Product.h"

#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

/// 8 elements of a row as four words; zeros past its end.
Value SharedProduct::loadChunk(Value row, I32 k) {
  constexpr int64_t bytes = 16, elementBytes = 2;
  auto type = VectorType::get(bytes / 4, b.getI32Type());
  if (width % (kBlock * warps) == 0)
    return emitter.load(type, emitter.advance(row, k * elementBytes), bytes);
  I32 safe = min(k, width - kChunk);
  Value loaded =
      emitter.load(type, emitter.advance(row, safe * elementBytes), bytes);
  Value zeros = emitter.constant(type, b.getI32IntegerAttr(0));
  return select(k < width, loaded, zeros);
}

/// Adds `count` of the warp's blocks from `block` on; all loads come first.
SmallVector<Value> SharedProduct::multiplyBlocks(SmallVector<Value> sums,
                                                 ArrayRef<Value> rows,
                                                 ArrayRef<Value> columns,
                                                 I32 block, int64_t count) {
  constexpr int64_t words = 4;
  SmallVector<SmallVector<SmallVector<Value>>> loaded;
  for (int64_t i = 0; i < count; ++i) {
    I32 k =
        (block + i * warps) * kBlock + emitter.lane() % kLanesOfRow * kChunk;
    auto &chunks = loaded.emplace_back();
    for (ArrayRef<Value> addresses : {rows, columns})
      for (Value address : addresses)
        chunks.push_back(emitter.elements<Value>(loadChunk(address, k)));
  }
  // The order of K is that of the words that a lane holds.
  for (auto &chunks : loaded)
    for (int64_t word = 0; word < words; word += 2)
      for (size_t tile = 0; tile < columns.size(); ++tile) {
        SmallVector<Value> own(ArrayRef(sums).slice(4 * tile, 4));
        SmallVector<Value> &w = chunks[2 + tile];
        SmallVector<Value> made =
            emitter.multiply(element,
                             {chunks[0][word], chunks[1][word],
                              chunks[0][word + 1], chunks[1][word + 1]},
                             {w[word], w[word + 1]}, own);
        llvm::copy(made, sums.begin() + 4 * tile);
      }
  return sums;
}

SmallVector<Value> SharedProduct::multiply(ArrayRef<Value> rows,
                                           ArrayRef<Value> columns) {
  constexpr int64_t atOnce = 4;
  SmallVector<Value> sums(4 * columns.size(), emitter.f32(0.0));
  // Each warp has whole rounds; blocks past the end of a row are zeros.
  int64_t rounds = llvm::divideCeil(width, kBlock * warps);
  int64_t last = rounds % atOnce;
  if (rounds > last)
    sums = emitter.loop(
        emitter.warp(), emitter.i32((rounds - last) * warps), atOnce * warps,
        sums, [&](I32 block, SmallVector<Value> sums) {
          return multiplyBlocks(std::move(sums), rows, columns, block, atOnce);
        });
  if (last)
    sums = multiplyBlocks(sums, rows, columns,
                          emitter.warp() + (rounds - last) * warps, last);
  return sums;
}

void SharedProduct::exchange(ArrayRef<Value> sums) {
  Index at =
      emitter.toIndex((emitter.warp() * (tiles * kWarp) + emitter.lane()) * 4);
  // All threads have read the sums before.
  emitter.barrier();
  for (auto [j, sum] : llvm::enumerate(sums))
    emitter.storeF32(sum, table,
                     at + int64_t(j) / 4 * kTileSize + int64_t(j) % 4);
  emitter.barrier();
}

F32 SharedProduct::get(I32 row, I32 column) {
  I32 lane = row % 8 * 4 + column % kChunk / 2;
  I32 at = column / kChunk * kTileSize + lane * 4 + row / 8 * 2 + column % 2;
  Index place = emitter.toIndex(at);
  F32 sum = emitter.loadF32(table, place);
  for (int64_t warp = 1; warp < warps; ++warp)
    sum = sum + emitter.loadF32(table, place + warp * tiles * kTileSize);
  return sum;
}
