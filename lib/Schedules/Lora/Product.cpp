//===- Product.cpp - products that the warps of a CTA share -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Product.h"

#include "KernelBuilder/InlinePtx.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

void SharedProduct::limitRegisters(const KernelBody &body) {
  tile::KernelOp kernel = body.kernel;
  body.func->setAttr(
      kFormAttr,
      tile::KernelFormAttr::get(kernel.getContext(), kernel.getIndependent(),
                                kernel.getAhead(), kernel.getResident(),
                                kernel.getLate(), ptxas::kAdapterRegisters,
                                /*cluster=*/0));
}

/// The first element of a row that a lane loads.
I32 SharedProduct::firstOfLane() {
  return emitter.lane() % kLanesOfRow * kChunk;
}

/// 8 elements of a row as four words, `from + offset` behind the lane's first
/// one; zeros past the end of the row.
Value SharedProduct::loadChunk(Value row, I32 from, int64_t offset) {
  constexpr int64_t bytes = 16, elementBytes = 2;
  auto type = VectorType::get(bytes / 4, b.getI32Type());
  if (width % (kBlock * warps) == 0) {
    Value start = emitter.advance(row, from * elementBytes);
    return emitter.load(type, emitter.advance(start, offset * elementBytes),
                        bytes);
  }
  I32 first = firstOfLane(), k = first + from + offset;
  I32 safe = min(k, width - kChunk) - first;
  Value loaded =
      emitter.load(type, emitter.advance(row, safe * elementBytes), bytes);
  Value zeros = emitter.constant(type, b.getI32IntegerAttr(0));
  return select(k < width, loaded, zeros);
}

/// Adds `count` of the warp's blocks, the first one `from` elements behind its
/// first of all; all loads come first.
SmallVector<Value> SharedProduct::multiplyBlocks(SmallVector<Value> sums,
                                                 ArrayRef<Value> rows,
                                                 ArrayRef<Value> columns,
                                                 I32 from, int64_t count) {
  constexpr int64_t words = 4;
  SmallVector<SmallVector<SmallVector<Value>>> loaded;
  for (int64_t i = 0; i < count; ++i) {
    auto &chunks = loaded.emplace_back();
    for (ArrayRef<Value> addresses : {rows, columns})
      for (Value address : addresses)
        chunks.push_back(emitter.elements<Value>(
            loadChunk(address, from, i * warps * kBlock)));
  }
  // The order of K is that of the words that a lane holds.
  size_t numColumns = columns.size();
  for (auto &chunks : loaded)
    for (int64_t word = 0; word < words; word += 2)
      for (size_t tile = 0; tile < sums.size() / 4; ++tile) {
        SmallVector<Value> own(ArrayRef(sums).slice(4 * tile, 4));
        SmallVector<Value> &high = chunks[tile / numColumns * 2],
                           &low = chunks[tile / numColumns * 2 + 1],
                           &w = chunks[rows.size() + tile % numColumns];
        SmallVector<Value> made = emitter.multiply(
            element, {high[word], low[word], high[word + 1], low[word + 1]},
            {w[word], w[word + 1]}, own);
        llvm::copy(made, sums.begin() + 4 * tile);
      }
  return sums;
}

SmallVector<Value> SharedProduct::multiply(ArrayRef<Value> rows,
                                           ArrayRef<Value> columns) {
  constexpr int64_t elementBytes = 2;
  int64_t rowTiles = int64_t(rows.size()) / 2;
  auto columnTiles = int64_t(columns.size());
  SmallVector<Value> sums(4 * rowTiles * columnTiles, emitter.f32(0.0));
  // Each warp has whole rounds; blocks past the end of a row are zeros.
  int64_t round = kBlock * warps, rounds = llvm::divideCeil(width, round);
  int64_t atOnce = getBlocksAtOnce(width, warps, rowTiles, columnTiles, kept);
  int64_t last = rounds % atOnce;
  // In a loop, addresses differ by constants.
  I32 first = firstOfLane() * elementBytes;
  auto advance = [&](Value address) { return emitter.advance(address, first); };
  SmallVector<Value> rowStarts(llvm::map_range(rows, advance)),
      columnStarts(llvm::map_range(columns, advance));
  I32 own = emitter.warp() * kBlock;
  if (rounds > last)
    sums =
        emitter.loop(own, emitter.i32((rounds - last) * round), atOnce * round,
                     sums, [&](I32 from, SmallVector<Value> sums) {
                       return multiplyBlocks(std::move(sums), rowStarts,
                                             columnStarts, from, atOnce);
                     });
  if (last)
    sums = multiplyBlocks(sums, rowStarts, columnStarts,
                          own + (rounds - last) * round, last);
  return sums;
}

void SharedProduct::exchange(ArrayRef<Value> sums) {
  // Read again, so that ptxas keeps nothing of it in registers that loads need.
  I32 thread = readThread(b);
  Index at =
      emitter.toIndex((thread / kWarp * (tiles * kWarp) + thread % kWarp) * 4);
  // All threads have read the sums before.
  emitter.barrier();
  for (size_t tile = 0; tile < sums.size() / 4; ++tile)
    emitter.storeVector(emitter.makeVector(sums.slice(4 * tile, 4)), table,
                        {at + int64_t(tile) * kTileSize});
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

SmallVector<F32> SharedProduct::getOfLane(I32 number) {
  Index place = emitter.toIndex(number * 4);
  F32 sum = emitter.loadVector(table, {place}, 4);
  for (int64_t warp = 1; warp < warps; ++warp)
    sum =
        sum + emitter.loadVector(table, {place + warp * tiles * kTileSize}, 4);
  return emitter.elements<F32>(sum);
}
