//===- WarpProducts.cpp - decoded weights times few rows --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Mainloop with mma.sync for few rows. wgmmas of a warpgroup wait for each
// other: all that were issued before must complete before a packed tile's
// registers may be written. mma.sync waits only for its operands, so that ptxas
// interleaves it with the unpacking of the next packed tile. Fragments and sums
// are the same, but each warp loads the input rows itself, so that they are
// read four times as often.

#include "Consumer.h"
#include "Schedules/Sm90Gemm/PrepackedWeights/PackedTiles.h"

using namespace mlir;
using namespace moec;
using moe::PrepackedFormat;

/// Sums per thread of 16 weight rows by an octet of input rows.
constexpr int64_t kOctetSums = 4;

/// Lane l gives the address of row l % 8 of matrix l / 8, a chunk of a row.
constexpr int64_t kOctetRows = 8, kMatrices = 4;

SmallVector<I32> PackedTileReader::findRows(I32 rows) {
  I32 last = rows + -1;
  I32 inOctet = emitter.lane() % kOctetRows;
  I32 chunk = emitter.lane() / kOctetRows;
  SmallVector<I32> offsets;
  for (int64_t first = 0; first < width; first += kOctetRows) {
    // Clamped: rows behind the last one are not written, and their sums are
    // never read.
    I32 row = min(inOctet + first, last);
    I32 swizzled = swizzle(row, chunk);
    offsets.push_back(row * shape.problem().swizzleBytes +
                      swizzled * sm90::kChunkBytes);
  }
  return offsets;
}

void PackedTileReader::multiplyByWarps(
    I32 stage, int64_t packedTile, ArrayRef<I32> rowOffsets,
    ArrayRef<SmallVector<I32>> fragments,
    MutableArrayRef<SmallVector<Value>> sums) {
  constexpr int64_t perProduct = 2, registers = PrepackedFormat::kRegisters;
  Value tile = gemm.pipeline.stageAddress(stage, gemm.getInputOffset() +
                                                     packedTile * rowBytes);
  int64_t chunks = shape.problem().swizzleBytes / sm90::kChunkBytes;
  for (int64_t first = 0; first < chunks; first += kMatrices)
    for (auto [octet, offset] : llvm::enumerate(rowOffsets)) {
      I32 moved = offset ^ first * sm90::kChunkBytes;
      SmallVector<Value> rows =
          emitter.loadMatrices(emitter.advance(tile, moved));
      for (int64_t j = 0; j < kMatrices / perProduct; ++j)
        for (int64_t block = 0; block < blocks; ++block) {
          int64_t product = first / perProduct + j;
          auto own = MutableArrayRef(sums[block])
                         .slice(octet * kOctetSums, kOctetSums);
          SmallVector<Value> weights(
              ArrayRef(fragments[block]).slice(product * registers, registers));
          SmallVector<Value> added = emitter.multiply(
              element, weights,
              ArrayRef(rows).slice(j * perProduct, perProduct), own);
          llvm::copy(added, own.begin());
        }
    }
}

Sm90Sums Sm90Consumer::multiplyByWarps(int64_t blockM, const Sm90Tile &tile,
                                       PipelineState first) {
  PackedTileReader reader(gemm, consumer, blockM);
  SmallVector<I32> rowOffsets = reader.findRows(tile.rows);
  int64_t numBlocks = shape.tile().getBlocks(blockM);
  /// `sums`: per block.
  struct State {
    PipelineState at;
    SmallVector<SmallVector<Value>> sums;
    auto fields() { return std::tie(at, sums); }
  };
  SmallVector<Value> zeros(blockM / 2, emitter.f32(0));
  State start{first, SmallVector<SmallVector<Value>>(numBlocks, zeros)};
  State end = emitter.loop(
      emitter.index(0), emitter.toIndex(gemm.countSteps()), 1, start,
      [&](Index, State state) {
        PipelineState at = state.at;
        pipeline.waitUntilFull(at);
        for (int64_t packedTile = 0; packedTile < shape.tile().swizzleRows;
             ++packedTile) {
          SmallVector<SmallVector<I32>> fragments;
          for (int64_t block = 0; block < numBlocks; ++block)
            fragments.push_back(reader.close(reader.open(
                reader.load(at.stage, packedTile * numBlocks + block))));
          reader.multiplyByWarps(at.stage, packedTile, rowOffsets, fragments,
                                 state.sums);
        }
        releaseRead(at.stage);
        return State{pipeline.next(at), state.sums};
      });
  Sm90Sums result{end.at, {}};
  for (ArrayRef<Value> sums : end.sums)
    result.blocks.push_back(
        llvm::map_to_vector(sums, [&](Value sum) { return F32(b, sum); }));
  addShares(result.blocks);
  return result;
}
