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

#include "moec/Dialect/Tile/Tile.h"

#include <algorithm>

namespace moec::sm90 {

/// sm90.contract: a CTA of three warpgroups multiplies `n` columns of weights
/// (each of them two weight rows, with a layout) with up to `bodies.back()`
/// input rows, in steps of `k`. One warpgroup produces, two consume.
///
/// Weight rows are on the side of 64 of the tensor cores' tile, input rows on
/// the other, whose width is a multiple of 8: few rows cost little. A CTA has
/// four blocks of 64 weight rows, two per consumer, or two, or one that both
/// consumers share: each multiplies half of every step, then they exchange sums
/// so that each has half of the input rows.
///
/// With a layout 8 gate rows and the 8 up rows of the same columns follow one
/// another in a block, so that a thread has gate and up of a column.
///
/// Shared memory: `stages` buffers of one step each, first the weights, then
/// the input rows; a place where results wait for their copy to memory, and one
/// for sums that consumers exchange; the barriers; a table of all groups.
struct Contract {
  Contract(tile::ContractOp op, tile::ConfigAttr config);

  static constexpr int64_t kWarpgroup = 128;
  static constexpr int64_t kConsumers = 2;
  static constexpr int64_t kThreads = (1 + kConsumers) * kWarpgroup;
  /// Of the producing warpgroup: those that copy rows, when no map does.
  static constexpr int64_t kRowThreads = 96;
  /// Of the tensor cores' tile.
  static constexpr int64_t kBlockRows = 64;
  /// Bytes of a row that one instruction multiplies.
  static constexpr int64_t kProductBytes = 32;
  /// A step is one row of the 128-byte swizzle, whatever the elements.
  static constexpr int64_t kStepBytes = 128;
  static constexpr int64_t kStepProducts = kStepBytes / kProductBytes;
  static constexpr int64_t kSwizzleBytes = 1024;
  static constexpr int64_t kChunkBytes = 16;
  static constexpr int64_t kMaxBody = 256;
  /// The producer publishes a step after the next one, and a consumer frees a
  /// step when it has begun the next one.
  static constexpr int64_t kMinStages = 3, kMaxStages = 16;
  /// Rows of gate, then of up.
  static constexpr int64_t kPairedRows = 8;
  /// Buffers of results per consumer.
  static constexpr int64_t kStagings = 2;
  /// A group's first row and first tile.
  static constexpr int64_t kTableBytes = 8;

  bool isGrouped;
  int64_t groups, depth, columns;
  /// 2 with a layout: gate and up.
  int64_t planes;
  int64_t elementBytes, resultBytes;
  int64_t n, k, stages;
  llvm::SmallVector<int64_t> bodies;
  /// Input rows come by tensor maps too, one per body.
  bool mapRows;

  int64_t getPanels() const { return (columns + n - 1) / n; }
  int64_t getSteps() const { return (depth + k - 1) / k; }
  int64_t getMaxBody() const { return bodies.back(); }
  int64_t getWeightRows() const { return planes * n; }
  /// Both consumers multiply the same weight rows.
  bool sharesBlock() const { return getWeightRows() == kBlockRows; }
  /// 64-row blocks of weights of one consumer, and the result columns of one.
  int64_t getBlocks() const {
    return sharesBlock() ? 1 : getWeightRows() / (kConsumers * kBlockRows);
  }
  int64_t getBlockColumns() const { return kBlockRows / planes; }
  int64_t getConsumerColumns() const { return getBlocks() * getBlockColumns(); }
  /// Accumulators of a thread.
  int64_t getAccumulators() const { return getBlocks() * getMaxBody() / 2; }
  /// Registers of a thread: all of them together fit in 64 Ki. Those that copy
  /// rows keep two for each of theirs.
  int64_t getProducerRegisters() const {
    return mapRows ? 40 : getMaxBody() <= 160 ? 72 : 104;
  }
  int64_t getConsumerRegisters() const {
    return 252 - getProducerRegisters() / 2;
  }

  int64_t getWeightBytes() const { return getWeightRows() * kStepBytes; }
  int64_t getStageBytes() const {
    return getWeightBytes() + getMaxBody() * kStepBytes;
  }
  /// Input rows whose results wait for their copy together; a multiple of 16.
  int64_t getStagedRows() const {
    return std::max<int64_t>(16, 1024 / getConsumerColumns());
  }
  /// From one row of them to the next: a chunk more, so that 8 rows meet all
  /// banks.
  int64_t getStagedStride() const {
    return getConsumerColumns() * resultBytes + kChunkBytes;
  }
  int64_t getStagingBytes() const {
    return resultBytes == 2 ? getStagedRows() * getStagedStride() : 0;
  }
  int64_t getStagingOffset() const { return stages * getStageBytes(); }
  int64_t getExchangeOffset() const {
    return getStagingOffset() + kConsumers * kStagings * getStagingBytes();
  }
  /// Consumers that share a block give half of their sums away.
  int64_t getExchangeBytes() const {
    return sharesBlock() ? kBlockRows * getMaxBody() * 4 : 0;
  }
  int64_t getBarrierOffset() const {
    return getExchangeOffset() + getExchangeBytes();
  }
  int64_t getTableOffset() const { return getBarrierOffset() + 16 * stages; }
  int64_t getSharedBytes() const {
    return getTableOffset() + kTableBytes * (groups + 1);
  }
};

/// The maps that sm90.contract reads by: the weights, then, with `map_rows`,
/// the rows for each body.
llvm::SmallVector<tile::TensorMapAttr> getTensorMaps(tile::ContractOp op,
                                                     const Contract &shape);

} // namespace moec::sm90

#endif // MOEC_ANALYSIS_SM90_H
