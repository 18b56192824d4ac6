//===- Sm80.h - sizes behind the schedules sm80.* ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shapes of the schedules that run on every GPU from sm_80 on, shared by config
// selection and code emission.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SM80_H
#define MOEC_ANALYSIS_SM80_H

#include "moec/Analysis/ProductTypes.h"
#include "moec/Analysis/PtxasLimits.h"
#include "moec/Analysis/Schedules.h"
#include "moec/Analysis/TokenChunks.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace moec::sm80 {

using moec::kWarp;

/// Columns that one thread handles at once: as many as fit in 16 bytes, but a
/// divisor of the number of columns, so that no vector crosses the end of a
/// row.
int64_t getVectorLanes(mlir::MemRefType result);

/// The gemm with mma.sync or FMAs. A CTA of 4 warps multiplies `m` rows with
/// `n` columns (two weight rows each with a gate/up layout) in k tiles of `k`.
///
/// Quantized operands are converted to the compute type as they are read from
/// shared memory, with zero points, and with those scales that fewer elements
/// share than are decoded at once. Scales of a whole row, and global ones, are
/// applied after the loop. For other scales a k tile consists of one or more
/// parts, each accumulated separately. Minima are multiplied with the sums of
/// the rows' own elements.
///
/// Copies go in chunks of 16 bytes through `kStages` buffers of shared memory,
/// in which a row is padded by one chunk, so that reading a column of chunks
/// hits all banks. The sums reach the epilogue through the same memory.
struct Contract {
  Contract(tile::ContractOp op, tile::ConfigAttr config);

  static constexpr int64_t kThreads = 128;
  static constexpr int64_t kStages = 3;
  static constexpr int64_t kChunkBytes = 16;
  /// Warps of a CTA: along rows, along columns.
  static constexpr int64_t kWarpRows = 2;
  static constexpr int64_t kWarpColumns = 2;

  /// Rows of an operand, in memory and in a stage's buffer.
  struct Rows {
    /// Bits of an element; elements of a row (K), and of a k tile.
    int64_t bits, depth, k;

    /// Bytes of a number of elements, which fill whole bytes.
    int64_t getBytes(int64_t elements) const { return elements * bits / 8; }
    int64_t getChunkElements() const { return kChunkBytes * 8 / bits; }
    /// Chunks of a row per k tile.
    int64_t getChunks() const { return k / getChunkElements(); }
    /// Rows that the CTA's threads copy at once, one chunk each.
    int64_t getRowsPerCopy() const { return kThreads / getChunks(); }
    int64_t getStride() const { return getBytes(k) + kChunkBytes; }
    /// Rows of the global tensor are aligned to a chunk.
    bool isAligned() const { return depth * bits % (kChunkBytes * 8) == 0; }
  };

  bool isGrouped;
  int64_t groups, depth, columns;
  /// 2 with a layout (gate and up), else 1.
  int64_t weightsPerColumn;
  int64_t m, n, k, lanes;
  Rows input, weight;
  ComputeType compute;
  ScaleTimes scales;
  /// Elements along K that share the scales applied in the loop: a divisor of
  /// `k`, or all of it.
  int64_t partDepth;
  /// Each gate or up column has its own scale inside the loop.
  bool hasColumnScales;
  /// Weights have scales or zero points per element, applied before the mma.
  bool hasElementFactors;
  /// Scales applied inside the loop have minima beside them, for which the
  /// elements of input rows are summed.
  bool hasMinima;

  /// No tensor core has f32 precision.
  bool usesTensorCores() const { return compute != ComputeType::F32; }
  int64_t getPanels() const { return (columns + n - 1) / n; }
  int64_t getSteps() const { return (depth + k - 1) / k; }
  /// Parts of a k tile.
  int64_t getParts() const { return k / partDepth; }
  int64_t getWeightRows() const { return weightsPerColumn * n; }
  /// Offset of the weights in a stage, behind the input rows, in weight rows.
  int64_t getFirstWeightRow() const {
    return llvm::divideCeil(m * input.getStride(), weight.getStride());
  }
  int64_t getStageBytes() const {
    return (getFirstWeightRow() + getWeightRows()) * weight.getStride();
  }
  /// Accumulators of a thread: those of a part are separate.
  int64_t getAccumulators() const {
    return m * getWeightRows() / kThreads * (scales.areInLoop() ? 2 : 1);
  }
  int64_t getMaxAccumulators() const {
    return ptxas::getMaxFragmentSums(hasColumnScales);
  }
  /// Stride of a row of sums, in f32.
  int64_t getSumStride() const { return n + 8; }
  int64_t getSharedBytes() const;
};

/// Dense gemm of few columns. The `threads` threads of a CTA split K and
/// multiply up to `m` rows with `n` columns. With FMAs, a thread has a sum per
/// row and column; with `k`, each warp has a k tile of the tensor cores.
struct Gemv {
  Gemv(tile::ContractOp op, tile::ConfigAttr config);

  /// Bytes of a row that a thread reads at once.
  static constexpr int64_t kPieceBytes = 16;
  /// Elements of a row that a warp reads at once for the tensor cores.
  static constexpr int64_t kTensorDepth = 32;

  int64_t depth, columns, elementBytes;
  int64_t m, n, k, threads;

  bool usesTensorCores() const { return k > 0; }
  int64_t getPanels() const { return (columns + n - 1) / n; }
  int64_t getPieceElements() const { return kPieceBytes / elementBytes; }
  /// Chunks of a row.
  int64_t getPieces() const { return depth / getPieceElements(); }
  int64_t getTensorSteps() const { return depth / kTensorDepth; }
  int64_t getWarps() const { return threads / kWarp; }
  /// Chunks of a lane per k tile, for one of every 8 rows and columns.
  int64_t getPiecesPerStep() const { return (m + n) / 8; }
  /// k tiles that a warp requests at once.
  int64_t getStepsAtOnce() const {
    int64_t most =
        std::max<int64_t>(ptxas::kGemvTensorPieces / getPiecesPerStep(), 1);
    return std::clamp<int64_t>(getTensorSteps() / getWarps(), 1, most);
  }

  // Stride of the sums of each warp in shared memory. Those of the tensor cores
  // are padded, so that the lanes of a warp hit all banks.
  int64_t getSumStride() const { return usesTensorCores() ? n + 8 : n; }
  int64_t getWarpSums() const { return m * getSumStride(); }
  /// Rounded up to vectors of 16 bytes.
  int64_t getSumBytes() const {
    return llvm::alignTo(4 * getWarps() * getWarpSums(), 16);
  }
};

/// Quantization. A CTA of `kThreads` takes `panel` elements of the list of all
/// rows' groups, in vectors of `lanes`. Lanes of a warp share a group; a thread
/// has either one vector of each of several groups, or several vectors of one.
///
/// With one scale per row, a CTA takes whole rows, `panel` elements of one at a
/// time, one vector per thread.
struct Quantize {
  Quantize(tile::QuantizeOp op, tile::ConfigAttr config);

  static constexpr int64_t kThreads = 128;
  /// Maximum vectors that a lane holds, in f32.
  static constexpr int64_t kMostHeld = 8;

  int64_t columns, lanes, panel;
  /// Neighbours that share a scale, or moe::ScaleGroup::kAll.
  int64_t size;

  bool areRows() const { return size == moe::ScaleGroup::kAll; }
  /// Whether a warp holds a whole row in registers.
  bool areHeld() const { return areRows() && getHeldVectors() <= kMostHeld; }
  /// Vectors of such a row per lane, and rows that a warp holds at once.
  int64_t getHeldVectors() const {
    return (columns + kWarp * lanes - 1) / (kWarp * lanes);
  }
  int64_t getHeldRows() const { return kMostHeld / getHeldVectors(); }
  /// Groups of a row; the last one may be smaller.
  int64_t getRowGroups() const { return (columns + size - 1) / size; }
  /// Threads that share a group, and its vectors per thread.
  int64_t getLanes() const {
    return size / lanes < kWarp ? size / lanes : kWarp;
  }
  int64_t getVectors() const { return size / (lanes * getLanes()); }
  int64_t getCtaGroups() const { return panel / size; }
  int64_t getGroupsAtOnce() const { return kThreads / getLanes(); }
};

/// Maximum static shared memory of a CTA.
constexpr int64_t kStaticSharedBytes = 48 * 1024;

/// Warps of a CTA that routes tokens and counts their slots, and of the one CTA
/// that ranks all slots: it routes few, and more warps start later.
constexpr int64_t kCountingWarps = 32, kRankingWarps = 16;

/// Routing. A CTA of `threads` routes the tokens of a chunk, one token per warp
/// at a time.
struct TopK {
  TopK(tile::TopKOp op, tile::ConfigAttr config);

  /// Storage of a warp's row: keys in registers; values and keys in shared
  /// memory; or none, so that keys are recomputed at each use.
  enum class Row { Held, Stored, Streamed };

  Row row;
  int64_t threads;
  /// `most` is 0 for any number.
  TokenChunks chunks;

  int64_t getWarps() const { return threads / kWarp; }
  static Row getRow(tile::TopKOp op);
  /// Whether the slots of a row in registers are found by counting, for each of
  /// the few keys that can be selected, the keys before it.
  static bool isRanked(tile::TopKOp op);
  /// Bytes of shared memory per warp.
  static int64_t getWarpBytes(tile::TopKOp op);
};

/// Without a list of local experts, all experts are local.
int64_t getNumLocalExperts(tile::RankOp op);
int64_t getNumLocalExperts(tile::CountSlotsOp op);

/// Counts slots per expert: a CTA of `threads` counts the slots of a chunk, for
/// `panel` local experts at a time.
struct CountSlots {
  CountSlots(tile::CountSlotsOp op, tile::ConfigAttr config);

  /// Limited by the counters in shared memory.
  static constexpr int64_t kMaxPanel = 8192;

  int64_t numLocal, threads, panel;
  TokenChunks chunks;

  /// i32 elements of shared memory: slots without a valid expert have a counter
  /// too.
  int64_t getWords() const { return panel + 1; }
};

/// Sort by expert. A CTA of `threads` gives positions to the slots of a chunk,
/// of at least `chunks.tokens` tokens, and counts all other slots or reads
/// their `counts`.
///
/// The CTA's own slots are divided into runs, one per warp while shared memory
/// lasts. Counters exist for `panel` local experts at a time: a row of them per
/// run, and one more. Rows are padded to whole warps, which sum over 32 experts
/// and then over these groups.
///
/// If there are few slots and no counts, the first CTA compares each with all.
/// If the kernel's `load` says that there are never more, there are no
/// counters.
struct Rank {
  Rank(tile::RankOp op, tile::ConfigAttr config);

  /// About one CTA per SM: each further one would only read all ids, or counts,
  /// once more.
  static constexpr int64_t kMaxCtas = 128;
  static constexpr int64_t kSlotsPerCta = 1024;
  /// Limited by the counters of one run in shared memory.
  static constexpr int64_t kMaxPanel = 4096;
  /// Up to this many slots, counting takes longer than comparing each with all.
  static constexpr int64_t kFewSlots = 256;

  int64_t numLocal, threads, panel;
  TokenChunks chunks;
  bool hasCounts;
  /// Maximum number of slots, if known.
  std::optional<int64_t> maxSlots;

  bool hasPanels() const { return panel < numLocal; }
  /// Stride of a row of counters, in i32.
  int64_t getStride() const;
  /// Sums of groups, padded to whole warps.
  int64_t getGroups() const;
  /// Runs that a CTA's own slots are divided into.
  int64_t getRuns() const;
  /// i32 elements of shared memory.
  int64_t getWords(int64_t runs) const;
  /// Maximum number of slots that are compared: a power of two, at most the
  /// threads; 0 with too many experts or with counts.
  int64_t getFewSlots() const;
  bool isAlwaysFew() const { return maxSlots && *maxSlots <= getFewSlots(); }
};

} // namespace moec::sm80

#endif // MOEC_ANALYSIS_SM80_H
