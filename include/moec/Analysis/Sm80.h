//===- Sm80.h - sizes behind the schedules sm80.* ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the choice of a config and the emission of its code both have to know.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SM80_H
#define MOEC_ANALYSIS_SM80_H

#include "moec/Analysis/ProductTypes.h"
#include "moec/Analysis/PtxasLimits.h"
#include "moec/Analysis/Schedules.h"
#include "moec/Analysis/TokenChunks.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace moec::sm80 {

constexpr int64_t kWarp = 32;

/// Columns that one thread handles at once: as many as 16 bytes hold, but a
/// divisor of the number of columns, so that no vector passes a row's end.
int64_t getVectorLanes(mlir::MemRefType result);

/// sm80.contract: a CTA of 4 warps multiplies `m` rows with `n` columns (each
/// of them two weight rows, with a layout) in steps of `k`.
///
/// Quantized operands become the compute type on their way from shared memory,
/// with zero points, and with scales of fewer elements than are decoded at
/// once. Scales of a whole row are applied behind the loop, and so are global
/// ones; of others a step has one part or several, whose sums are apart from
/// those of the parts before. Minima meet the sums of the rows' own elements.
///
/// Copies go in chunks of 16 bytes through `kStages` buffers of shared memory,
/// in which a row is padded by one chunk, so that reading a column of chunks
/// meets all banks. The sums go through the same memory to the epilogue.
struct Contract {
  Contract(tile::ContractOp op, tile::ConfigAttr config);

  static constexpr int64_t kThreads = 128;
  static constexpr int64_t kStages = 3;
  static constexpr int64_t kChunkBytes = 16;
  /// The warps of a CTA: rows times columns.
  static constexpr int64_t kWarpRows = 2;
  static constexpr int64_t kWarpColumns = 2;

  /// An operand's rows: in memory, and in a stage's buffer.
  struct Rows {
    /// Bits of an element; elements of a row, and of a step.
    int64_t bits, depth, k;

    /// Bytes of elements, which are whole ones.
    int64_t getBytes(int64_t elements) const { return elements * bits / 8; }
    int64_t getChunkElements() const { return kChunkBytes * 8 / bits; }
    /// Chunks of a row per step.
    int64_t getChunks() const { return k / getChunkElements(); }
    /// Rows that the CTA's threads copy at a time, a chunk each.
    int64_t getRowsPerCopy() const { return kThreads / getChunks(); }
    int64_t getStride() const { return getBytes(k) + kChunkBytes; }
    /// Rows of the global tensor lie on multiples of a chunk.
    bool isAligned() const { return depth * bits % (kChunkBytes * 8) == 0; }
  };

  bool isGrouped;
  int64_t groups, depth, columns;
  /// 2 with a layout: gate and up.
  int64_t weightsPerColumn;
  int64_t m, n, k, lanes;
  Rows input, weight;
  ComputeType compute;
  ScaleTimes scales;
  /// Contracted elements that share the scales that are applied in the loop: a
  /// divisor of `k`, or all of it.
  int64_t partDepth;
  /// Columns of a projection have scales of their own inside the loop.
  bool hasColumnScales;
  /// Elements of weights have scales, or zero points, before they are
  /// multiplied.
  bool hasElementFactors;
  /// Scales that are applied inside the loop have minima beside them, for which
  /// the elements of input rows are added up.
  bool hasMinima;

  /// f32 has no tensor core of its precision.
  bool usesTensorCores() const { return compute != ComputeType::F32; }
  int64_t getPanels() const { return (columns + n - 1) / n; }
  int64_t getSteps() const { return (depth + k - 1) / k; }
  /// Those of a step.
  int64_t getParts() const { return k / partDepth; }
  int64_t getWeightRows() const { return weightsPerColumn * n; }
  /// Behind the input rows of a stage, counted in rows of weights.
  int64_t getFirstWeightRow() const {
    return llvm::divideCeil(m * input.getStride(), weight.getStride());
  }
  int64_t getStageBytes() const {
    return (getFirstWeightRow() + getWeightRows()) * weight.getStride();
  }
  /// Accumulators of a thread: those of a part are apart.
  int64_t getAccumulators() const {
    return m * getWeightRows() / kThreads * (scales.areInLoop() ? 2 : 1);
  }
  int64_t getMaxAccumulators() const {
    return ptxas::getMaxFragmentSums(hasColumnScales);
  }
  /// f32 elements from one row of sums to the next.
  int64_t getSumStride() const { return n + 8; }
  int64_t getSharedBytes() const;
};

/// sm80.gemv: a CTA of `threads` threads, which share the depth, multiplies up
/// to `m` rows with `n` columns of a dense product: with FMAs, a sum of each
/// row and column per thread, or with `k`, a step of the tensor cores per warp.
struct Gemv {
  Gemv(tile::ContractOp op, tile::ConfigAttr config);

  /// What a thread reads of a row at once.
  static constexpr int64_t kPieceBytes = 16;
  /// Elements of a row that a warp reads at once for the tensor cores.
  static constexpr int64_t kTensorDepth = 32;

  int64_t depth, columns, elementBytes;
  int64_t m, n, k, threads;

  bool usesTensorCores() const { return k > 0; }
  int64_t getPanels() const { return (columns + n - 1) / n; }
  int64_t getPieceElements() const { return kPieceBytes / elementBytes; }
  /// Pieces of a row.
  int64_t getPieces() const { return depth / getPieceElements(); }
  int64_t getTensorSteps() const { return depth / kTensorDepth; }
  int64_t getWarps() const { return threads / kWarp; }
  /// What a lane has of the rows and of the columns of a step, where it has one
  /// of 8.
  int64_t getPiecesPerStep() const { return (m + n) / 8; }
  /// Steps that a warp asks for at once, of those that all warps have.
  int64_t getStepsAtOnce() const {
    int64_t most =
        std::max<int64_t>(ptxas::kGemvTensorPieces / getPiecesPerStep(), 1);
    return std::clamp<int64_t>(getTensorSteps() / getWarps(), 1, most);
  }

  // Shared memory has the sums of each warp. Those of the tensor cores are
  // padded, so that the lanes of a warp meet all banks.
  int64_t getSumStride() const { return usesTensorCores() ? n + 8 : n; }
  int64_t getWarpSums() const { return m * getSumStride(); }
  /// In whole vectors of 16 bytes.
  int64_t getSumBytes() const {
    return llvm::alignTo(4 * getWarps() * getWarpSums(), 16);
  }
};

/// sm80.quantize: a CTA of `kThreads` takes `panel` elements of the list of all
/// rows' groups, in vectors of `lanes`. Lanes of a warp share a group, and a
/// thread has a vector of several groups, or several vectors of one.
///
/// Where a scale is that of a row, a CTA takes whole rows, `panel` elements of
/// one at a time, a vector per thread.
struct Quantize {
  Quantize(tile::QuantizeOp op, tile::ConfigAttr config);

  static constexpr int64_t kThreads = 128;
  /// The most vectors that a lane holds, f32.
  static constexpr int64_t kMostHeld = 8;

  int64_t columns, lanes, panel;
  /// Neighbours that share a scale, or moe::ScaleGroup::kAll.
  int64_t size;

  /// Neighbours of which a part of a warp has a group.
  static bool isGroup(int64_t size) {
    return size == 32 || size == 64 || size == 128;
  }
  bool areRows() const { return size == moe::ScaleGroup::kAll; }
  /// Whether a warp holds a whole row in registers.
  bool areHeld() const { return areRows() && getHeldVectors() <= kMostHeld; }
  /// Vectors of a lane of a row that a warp holds, and rows that it holds side
  /// by side.
  int64_t getHeldVectors() const {
    return (columns + kWarp * lanes - 1) / (kWarp * lanes);
  }
  int64_t getHeldRows() const { return kMostHeld / getHeldVectors(); }
  /// Groups of a row; the last one may be smaller.
  int64_t getRowGroups() const { return (columns + size - 1) / size; }
  /// Threads that share a group, and vectors of it that each has.
  int64_t getLanes() const {
    return size / lanes < kWarp ? size / lanes : kWarp;
  }
  int64_t getVectors() const { return size / (lanes * getLanes()); }
  int64_t getCtaGroups() const { return panel / size; }
  int64_t getGroupsAtOnce() const { return kThreads / getLanes(); }
};

/// The most static shared memory of a CTA.
constexpr int64_t kStaticSharedBytes = 48 * 1024;

/// Warps of a CTA that routes tokens and counts their slots, and of the one
/// that ranks all: it routes few, and more warps start later.
constexpr int64_t kCountingWarps = 32, kRankingWarps = 16;

/// sm80.top_k: a CTA of `threads` routes the tokens of a chunk, a warp one at a
/// time.
struct TopK {
  TopK(tile::TopKOp op, tile::ConfigAttr config);

  /// What a warp has of a row: keys in registers; or values and keys in shared
  /// memory; or neither, so that they are computed again wherever they are
  /// needed.
  enum class Row { Held, Stored, Streamed };

  Row row;
  int64_t threads;
  /// `most` is 0 where there may be any number.
  TokenChunks chunks;

  int64_t getWarps() const { return threads / kWarp; }
  static Row getRow(tile::TopKOp op);
  /// Whether the slots of a held row are found by counting what comes before
  /// each of the few keys that can be selected.
  static bool isRanked(tile::TopKOp op);
  /// Bytes of shared memory of a warp.
  static int64_t getWarpBytes(tile::TopKOp op);
};

/// Without a list of them, all.
int64_t getNumLocalExperts(tile::RankOp op);
int64_t getNumLocalExperts(tile::CountSlotsOp op);

/// sm80.count_slots: a CTA of `threads` counts the slots of a chunk, those of
/// `panel` local experts at a time.
struct CountSlots {
  CountSlots(tile::CountSlotsOp op, tile::ConfigAttr config);

  /// Shared memory has counters for more.
  static constexpr int64_t kMaxPanel = 8192;

  int64_t numLocal, threads, panel;
  TokenChunks chunks;

  /// i32 elements of shared memory: slots of no expert have a counter as well.
  int64_t getWords() const { return panel + 1; }
};

/// sm80.rank: a CTA of `threads` places the slots of a chunk, which are those
/// of at least `chunks.tokens` tokens, and counts all others, or has `counts`
/// of them.
///
/// Its own slots are cut into runs, one per warp while shared memory lasts.
/// There are counters for `panel` local experts at a time: a row of them per
/// run, and one more. The rows are padded to whole warps, which sum over 32
/// experts, and then over these groups.
///
/// The first CTA compares few slots with all, unless they have been counted.
/// Where a kernel's `load` says that there never are more, there are no
/// counters.
struct Rank {
  Rank(tile::RankOp op, tile::ConfigAttr config);

  /// About as many CTAs as a GPU has multiprocessors: more would only read the
  /// ids, or counts, once more each.
  static constexpr int64_t kMaxCtas = 128;
  static constexpr int64_t kSlotsPerCta = 1024;
  /// Shared memory has counters of one run for as many.
  static constexpr int64_t kMaxPanel = 4096;
  /// Up to so many, counting takes longer than comparing each with all.
  static constexpr int64_t kFewSlots = 256;

  int64_t numLocal, threads, panel;
  TokenChunks chunks;
  bool hasCounts;
  /// The most slots that there are, where that is known.
  std::optional<int64_t> maxSlots;

  bool hasPanels() const { return panel < numLocal; }
  /// i32 elements from one row of counters to the next.
  int64_t getStride() const;
  /// The sums of groups, padded to whole warps.
  int64_t getGroups() const;
  /// Runs that a CTA's own slots are cut into.
  int64_t getRuns() const;
  /// i32 elements of shared memory.
  int64_t getWords(int64_t runs) const;
  /// How many slots are few: a power of two, no more than threads; 0 where
  /// there are too many experts for it, or they have been counted.
  int64_t getFewSlots() const;
  bool isAlwaysFew() const { return maxSlots && *maxSlots <= getFewSlots(); }
};

} // namespace moec::sm80

#endif // MOEC_ANALYSIS_SM80_H
