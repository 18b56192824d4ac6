//===- Sm90.h - sizes behind the schedules sm90.* ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shape, memory map and registers of the Hopper gemm (`sm90.contract`) and of
// weight prepacking (`sm90.repack`), shared by config selection and code
// emission.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SM90_H
#define MOEC_ANALYSIS_SM90_H

#include "moec/Analysis/ProductTypes.h"
#include "moec/Analysis/PtxasLimits.h"
#include "moec/Dialect/Moe/Fragments.h"
#include "moec/Support/GpuInstructions.h"
#include "moec/Support/Parts.h"

#include <algorithm>
#include <optional>
#include <string>

namespace moec::sm90 {

/// The warp-specialized gemm of Hopper. A CTA multiplies `n` columns of weights
/// (two weight rows each if gate and up are interleaved by a layout) with up to
/// `tileRows.back()` input rows, in k tiles of `k` elements. One warpgroup
/// produces and two consume.
///
/// By default A and B are swapped: weight rows are the 64-row M side of wgmma
/// and input rows the N side, whose width is a multiple of 8, so that few rows
/// cost little. A CTA has four blocks of 64 weight rows (two per consumer),
/// two, or one. Consumers that share one block each multiply half of every k
/// tile, then exchange sums so that each finishes half of the input rows.
///
/// With `rowsOnM`, tiles of 64 and 128 rows are not swapped: input rows are the
/// M side. A tile of 64 rows is shared by the consumers, which split the
/// weights; in a tile of 128 rows each consumer has 64 rows. A thread then has
/// two rows of 64 and their scales, not a quarter of the rows. Lower tiles, for
/// the rest of a group, are swapped.
///
/// In block fp8 a k tile is one scale block, and the scales are copied with it.
/// A consumer accumulates each k tile of a block of weights separately and adds
/// it, scaled, to its f32 sums (promotion). Scales of whole rows are applied
/// before the epilogue; short rows are accumulated by tensor cores entirely,
/// longer ones are promoted per k tile too.
///
/// Prepacked weights of 4 or 8 bits (`packing = fragments`) are multiplied from
/// registers. Consumers load a packed tile of 64 x 64 from shared memory,
/// decode it and multiply it with one swizzle row of each input row: 128 bytes,
/// or 64 for e4m3. A k tile is one or more packed tiles deep. Its weights are
/// copied as a box of halves (32 rows each), its scales as another box. A CTA
/// has two blocks of 64 weight rows (one per consumer), four (two per
/// consumer), or three (one for each of three consumers). In the lowest tiles
/// the warps of a consumer multiply independently of each other.
///
/// With a layout, 8 gate rows and the 8 up rows of the same columns alternate
/// within a block, so that one thread holds gate and up of a column.
///
/// Shared memory, in order: `stages` pipeline stages of one k tile each
/// (weights, then input rows); their scales; staging per warp to transpose
/// results; the exchange of sums between consumers; quantization scratch;
/// barriers; the tiles taken from the dynamic scheduler; the table of all
/// groups; for weights with a code book, all pairs of its entries, once per
/// lane.
///
/// A gemm that quantizes its results has tiles of one group of columns. If the
/// scale is not given, the largest magnitude of a row is reduced among the
/// threads that hold the row: four lanes in high tiles with rows on M, else
/// warps of both consumers through shared memory.
///
/// Joined gemms share all of this: each section is as large as the larger of
/// the two needs.
struct Contract {
  /// The gemm alone, with `config` (a config of this schedule).
  Contract(tile::ContractOp op, tile::ConfigAttr config);

  /// Grows each section to at least the size of `other`'s.
  void shareMemoryWith(const Contract &other);
  /// Reason why this gemm and `other`, as the second, cannot be joined in one
  /// kernel; empty if they can.
  std::string whyApart(const Contract &other) const;

  static constexpr int64_t kWarp = moec::kWarp, kWarpgroup = moec::kWarpgroup;
  static constexpr int64_t kConsumers = 2, kMaxConsumers = 3;
  /// Producer threads that copy rows where no tensor map does.
  static constexpr int64_t kRowThreads = 96;
  /// The M side of wgmma.
  static constexpr int64_t kBlockRows = kWgmmaRows;
  /// Bytes of K that one instruction multiplies.
  static constexpr int64_t kProductBytes = kWgmmaBytes;
  /// A k tile is one row of the 128-byte swizzle, for all element types.
  static constexpr int64_t kStepBytes = kSwizzleBytes;
  static constexpr int64_t kStepProducts = kStepBytes / kProductBytes;
  static constexpr int64_t kChunkBytes = 16;
  static constexpr int64_t kMaxHeight = 256;
  /// With input rows on M: the largest width of a promoted block of weights,
  /// and the bytes of a row that a warp stages at once.
  static constexpr int64_t kPromotedWidth = 128, kStagedBytes = 128;
  /// At least three stages: the producer publishes a k tile after issuing the
  /// next one, and a consumer frees a k tile after it has begun the next one.
  static constexpr int64_t kMinStages = 3, kMaxStages = 16;
  /// Interleaving of gate and up: 8 rows of gate, then 8 of up.
  static constexpr int64_t kPairedRows = 8;
  static constexpr int64_t kStagedRows = 16;
  /// BLOCK_M is a multiple of `kHeightUnit`; a group with two values of BLOCK_M
  /// has fewer tiles than `kMaxHigher`.
  static constexpr int64_t kHeightUnit = 8;
  static constexpr int64_t kMaxHigher = int64_t(1) << 19;
  /// Without the dynamic scheduler, tiles of the largest BLOCK_M plus a low
  /// rest have to save at least one part in `kUnevenShare`.
  static constexpr int64_t kUnevenShare = 8;
  /// One group's entry in the table: first row, first tile, number of rows,
  /// values of BLOCK_M.
  static constexpr int64_t kTableBytes = 16;
  static constexpr int64_t kScaleElementBytes = 4;
  static constexpr int64_t kBarrierBytes = 8, kNumberBytes = 4;
  /// Tiles that a CTA may have taken from the dynamic scheduler before all its
  /// warps have begun them; each has two barriers and its number.
  static constexpr int64_t kTaken = 2;
  /// Columns of a tile of quantized results, which are also the columns that
  /// share a computed scale.
  static constexpr int64_t kQuantizedColumns = 128;
  static constexpr int64_t kConsumerWarps = kConsumers * 4;

  bool isGrouped;
  /// Results are quantized to 8 bits; with scales that are computed, not given.
  bool quantizes, findsScales;
  int64_t groups, depth, columns;
  /// Columns that one launch computes: whole tiles, if not all columns.
  int64_t launchColumns;
  /// 2 with a layout (gate and up), else 1.
  int64_t weightsPerColumn;
  /// Bits of a stored element of weights and of input rows.
  int64_t storageBits, inputBits;
  int64_t resultBytes;
  /// The operand type of tensor cores.
  ComputeType compute;
  ScaleTimes scales;
  /// Each k tile is accumulated separately and added in f32: where scales are
  /// applied per k tile, or where tensor cores would lose too many digits over
  /// a whole row.
  bool promotes;
  int64_t n, k, stages;
  /// Rows of a raster group: about this many rows of a group meet all weight
  /// rows before the next rows do, so that they stay in L2. 0: all rows.
  int64_t l2Rows;
  llvm::SmallVector<int64_t> tileRows;
  /// Weights are decoded into registers and multiplied from there.
  bool fromRegisters;
  /// Bytes of a packed tile (64 weight rows x 64 of K): quantized values, and
  /// scales with zero points. 0 for weights that are not prepacked.
  int64_t unitBytes, unitScaleBytes;
  /// Weights are indices into a code book; pairs of its entries are looked up.
  bool hasBook;
  /// Pairs of 4-bit values. Each lane has its own copy of the table, in the
  /// bank of shared memory with the lane's number.
  static constexpr int64_t kBookPairs = 256, kBookPairBytes = 4 * kWarp;
  /// Bytes of a swizzle row of the input rows: a k tile, or the K of a packed
  /// tile.
  int64_t swizzledBytes;
  /// Input rows are loaded by tensor maps too, one map per BLOCK_M.
  bool mapRows;
  /// Input rows of high tiles are the M side of wgmma (no swap AB).
  bool rowsOnM;
  /// CTAs take tiles from the dynamic scheduler.
  bool hasQueue;
  /// Increment of the dynamic scheduler's counter per tile in kernels where
  /// CTAs also count in it that their share of the input rows is quantized.
  /// Larger than the number of CTAs.
  static constexpr int64_t kTicket = int64_t(1) << 12;
  /// Limits of the sizes of groups that have tiles; no value: no limit.
  std::optional<uint64_t> minGroupRows, maxGroupRows;

  int64_t getPanels() const { return (launchColumns + n - 1) / n; }
  int64_t getSteps() const { return (depth + k - 1) / k; }
  /// Bytes of a weight row, with its scales where these are copied with it.
  int64_t getRowBytes() const {
    int64_t bytes = depth * storageBits / 8;
    return fromRegisters ? bytes + bytes * unitScaleBytes / unitBytes : bytes;
  }
  int64_t getInputRowBytes() const { return depth * inputBits / 8; }
  int64_t getStepBytes() const { return k * inputBits / 8; }
  /// Whether tiles of that BLOCK_M multiply weights from registers by
  /// independent `mma`s of each warp: only for one octet of rows, because each
  /// warp reads the rows itself.
  bool multipliesByWarps(int64_t height) const {
    return fromRegisters && compute != ComputeType::E4M3 &&
           height == kHeightUnit;
  }
  /// Swizzle rows, side by side, of one input row of a k tile.
  int64_t getUnits() const { return getStepBytes() / swizzledBytes; }
  int64_t getConsumers() const {
    bool hasThird =
        fromRegisters && getWeightRows() == kMaxConsumers * kBlockRows;
    return hasThird ? kMaxConsumers : kConsumers;
  }
  int64_t getThreads() const { return (1 + getConsumers()) * kWarpgroup; }
  /// Blocks of 64 weight rows in a CTA.
  int64_t getWeightBlocks() const { return getWeightRows() / kBlockRows; }
  /// Scales are copied with each k tile.
  bool copiesScales() const { return scales.areInLoop(); }
  int64_t getMaxHeight() const { return tileRows.back(); }
  /// Tiles of a raster group; 0: all tiles of a group.
  int64_t getRasterGroupTiles() const {
    return l2Rows ? std::max<int64_t>(l2Rows / getMaxHeight(), 1) : 0;
  }
  /// Approximate cost of a tile of that BLOCK_M, in units of the tensor cores'
  /// time for one input row. Fewer than 40 rows cost as much as 40, because
  /// each tile has weights to copy; costs once per tile weigh more the fewer k
  /// tiles there are. With rows on M, a tile of half the rows needs whole
  /// copies of the weights, as lower tiles do.
  int64_t getTileCost(int64_t height) const {
    constexpr int64_t once = 500;
    int64_t fewest = rowsOnM ? 72 : 40, weights = rowsOnM ? 0 : 14;
    return std::max(height, fewest) + weights + once / getSteps();
  }
  /// Whether tiles of one group may have these two neighbouring values of
  /// BLOCK_M, with the dynamic scheduler. The higher is at most twice the
  /// lower, so that no tile is empty.
  bool mixesHeights(int64_t low, int64_t high) const {
    return hasQueue && !rowsOnM && high <= 2 * low;
  }
  bool hasTwoHeights() const {
    for (size_t i = 1; i < tileRows.size(); ++i)
      if (mixesHeights(tileRows[i - 1], tileRows[i]))
        return true;
    return false;
  }
  int64_t getWeightRows() const { return weightsPerColumn * n; }
  /// Index of the first tensor map of input rows. Prepacked weights have two
  /// maps: quantized values and scales.
  int64_t getFirstRowMap() const { return fromRegisters ? 2 : 1; }
  /// Innermost extent, in bytes, of a box that copies a half's `share` of a
  /// packed tile: the largest one that divides it.
  static int64_t getUnitPiece(int64_t share) {
    constexpr int64_t most = 256;
    int64_t pieces = (share + most - 1) / most;
    while (share % pieces)
      ++pieces;
    return share / pieces;
  }

  //===--- What a consumer multiplies of a tile ---===//

  bool hasRowsOnM(int64_t height) const {
    return rowsOnM && height >= kBlockRows;
  }
  /// Both consumers multiply the same 64 weight rows (split over K).
  bool sharesBlock() const { return !rowsOnM && getWeightRows() == kBlockRows; }
  /// Each consumer has 64 input rows of its own and all weight rows.
  bool splitsRows(int64_t height) const {
    return rowsOnM && height > kBlockRows;
  }
  int64_t getConsumerRows(int64_t height) const {
    if (hasRowsOnM(height))
      return kBlockRows;
    return sharesBlock() ? height / kConsumers : height;
  }
  int64_t getConsumerWeights(int64_t height) const {
    bool hasAll = sharesBlock() || splitsRows(height);
    return hasAll ? getWeightRows() : getWeightRows() / getConsumers();
  }
  int64_t getConsumerColumns(int64_t height) const {
    return getConsumerWeights(height) / weightsPerColumn;
  }
  /// Weight rows of one chain of wgmmas.
  int64_t getBlockWeights(int64_t height) const {
    if (!hasRowsOnM(height))
      return kBlockRows;
    int64_t rows = getConsumerWeights(height);
    return promotes ? std::min(rows, kPromotedWidth) : rows;
  }
  int64_t getBlockColumns(int64_t height) const {
    return getBlockWeights(height) / weightsPerColumn;
  }
  int64_t getBlocks(int64_t height) const {
    return getConsumerWeights(height) / getBlockWeights(height);
  }
  /// Whether wgmma has an N of that width: multiples of 8; for int8, above 24,
  /// only multiples of 16.
  bool isWidth(int64_t width) const {
    constexpr int64_t multiple = 16, few = 24;
    return compute != ComputeType::Int8 || width <= few ||
           width % multiple == 0;
  }
  /// N of the wgmma, whose M is 64.
  int64_t getProductWidth(int64_t height) const {
    return hasRowsOnM(height) ? getBlockWeights(height) : height;
  }
  /// Accumulator registers of a thread.
  int64_t getAccumulators() const {
    return (getBlocks(getMaxHeight()) + promotes) *
           getProductWidth(getMaxHeight()) / 2;
  }

  //===--- Registers and shared memory ---===//

  /// Some producer threads copy rows or scales one by one, without TMA.
  bool hasRowThreads() const { return !mapRows || copiesScales(); }
  /// Whether a CTA needs less than half of an SM's registers, so that it can
  /// start beside CTAs of the launch before; only with low tiles.
  bool hasReducedRegisters() const {
    return !fromRegisters && getMaxHeight() <= ptxas::kHalfShareRows &&
           std::max(getAccumulators(), minAccumulators) <=
               ptxas::kHalfShareSums;
  }
  /// Registers of a thread at the start of a CTA. The producer later releases
  /// some to the consumers.
  int64_t getRegisters() const {
    return getRegisterShare(hasReducedRegisters() ? 2 : 1, getThreads());
  }
  /// The properties that this gemm's register use depends on, without a
  /// partner.
  ptxas::Sm90Shape getPtxasShape() const {
    return {getMaxHeight(),    int64_t(tileRows.size()),
            getAccumulators(), rowsOnM,
            promotes,          mapRows,
            copiesScales(),    fromRegisters,
            getConsumers()};
  }
  int64_t getProducerRegisters() const {
    return hasReducedRegisters()
               ? ptxas::kHalfShareCopying
               : std::max(getOwnProducerRegisters(), minProducerRegisters);
  }
  int64_t getOwnProducerRegisters() const {
    return ptxas::getCopyingRegisters(getPtxasShape());
  }
  int64_t getConsumerRegisters() const {
    int64_t left =
        (getConsumers() + 1) * getRegisters() - getProducerRegisters();
    return left / getConsumers() / kRegisterUnit * kRegisterUnit;
  }

  int64_t getWeightBytes() const {
    return fromRegisters ? getWeightBlocks() * getUnits() * unitBytes
                         : getWeightRows() * kStepBytes;
  }
  /// Bytes of input rows of a tile of that BLOCK_M, per swizzle row of a k
  /// tile.
  int64_t getUnitRowBytes(int64_t height) const {
    return height * swizzledBytes;
  }
  int64_t getStageBytes() const {
    return std::max(getWeightBytes() +
                        getUnits() * getUnitRowBytes(getMaxHeight()),
                    minStageBytes);
  }
  /// Result columns of a block that one warp holds, with swapped A and B.
  int64_t getWarpColumns(int64_t height) const {
    return getBlockColumns(height) / 4;
  }
  /// Result columns of an input row that are staged at once before they are
  /// stored: all columns of a consumer, spread over its warps. With rows on M,
  /// a warp has whole rows and stages a part of each.
  int64_t getStagedColumns(int64_t height) const {
    int64_t columns = getConsumerColumns(height);
    return hasRowsOnM(height) ? std::min(columns, kStagedBytes / resultBytes)
                              : columns;
  }
  /// Columns that a thread stores at once.
  int64_t getStoredColumns() const { return kChunkBytes / resultBytes; }
  /// 16 input rows are staged at once. The stride of a row has one chunk of
  /// padding, so that 8 rows hit all banks.
  int64_t getStagedStride(int64_t height) const {
    return getStagedColumns(height) * resultBytes + kChunkBytes;
  }
  /// Bytes of a consumer's staging buffer that are staged independently: one
  /// warp's with rows on M, else the consumer's.
  int64_t getBufferBytes(int64_t height) const {
    return kStagedRows * getStagedStride(height);
  }
  /// Whether the independent parts of a consumer's staging buffer are equal for
  /// all tiles: for each BLOCK_M, and without a partner that has others.
  bool hasOneBuffer() const {
    return !minStagingBytes && llvm::all_of(tileRows, [&](int64_t height) {
      return hasRowsOnM(height) == hasRowsOnM(tileRows.front()) &&
             getBufferBytes(height) == getBufferBytes(tileRows.front());
    });
  }
  /// Staging bytes of a consumer. A chunk of padding between the columns of its
  /// warps is included, because stages and values of BLOCK_M were chosen, and
  /// measured, with it.
  int64_t getStagingBytes() const {
    int64_t bytes = minStagingBytes;
    if (resultBytes > 2)
      return bytes;
    for (int64_t height : tileRows) {
      int64_t columns = hasRowsOnM(height)
                            ? getStagedColumns(height)
                            : getBlocks(height) * getWarpColumns(height);
      int64_t apart = columns * resultBytes;
      if (apart > kChunkBytes)
        apart += kChunkBytes;
      bytes =
          std::max({bytes, getBufferBytes(height), 4 * kStagedRows * apart});
    }
    return bytes;
  }
  /// Scales of the weights of a k tile: one or two per 64 weight rows.
  int64_t getScaleSlots() const {
    return weightsPerColumn * getWeightRows() / kBlockRows;
  }
  int64_t getScaleOffset() const { return stages * getStageBytes(); }
  /// Bytes of scales in a stage, in whole chunks: scales of rows, then of
  /// weights.
  int64_t getScaleBytes() const {
    if (fromRegisters)
      return getWeightBlocks() * getUnits() * unitScaleBytes;
    int64_t count = copiesScales() ? getMaxHeight() + getScaleSlots() : 0;
    return (count * kScaleElementBytes + kChunkBytes - 1) / kChunkBytes *
           kChunkBytes;
  }
  int64_t getStagingOffset() const {
    return getScaleOffset() + stages * getScaleBytes();
  }
  int64_t getExchangeOffset() const {
    return getStagingOffset() + getConsumers() * getStagingBytes();
  }
  /// Consumers that share a block each hand half of their sums to the other.
  int64_t getExchangeBytes() const {
    return std::max(sharesBlock() ? kBlockRows * getMaxHeight() * 4 : 0,
                    minExchangeBytes);
  }
  /// Quantization: rows whose columns are spread over several warps, rounded up
  /// to parts that the lanes of a warp share; 0 if there are none.
  int64_t getSharedRows() const {
    constexpr int64_t atOnce = 64;
    int64_t rows = 0;
    for (int64_t height : tileRows)
      if (findsScales && !splitsRows(height))
        rows = std::max(rows, (height + atOnce - 1) / atOnce * atOnce);
    return rows;
  }
  /// Per warp and row, the largest magnitude, in 16 bits.
  int64_t getMagnitudeOffset() const {
    return getExchangeOffset() + getExchangeBytes();
  }
  int64_t getMagnitudeStride() const { return 2 * getSharedRows(); }
  /// Per row, two f32 derived from the magnitudes.
  static constexpr int64_t kDivisorBytes = 8;
  int64_t getDivisorOffset() const {
    return getMagnitudeOffset() + kConsumerWarps * getMagnitudeStride();
  }
  int64_t getBarrierOffset() const {
    return getDivisorOffset() + kDivisorBytes * getSharedRows();
  }
  /// Pairs of barriers: of the pipeline, then of the dynamic scheduler,
  /// followed by its tile numbers.
  int64_t getQueueOffset() const {
    return getBarrierOffset() + stages * 2 * kBarrierBytes;
  }
  int64_t getNumberOffset() const {
    return getQueueOffset() + kTaken * 2 * kBarrierBytes;
  }
  int64_t getTableOffset() const {
    constexpr int64_t numbers = kTaken * kNumberBytes;
    static_assert(numbers <= kTableBytes, "the table is aligned");
    return hasQueue ? getNumberOffset() + kTableBytes : getQueueOffset();
  }
  int64_t getBookOffset() const {
    return getTableOffset() + kTableBytes * (groups + 1);
  }
  int64_t getSharedBytes() const {
    return getBookOffset() + hasBook * kBookPairs * kBookPairBytes;
  }

private:
  /// Minimum sizes that a joined partner needs.
  int64_t minStageBytes = 0, minStagingBytes = 0, minExchangeBytes = 0;
  int64_t minProducerRegisters = 0, minAccumulators = 0;
};

/// Weight prepacking. A CTA holds, for a block of 64 weight rows, in memory
/// order: the quantized values of a part of K, and the amount by which each
/// row's stored exponents are reduced.
struct Repack {
  explicit Repack(tile::RepackOp op);

  static constexpr int64_t kExcessBytes = 4;

  /// Packed tiles along K in a part; the last part may have fewer.
  int64_t rows, depth, codeBits, partUnits;
  int64_t getUnits() const { return depth / moe::Fragments::kDepth; }
  /// Bytes of quantized values in a row: of all of K, of a packed tile, of a
  /// part.
  int64_t getCodeRowBytes() const { return depth * codeBits / 8; }
  int64_t getUnitRowBytes() const {
    return moe::Fragments::kDepth * codeBits / 8;
  }
  int64_t getPartRowBytes() const { return partUnits * getUnitRowBytes(); }
  int64_t getExcessOffset() const {
    return moe::Fragments::kRows * getPartRowBytes();
  }
  int64_t getSharedBytes() const {
    return getExcessOffset() + moe::Fragments::kRows * kExcessBytes;
  }
};

/// The gemm that `op` is joined with in one kernel; null if there is none.
tile::ContractOp getPartner(tile::ContractOp op);

/// The quantization of the gemm's input rows at the start of its kernel; null
/// if there is none.
tile::QuantizeOp getQuantization(tile::ContractOp op);

/// Shape of a gemm with that config in its kernel, with the partner's minima if
/// the partner has a config of this schedule.
Contract getShapeInKernel(tile::ContractOp op, tile::ConfigAttr config);

/// The tensor maps of sm90.contract: the weights', then, with `map_rows`, one
/// of the rows per BLOCK_M.
llvm::SmallVector<tile::TensorMapAttr> getTensorMaps(tile::ContractOp op,
                                                     const Contract &shape);

} // namespace moec::sm90

#endif // MOEC_ANALYSIS_SM90_H
