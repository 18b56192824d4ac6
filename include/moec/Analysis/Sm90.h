//===- Sm90.h - sizes behind the schedules sm90.* ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the choice of a config and the emission of its code both have to know.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SM90_H
#define MOEC_ANALYSIS_SM90_H

#include "moec/Analysis/ProductTypes.h"
#include "moec/Analysis/PtxasLimits.h"
#include "moec/Dialect/Moe/Fragments.h"
#include "moec/Support/Parts.h"

#include <algorithm>
#include <optional>
#include <string>

namespace moec::sm90 {

/// sm90.contract: a CTA of three warpgroups multiplies `n` columns of weights
/// (each of them two weight rows, with a layout) with up to `tileRows.back()`
/// input rows, in steps of `k`. One warpgroup produces, two consume.
///
/// Weight rows are on the side of 64 of the tensor cores' tile, input rows on
/// the other, whose width is a multiple of 8: few rows cost little. A CTA has
/// four blocks of 64 weight rows, two per consumer, or two, or one that both
/// consumers share: each multiplies half of every step, then they exchange sums
/// so that each has half of the input rows.
///
/// With `rowsOnM` it is the other way round in the tiles of 64 and 128 rows:
/// input rows are on the side of 64, and a tile is as high as one such side,
/// whose weights the consumers share, or two, one per consumer. A thread then
/// has two rows of 64, not a quarter of them, and their scales. Lower tiles,
/// for the rest of a group, are as without.
///
/// A step of block fp8 is a block of the scales, which come with it; a consumer
/// sums the step of a block of weights apart and adds it, scaled, to its f32
/// sums. Scales of whole rows are applied ahead of the epilogue; then tensor
/// cores add up all of a short row, and of a longer one steps are apart too.
///
/// Weights of 4 or 8 bits in the order of tensor cores (`packing = fragments`)
/// are multiplied from registers: consumers load a unit of 64 rows by 64 of the
/// depth from shared memory, decode it and multiply it with the input rows, of
/// which it takes a row of the swizzle, of 128 bytes or, of e4m3, of 64. A
/// step is one or more units deep, whose weights are a box of runs of 32 rows,
/// and their scales another one. A CTA has two blocks of 64 weight rows, one
/// per consumer, or four, two per consumer, or three, one for each of three
/// consumers. In the lowest tiles a consumer's warps multiply each by itself.
///
/// With a layout 8 gate rows and the 8 up rows of the same columns follow one
/// another in a block, so that a thread has gate and up of a column.
///
/// Shared memory: `stages` buffers of one step each, first the weights, then
/// the input rows; their scales; a place per warp where results are transposed,
/// and one for sums that consumers exchange; what quantization shares; the
/// barriers; the tiles that were taken from a queue; a table of all groups; of
/// weights of a code book, all pairs of its numbers, for each lane of a warp.
///
/// A product that quantizes its results has tiles of one group of columns.
/// Where the scale is not given, the largest magnitude of a row is found among
/// the threads that have it: four lanes with rows on M in high tiles, else
/// warps of both consumers, through shared memory.
///
/// Two products of one kernel, of which the second awaits the first, share all
/// that: each part is as large as the larger one of theirs.
struct Contract {
  /// The product by itself, as `config`, which is of this schedule, runs it.
  Contract(tile::ContractOp op, tile::ConfigAttr config);

  /// Makes the parts at least as large as the other's.
  void shareMemoryWith(const Contract &other);
  /// Why the two cannot be one kernel, the other one second; empty if they can.
  std::string whyApart(const Contract &other) const;

  static constexpr int64_t kWarp = 32, kWarpgroup = 128;
  static constexpr int64_t kConsumers = 2, kMaxConsumers = 3;
  /// Threads of the producing warpgroup that copy rows, when no map does.
  static constexpr int64_t kRowThreads = 96;
  /// The fixed side of the tensor cores' tile.
  static constexpr int64_t kBlockRows = 64;
  /// Bytes of a row that one instruction multiplies.
  static constexpr int64_t kProductBytes = 32;
  /// A step is one row of the 128-byte swizzle, whatever the elements.
  static constexpr int64_t kStepBytes = 128;
  static constexpr int64_t kStepProducts = kStepBytes / kProductBytes;
  static constexpr int64_t kChunkBytes = 16;
  static constexpr int64_t kMaxHeight = 256;
  /// Input rows on the side of 64: the most of a block of weights whose sums of
  /// a step are apart; bytes of a row that a warp stages at once.
  static constexpr int64_t kPromotedWidth = 128, kStagedBytes = 128;
  /// The producer publishes a step after the next one, and a consumer frees a
  /// step when it has begun the next one.
  static constexpr int64_t kMinStages = 3, kMaxStages = 16;
  /// Rows of gate, then of up.
  static constexpr int64_t kPairedRows = 8;
  static constexpr int64_t kStagedRows = 16;
  /// Heights of tiles are multiples; a group with two of them has fewer tiles
  /// than `kMaxHigher`.
  static constexpr int64_t kHeightUnit = 8;
  static constexpr int64_t kMaxHigher = int64_t(1) << 19;
  /// Tiles of the greatest height and a low rest have to save one part in so
  /// many where there is no queue.
  static constexpr int64_t kUnevenShare = 8;
  /// A group's first row and first tile, its rows and the heights of its tiles.
  static constexpr int64_t kTableBytes = 16;
  static constexpr int64_t kScaleElementBytes = 4;
  static constexpr int64_t kBarrierBytes = 8, kNumberBytes = 4;
  /// Tiles of the queue that a CTA has taken and not all of its warps have
  /// begun; of each, two barriers and its number.
  static constexpr int64_t kTaken = 2;
  /// Columns of a tile of results that are quantized, and of those that share a
  /// scale that is found.
  static constexpr int64_t kQuantizedColumns = 128;
  /// Warps of the consumers.
  static constexpr int64_t kConsumerWarps = kConsumers * 4;

  bool isGrouped;
  /// Results become codes of 8 bits; with scales that are found, not given.
  bool quantizes, findsScales;
  int64_t groups, depth, columns;
  /// Those that one launch computes, in whole tiles if they are not all.
  int64_t launchColumns;
  /// 2 with a layout: gate and up.
  int64_t weightsPerColumn;
  /// Bits of an element in memory: of weights, and of input rows.
  int64_t storageBits, inputBits;
  int64_t resultBytes;
  /// What tensor cores multiply.
  ComputeType compute;
  ScaleTimes scales;
  /// The sums of each step are apart and are added in f32: where scales come
  /// with it, or where tensor cores would lose too many digits of a whole row.
  bool promotes;
  int64_t n, k, stages;
  /// About so many rows of a group are multiplied by all weight rows before
  /// others are, so that they stay in the second-level cache; 0: all.
  int64_t l2Rows;
  llvm::SmallVector<int64_t> tileRows;
  /// Weights are decoded to registers, and multiplied from there.
  bool fromRegisters;
  /// What 64 weight rows by 64 of the depth have in the order of tensor cores:
  /// codes, and scales with zero points. 0 of other weights.
  int64_t unitBytes, unitScaleBytes;
  /// Weights are numbers of a code book, of which pairs are looked up.
  bool hasBook;
  /// Pairs of codes of 4 bits. A lane has all of them to itself, in the bank of
  /// shared memory that has its number.
  static constexpr int64_t kBookPairs = 256, kBookPairBytes = 4 * kWarp;
  /// A row of the swizzle of input rows: a step, or what a unit is multiplied
  /// with.
  int64_t swizzledBytes;
  /// Input rows come by tensor maps too, one per height.
  bool mapRows;
  /// Input rows of high tiles are on the tensor cores' side of 64.
  bool rowsOnM;
  /// CTAs take tiles from a queue.
  bool hasQueue;
  /// What the counter of a queue grows by with each tile where CTAs count by
  /// it, too, that have quantized their share of the input rows: more than
  /// there are CTAs.
  static constexpr int64_t kTicket = int64_t(1) << 12;
  /// The rows of groups that have tiles; nothing for any number.
  std::optional<uint64_t> minGroupRows, maxGroupRows;

  int64_t getPanels() const { return (launchColumns + n - 1) / n; }
  int64_t getSteps() const { return (depth + k - 1) / k; }
  /// A row of weights, with its scales where they come with it.
  int64_t getRowBytes() const {
    int64_t bytes = depth * storageBits / 8;
    return fromRegisters ? bytes + bytes * unitScaleBytes / unitBytes : bytes;
  }
  int64_t getInputRowBytes() const { return depth * inputBits / 8; }
  int64_t getStepBytes() const { return k * inputBits / 8; }
  /// Whether weights from registers are multiplied, in tiles of that height, by
  /// products of warps, which do not wait for each other: of one octet of rows,
  /// for each warp reads them itself.
  bool multipliesByWarps(int64_t height) const {
    return fromRegisters && compute != ComputeType::E4M3 &&
           height == kHeightUnit;
  }
  /// Rows of the swizzle, side by side, that an input row of a step takes.
  int64_t getUnits() const { return getStepBytes() / swizzledBytes; }
  int64_t getConsumers() const {
    bool hasThird =
        fromRegisters && getWeightRows() == kMaxConsumers * kBlockRows;
    return hasThird ? kMaxConsumers : kConsumers;
  }
  int64_t getThreads() const { return (1 + getConsumers()) * kWarpgroup; }
  /// Blocks of 64 weight rows of a CTA.
  int64_t getWeightBlocks() const { return getWeightRows() / kBlockRows; }
  /// Scales come with each step.
  bool copiesScales() const { return scales.areInLoop(); }
  int64_t getMaxHeight() const { return tileRows.back(); }
  /// Tiles of a raster group; 0: all of a group.
  int64_t getRasterGroupTiles() const {
    return l2Rows ? std::max<int64_t>(l2Rows / getMaxHeight(), 1) : 0;
  }
  /// About what a tile of that height costs, in the time that tensor cores take
  /// for one input row: fewer than 40 cost as much as 40, each has weights to
  /// copy, and what comes once per tile weighs the more the fewer steps there
  /// are. With rows on the side of 64, half of the rows take the weights' whole
  /// copies, as do lower tiles.
  int64_t getTileCost(int64_t height) const {
    constexpr int64_t once = 500;
    int64_t fewest = rowsOnM ? 72 : 40, weights = rowsOnM ? 0 : 14;
    return std::max(height, fewest) + weights + once / getSteps();
  }
  /// Whether tiles of a group may have these two neighbouring heights: from a
  /// queue. One is at most twice the other, so that no tile is left without
  /// rows.
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
  /// The number of the first map of input rows: weights that are multiplied
  /// from registers have one of codes and one of scales.
  int64_t getFirstRowMap() const { return fromRegisters ? 2 : 1; }
  /// Bytes of a run's `share` of a unit that are an innermost line of a box:
  /// the most that divide it, all of it or parts.
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
  /// Both consumers multiply the same 64 weight rows.
  bool sharesBlock() const { return !rowsOnM && getWeightRows() == kBlockRows; }
  /// Each consumer has 64 input rows of its own, and all weight rows.
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
  /// Weight rows of one chain of products, and their result columns.
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
  /// Whether tensor cores have tiles of that width, a multiple of 8: of int8,
  /// above 24, multiples of 16 alone.
  bool isWidth(int64_t width) const {
    constexpr int64_t multiple = 16, few = 24;
    return compute != ComputeType::Int8 || width <= few ||
           width % multiple == 0;
  }
  /// The width of the tensor cores' tile, whose other side is 64.
  int64_t getProductWidth(int64_t height) const {
    return hasRowsOnM(height) ? getBlockWeights(height) : height;
  }
  /// Accumulators of a thread.
  int64_t getAccumulators() const {
    return (getBlocks(getMaxHeight()) + promotes) *
           getProductWidth(getMaxHeight()) / 2;
  }

  //===--- Registers and shared memory ---===//

  /// Some threads of the producer copy rows, or scales, one by one.
  bool hasRowThreads() const { return !mapRows || copiesScales(); }
  /// Whether a CTA has less than half of a multiprocessor's registers, so that
  /// it begins beside CTAs of the launch before: its tiles are low.
  bool hasReducedRegisters() const {
    return !fromRegisters && getMaxHeight() <= ptxas::kHalfShareRows &&
           std::max(getAccumulators(), minAccumulators) <=
               ptxas::kHalfShareSums;
  }
  /// Registers of a thread when its CTA begins. Later consumers have what the
  /// producer leaves.
  int64_t getRegisters() const {
    return getRegisterShare(hasReducedRegisters() ? 2 : 1, getThreads());
  }
  /// What the product's registers depend on, by itself.
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
  /// Input rows of a tile of that height, for each unit of the depth of a step.
  int64_t getUnitRowBytes(int64_t height) const {
    return height * swizzledBytes;
  }
  int64_t getStageBytes() const {
    return std::max(getWeightBytes() +
                        getUnits() * getUnitRowBytes(getMaxHeight()),
                    minStageBytes);
  }
  /// Result columns of a block that a warp has, of weights on the side of 64.
  int64_t getWarpColumns(int64_t height) const {
    return getBlockColumns(height) / 4;
  }
  /// Result columns of an input row that are staged at once, before they go to
  /// memory: all of a consumer's, whose warps have some of each. With rows on
  /// the side of 64 a warp has whole rows, of which it stages a part.
  int64_t getStagedColumns(int64_t height) const {
    int64_t columns = getConsumerColumns(height);
    return hasRowsOnM(height) ? std::min(columns, kStagedBytes / resultBytes)
                              : columns;
  }
  /// Columns that a thread stores at once.
  int64_t getStoredColumns() const { return kChunkBytes / resultBytes; }
  /// 16 input rows are staged at once. From one of them to the next there is a
  /// chunk more, so that 8 rows meet all banks.
  int64_t getStagedStride(int64_t height) const {
    return getStagedColumns(height) * resultBytes + kChunkBytes;
  }
  /// What of a consumer's buffer is one's who stages alone: a warp's with rows
  /// on the side of 64, else the consumer's.
  int64_t getBufferBytes(int64_t height) const {
    return kStagedRows * getStagedStride(height);
  }
  /// Whether who stages alone has the same part of a consumer's buffer in all
  /// tiles: at all heights, and there is no partner with others.
  bool hasOneBuffer() const {
    return !minStagingBytes && llvm::all_of(tileRows, [&](int64_t height) {
      return hasRowsOnM(height) == hasRowsOnM(tileRows.front()) &&
             getBufferBytes(height) == getBufferBytes(tileRows.front());
    });
  }
  /// A consumer's. There is room for a chunk between what its warps have of a
  /// row, too: stages and heights were chosen, and measured, with that much.
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
  /// Scales of the weights of a step: one or two for every 64 weight rows.
  int64_t getScaleSlots() const {
    return weightsPerColumn * getWeightRows() / kBlockRows;
  }
  int64_t getScaleOffset() const { return stages * getStageBytes(); }
  /// A stage's, in whole chunks: scales of rows, then of weights.
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
  /// Consumers that share a block give half of their sums away.
  int64_t getExchangeBytes() const {
    return std::max(sharesBlock() ? kBlockRows * getMaxHeight() * 4 : 0,
                    minExchangeBytes);
  }
  /// Quantization: rows whose columns several warps have, in whole parts that
  /// the lanes of a warp share; 0 if there are none.
  int64_t getSharedRows() const {
    constexpr int64_t atOnce = 64;
    int64_t rows = 0;
    for (int64_t height : tileRows)
      if (findsScales && !splitsRows(height))
        rows = std::max(rows, (height + atOnce - 1) / atOnce * atOnce);
    return rows;
  }
  /// Each warp's row of largest magnitudes, 16 bits each.
  int64_t getMagnitudeOffset() const {
    return getExchangeOffset() + getExchangeBytes();
  }
  int64_t getMagnitudeStride() const { return 2 * getSharedRows(); }
  /// What follows from them for each row: two f32.
  static constexpr int64_t kDivisorBytes = 8;
  int64_t getDivisorOffset() const {
    return getMagnitudeOffset() + kConsumerWarps * getMagnitudeStride();
  }
  int64_t getBarrierOffset() const {
    return getDivisorOffset() + kDivisorBytes * getSharedRows();
  }
  /// Pairs of barriers: of the ring, then of the queue, whose numbers follow.
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
  /// Those of a partner.
  int64_t minStageBytes = 0, minStagingBytes = 0, minExchangeBytes = 0;
  int64_t minProducerRegisters = 0, minAccumulators = 0;
};

/// sm90.repack: what a CTA holds of a block of 64 rows of weights, in the order
/// of memory: the codes of a part of the depth, and how much less each row's
/// stored exponents are.
struct Repack {
  explicit Repack(tile::RepackOp op);

  static constexpr int64_t kExcessBytes = 4;

  /// Units of the depth that are a part; the last part may have fewer.
  int64_t rows, depth, codeBits, partUnits;
  int64_t getUnits() const { return depth / moe::Fragments::kDepth; }
  /// Of the codes of a row: all of them, those of a unit and of a part.
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

/// The other one of two products that run in one kernel side by side; null
/// where there is none.
tile::ContractOp getPartner(tile::ContractOp op);

/// The quantization of a product's input rows that its kernel begins with; null
/// where there is none.
tile::QuantizeOp getQuantization(tile::ContractOp op);

/// What a product with that config is in its kernel: next to its partner, if
/// there is one that has a config of this schedule.
Contract getShapeInKernel(tile::ContractOp op, tile::ConfigAttr config);

/// The maps that sm90.contract reads by: the weights, then, with `map_rows`,
/// the rows for each height.
llvm::SmallVector<tile::TensorMapAttr> getTensorMaps(tile::ContractOp op,
                                                     const Contract &shape);

} // namespace moec::sm90

#endif // MOEC_ANALYSIS_SM90_H
