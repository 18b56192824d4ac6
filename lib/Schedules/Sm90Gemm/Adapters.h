//===- Adapters.h - adapters as further k tiles of sm90.gemm ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERS_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERS_H

#include "moec/Dialect/Tile/Tile.h"

#include <algorithm>
#include <optional>
#include <string>

namespace moec::sm90 {

/// K tiles of adapters, which follow those of the input in tiles that have rows
/// with adapters. Rows and weight rows have 8 chunks of 8 elements in a k tile:
/// whole adapters, or a part of one; chunks that are left have zeros. The
/// chunks of an adapter are those of its first matrix's rank, then of its
/// second one's; with gate and up, weight rows of the one have zeros in chunks
/// of the other. Half of the chunks of a whole adapter are in each half of the
/// k tile, so that the order of a sum does not follow from its neighbours where
/// two consumers share a block.
struct AdapterTiles {
  int64_t adapters, rank, matrices;

  static constexpr int64_t kChunk = 8, kChunks = 8, kHalfChunks = kChunks / 2;
  /// A mask of a tile's adapters has 32 bits.
  static constexpr int64_t kMaxAdapters = 32;

  int64_t getChunksOfMatrix() const { return rank / kChunk; }
  int64_t getChunks() const { return matrices * getChunksOfMatrix(); }
  /// Chunks of an adapter in a half of a k tile.
  int64_t getHalfChunks() const { return (getChunks() + 1) / 2; }
  /// Adapters of a k tile, and k tiles of an adapter; one of them is 1.
  int64_t getAdaptersOfTile() const {
    return std::max<int64_t>(kHalfChunks / getHalfChunks(), 1);
  }
  int64_t getTilesOfAdapter() const {
    return (getChunks() + kChunks - 1) / kChunks;
  }
  /// True if chunks of a k tile are left.
  bool hasEmptyChunks() const {
    return getAdaptersOfTile() > 1 ? getChunks() % 2 : getChunks() % kChunks;
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
