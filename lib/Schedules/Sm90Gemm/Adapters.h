//===- Adapters.h - adapters as further k tiles of sm90.gemm ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERS_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERS_H

#include "moec/Dialect/Tile/Tile.h"

#include <optional>
#include <string>

namespace moec::sm90 {

/// K tiles of adapters, which follow those of the input in tiles that have rows
/// with adapters. Weight rows have 4 chunks of 8 elements in a k tile: whole
/// adapters, or a part of one. The chunks of an adapter are those of its first
/// matrix's rank, then of its second one's; with gate and up, weight rows of
/// the one have zeros in chunks of the other. Input rows have 8 chunks: the
/// high numbers, then the low ones, which are multiplied by the same 4 chunks.
struct AdapterTiles {
  int64_t adapters, rank, matrices;

  static constexpr int64_t kChunk = 8, kWeightChunks = 4, kRowChunks = 8;
  /// A mask of a tile's adapters has 32 bits.
  static constexpr int64_t kMaxAdapters = 32;

  /// Columns of the high numbers.
  int64_t getColumns() const { return matrices * rank; }
  int64_t getChunks() const { return getColumns() / kChunk; }
  /// Adapters of a k tile, and k tiles of an adapter; one of them is 1.
  int64_t getAdaptersOfTile() const {
    return getChunks() < kWeightChunks ? kWeightChunks / getChunks() : 1;
  }
  int64_t getTilesOfAdapter() const {
    return getChunks() < kWeightChunks ? 1 : getChunks() / kWeightChunks;
  }
};

/// The k tiles of a gemm's adapters; none if its epilogue adds updates, or if
/// it has none.
std::optional<AdapterTiles> getAdapterTiles(tile::GemmOp op);

/// Reason why tensor cores cannot multiply the adapters of a gemm whose shrunk
/// rows are rounded; empty if they can.
std::string declineAdapters(tile::GemmOp op);

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERS_H
