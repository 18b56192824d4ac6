//===- SharedLayout.h - shared memory of sm90.gemm --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_SHAREDLAYOUT_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_SHAREDLAYOUT_H

#include "TileShape.h"

namespace moec::sm90 {

/// Bytes that a thread copies at once.
inline constexpr int64_t kChunkBytes = 16;
inline constexpr int64_t kScaleElementBytes = 4;
/// Input rows that are staged at once; with input rows on M, the bytes of a row
/// that a warp stages at once.
inline constexpr int64_t kStagedRows = 16, kStagedBytes = 128;
/// Per row of quantized results, two f32 derived from the magnitudes.
inline constexpr int64_t kDivisorBytes = 8;
inline constexpr int64_t kBarrierBytes = 8, kNumberBytes = 4;
/// Tiles that a CTA may have taken from the dynamic scheduler before all its
/// warps have begun them; each has two barriers and its number.
inline constexpr int64_t kTaken = 2;
/// One group's entry in the table: first row, first tile, number of rows,
/// values of BLOCK_M.
inline constexpr int64_t kTableBytes = 16;
/// Pairs of 4-bit values. Each lane has its own copy of the table, in the bank
/// of shared memory with the lane's number.
inline constexpr int64_t kBookPairs = 256, kBookPairBytes = 4 * kWarp;

/// How a consumer's results of a tile pass through shared memory, 16 input rows
/// at once.
struct ResultStaging {
  /// `blockM`: BLOCK_M of the tile.
  ResultStaging(const GemmProblem &problem, const TileShape &tile,
                int64_t blockM);

  /// Result columns of an input row that are staged at once before they are
  /// stored: all columns of a consumer, spread over its warps. With rows on M,
  /// a warp has whole rows and stages a part of each.
  int64_t columns;
  /// Bytes from row to row. One chunk is padding, so that 8 rows hit all banks.
  int64_t stride;

  /// Bytes that are staged independently: one warp's with rows on M, else the
  /// consumer's.
  int64_t getBytes() const { return kStagedRows * stride; }
};

/// Sections of shared memory, in order: `stages` pipeline stages of one k tile
/// each (weights, input rows, then these rows before they are quantized); their
/// scales; staging per consumer to transpose results; the exchange of sums
/// between consumers; sums of the cluster's other CTAs; quantization scratch;
/// barriers; the tiles taken from the dynamic scheduler; the table of all
/// groups; for weights with a code book, all pairs of its entries, once per
/// lane.
class SharedLayout {
public:
  SharedLayout(const GemmProblem &problem, const TileShape &tile);

  /// Grows the stages, their scales, the staging, the exchange and the scratch
  /// of quantization to at least the sizes that a joined gemm has.
  void shareWith(const SharedLayout &other);

  /// Bytes of a stage: of the weights at its beginning, of input rows of a tile
  /// with that BLOCK_M per swizzle row of a k tile, and of all.
  int64_t getWeightBytes() const { return weightBytes; }
  int64_t getSwizzledBytes(int64_t blockM) const {
    return blockM * swizzleBytes;
  }
  int64_t getStageBytes() const { return stageBytes; }
  /// Bytes of a row of a k tile before it is quantized; 0 if rows are copied as
  /// they are multiplied.
  int64_t getRawRowBytes() const { return rawRowBytes; }

  int64_t getScaleOffset() const { return stages * stageBytes; }
  /// Bytes of scales in a stage, in whole chunks: scales of rows, then of
  /// weights.
  int64_t getScaleBytes() const { return scaleBytes; }

  int64_t getStagingOffset() const {
    return getScaleOffset() + stages * scaleBytes;
  }
  /// Staging bytes of a consumer.
  int64_t getStagingBytes() const { return stagingBytes; }
  /// Whether the independent parts of a consumer's staging buffer are equal for
  /// all tiles: for each BLOCK_M, and without a joined gemm that has others.
  bool hasOneBuffer() const { return isOneBuffer; }

  /// Consumers that share a block each hand half of their sums to the other.
  int64_t getExchangeOffset() const {
    return getStagingOffset() + consumers * stagingBytes;
  }

  /// Sums that the first CTA of a cluster gets from the others, which have
  /// multiplied other k tiles.
  int64_t getSharesOffset() const {
    return getExchangeOffset() + exchangeBytes;
  }

  /// Quantization: rows whose columns are spread over several warps, rounded up
  /// to parts that the lanes of a warp share; 0 if there are none.
  int64_t getSharedRows() const { return sharedRows; }
  /// Per warp and row, the largest magnitude, in 16 bits.
  int64_t getMagnitudeOffset() const { return getSharesOffset() + shareBytes; }
  int64_t getMagnitudeStride() const { return 2 * sharedRows; }
  int64_t getDivisorOffset() const {
    return getMagnitudeOffset() + kConsumerWarps * getMagnitudeStride();
  }

  /// Pairs of barriers: of the pipeline, then of the sums of other CTAs or of
  /// the dynamic scheduler, followed by its tile numbers.
  int64_t getBarrierOffset() const {
    return getDivisorOffset() + kDivisorBytes * sharedRows;
  }
  int64_t getShareBarrierOffset() const {
    return getBarrierOffset() + stages * 2 * kBarrierBytes;
  }
  int64_t getSchedulerOffset() const {
    return getShareBarrierOffset() + (shareBytes ? 2 * kBarrierBytes : 0);
  }
  int64_t getNumberOffset() const {
    return getSchedulerOffset() + kTaken * 2 * kBarrierBytes;
  }

  int64_t getTableOffset() const {
    static_assert(kTaken * kNumberBytes <= kTableBytes, "the table is aligned");
    return hasDynamicScheduler ? getNumberOffset() + kTableBytes
                               : getSchedulerOffset();
  }
  int64_t getBookOffset() const {
    return getTableOffset() + kTableBytes * (groups + 1);
  }
  /// All of them.
  int64_t getBytes() const {
    return getBookOffset() + hasBook * kBookPairs * kBookPairBytes;
  }

private:
  int64_t stages, consumers, groups, swizzleBytes;
  int64_t weightBytes, rawRowBytes, stageBytes, scaleBytes, stagingBytes,
      exchangeBytes, shareBytes;
  int64_t sharedRows;
  bool isOneBuffer, hasDynamicScheduler, hasBook;
};

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_SHAREDLAYOUT_H
