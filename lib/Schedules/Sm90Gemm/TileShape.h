//===- TileShape.h - tiles of a gemm of sm90.gemm ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_TILESHAPE_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_TILESHAPE_H

#include "Problem.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"

#include <algorithm>

namespace moec::sm90 {

inline constexpr int64_t kConsumers = 2, kMaxConsumers = 3;
inline constexpr int64_t kConsumerWarps = kConsumers * 4;
/// The M side of wgmma.
inline constexpr int64_t kBlockRows = kWgmmaRows;
/// A k tile is one row of the 128-byte swizzle, for all element types.
inline constexpr int64_t kStepBytes = kSwizzleBytes;
/// wgmmas along K of a k tile.
inline constexpr int64_t kStepProducts = kStepBytes / kWgmmaBytes;
/// BLOCK_M is a multiple of `kBlockMMultiple`, at most `kMaxBlockM`.
inline constexpr int64_t kBlockMMultiple = 8, kMaxBlockM = 256;
/// The largest BLOCK_M of rows that are quantized as they are copied: each CTA
/// quantizes them again, and with more rows that takes longer than the copies
/// of its weights.
inline constexpr int64_t kMostQuantizedRows = 32;
/// With input rows on M: the largest width of a promoted block of weights.
inline constexpr int64_t kPromotedWidth = 128;
/// At least three stages: the producer publishes a k tile after issuing the
/// next one, and a consumer frees a k tile after it has begun the next one.
inline constexpr int64_t kMinStages = 3, kMaxStages = 16;
/// The largest BLOCK_M of a tile whose k tiles are split among CTAs.
inline constexpr int64_t kSplitRows = 32;

/// How a gemm is tiled, as its config says: the tiles of the result, their k
/// tiles, and the part of a tile that each consumer warpgroup multiplies. A
/// function's `blockM` is the BLOCK_M of a tile.
struct TileShape {
  TileShape(const GemmProblem &problem, tile::Sm90GemmAttr config);

  /// Values of BLOCK_M, ascending.
  llvm::SmallVector<int64_t> blockM;
  int64_t blockN, blockK, stages;
  /// Rows of a raster group: about this many rows of a group meet all weight
  /// rows before the next rows do, so that they stay in L2. 0: all rows.
  int64_t l2Rows;
  /// Input rows are loaded by tensor maps too, one map per BLOCK_M.
  bool mapRows;
  /// Input rows of high tiles are the M side of wgmma (no swap AB).
  bool noSwapAB;
  /// CTAs take tiles from the dynamic scheduler.
  bool hasDynamicScheduler;
  /// Two CTAs of a cluster take two M tiles of a group, and each copies half of
  /// their weights to both.
  bool multicastsWeights;
  /// CTAs of a cluster that take one tile: CTA r multiplies k tiles r, r +
  /// splitK, ..., and the first one adds the sums of all. 1: no cluster.
  int64_t splitK;

  /// Bytes of a k tile of one input row, and its swizzle rows, side by side:
  /// with prepacked weights, one per packed tile.
  int64_t kTileBytes, swizzleRows;

  /// Copies of scales in a k tile; a k tile may be half of what shares a copy.
  int64_t getScaleCopies(const PackedTile &packed) const {
    return (swizzleRows + packed.scaleTiles - 1) / packed.scaleTiles;
  }

  //===--- The CTA ---===//

  /// Tiles that a cluster takes at once, whose CTAs share the weights.
  int64_t getClusterTiles() const { return multicastsWeights ? 2 : 1; }
  /// CTAs of a cluster.
  int64_t getClusterCtas() const { return getClusterTiles() * splitK; }
  /// CTAs that run at once, one per multiprocessor.
  int64_t countResidentCtas(int64_t multiprocessors) const;
  /// Tiles along N, and k tiles: all, and the least number that a CTA has.
  int64_t getNTiles() const { return (launchColumns + blockN - 1) / blockN; }
  int64_t getKTiles() const { return (sizeK + blockK - 1) / blockK; }
  int64_t getLeastKTiles() const { return getKTiles() / splitK; }
  int64_t getMaxBlockM() const { return blockM.back(); }
  int64_t getWeightRows() const { return weightsPerColumn * blockN; }
  /// Blocks of 64 weight rows in a CTA.
  int64_t getWeightBlocks() const { return getWeightRows() / kBlockRows; }
  /// Block fp8: scales of the weights of a k tile, one or two per 64 weight
  /// rows.
  int64_t getWeightScales() const {
    return weightsPerColumn * getWeightBlocks();
  }
  int64_t getConsumers() const {
    bool hasThird =
        isPrepacked && getWeightRows() == kMaxConsumers * kBlockRows;
    return hasThird ? kMaxConsumers : kConsumers;
  }
  int64_t getThreads() const { return (1 + getConsumers()) * kWarpgroup; }
  /// Tiles of a raster group, whole clusters; 0: all tiles of a group.
  int64_t getRasterGroupTiles() const {
    int64_t tiles = getClusterTiles();
    return l2Rows
               ? std::max<int64_t>(l2Rows / getMaxBlockM() / tiles, 1) * tiles
               : 0;
  }
  /// Whether tiles of one group may have these two neighbouring values of
  /// BLOCK_M, with the dynamic scheduler. The higher is at most twice the
  /// lower, so that no tile is empty.
  bool mixesBlockMs(int64_t low, int64_t high) const {
    return hasDynamicScheduler && !noSwapAB && high <= 2 * low;
  }
  bool hasTwoBlockMs() const;

  //===--- What a consumer multiplies of a tile ---===//

  /// Whether the weights are the M side of wgmma, in a tile of that BLOCK_M.
  bool swapsAB(int64_t blockM) const {
    return !noSwapAB || blockM < kBlockRows;
  }
  /// Both consumers multiply the same 64 weight rows (split over K).
  bool sharesBlock() const {
    return !noSwapAB && getWeightRows() == kBlockRows;
  }
  /// Each consumer has 64 input rows of its own and all weight rows.
  bool splitsRows(int64_t blockM) const {
    return noSwapAB && blockM > kBlockRows;
  }
  /// Each warp multiplies by `mma`s of its own: only for one octet of rows,
  /// because each warp reads the rows itself.
  bool multipliesByWarps(int64_t blockM) const {
    return isPrepacked && !isE4M3 && blockM == kBlockMMultiple;
  }
  int64_t getConsumerRows(int64_t blockM) const {
    if (!swapsAB(blockM))
      return kBlockRows;
    return sharesBlock() ? blockM / kConsumers : blockM;
  }
  int64_t getConsumerWeights(int64_t blockM) const {
    bool hasAll = sharesBlock() || splitsRows(blockM);
    return hasAll ? getWeightRows() : getWeightRows() / getConsumers();
  }
  int64_t getConsumerColumns(int64_t blockM) const {
    return getConsumerWeights(blockM) / weightsPerColumn;
  }
  /// Weight rows of one chain of wgmmas.
  int64_t getBlockWeights(int64_t blockM) const {
    if (swapsAB(blockM))
      return kBlockRows;
    int64_t rows = getConsumerWeights(blockM);
    return promotes ? std::min(rows, kPromotedWidth) : rows;
  }
  int64_t getBlockColumns(int64_t blockM) const {
    return getBlockWeights(blockM) / weightsPerColumn;
  }
  int64_t getBlocks(int64_t blockM) const {
    return getConsumerWeights(blockM) / getBlockWeights(blockM);
  }
  /// Result columns of a block that one warp holds, with swapped A and B.
  int64_t getWarpColumns(int64_t blockM) const {
    return getBlockColumns(blockM) / 4;
  }
  /// Prepacked weights whose sums have scales: packed tiles that follow each
  /// other in the same accumulators before these are promoted.
  int64_t getChainedTiles(const moe::PrepackedFormat &format,
                          int64_t blockM) const;
  /// N of the wgmma, whose M is 64.
  int64_t getProductWidth(int64_t blockM) const {
    return swapsAB(blockM) ? blockM : getBlockWeights(blockM);
  }

private:
  /// Copied from the problem.
  int64_t launchColumns, sizeK, weightsPerColumn;
  bool isPrepacked, isE4M3, promotes;
};

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_TILESHAPE_H
