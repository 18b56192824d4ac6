//===- PtxasLimits.h - measured limits of ptxas -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Measured limits of ptxas 13: how much of a kernel fits in registers without
// spilling, and how long ptxas takes for how much code. No document states
// them. Each limit names the tests that hold it: they assemble kernels at the
// limit, and fail if one spills, makes ptxas complain or takes too long. Suites
// are those of unittests/Target/PtxasLimitsTest.cpp unless another one is
// named.
//
// The number of registers belongs to the architecture (Parts.h).
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_PTXASLIMITS_H
#define MOEC_SCHEDULES_PTXASLIMITS_H

#include <algorithm>
#include <cstdint>

namespace moec::ptxas {

//===----------------------------------------------------------------------===//
// All kernels
//===----------------------------------------------------------------------===//

/// Maximum seconds of processor time of ptxas per kernel. NvptxMatrix,
/// EpiloguesAssembleQuickly, and ModelsTest for the layers of models.
inline constexpr double kMaxSeconds = 1;

/// CTAs per SM that ptxas must leave registers for (`.minnctapersm`). Left to
/// itself, it spills in favour of more CTAs than shared memory has room for.
/// NvptxMatrix; test/Conversion/TileToNVVM/gpu-kernel-entry.mlir shows how it
/// is told.
inline constexpr int32_t kFewestCtas = 1;

//===----------------------------------------------------------------------===//
// sm80.gemm, gpu.gemv
//===----------------------------------------------------------------------===//

/// Accumulators per thread of sm80.gemm with tensor cores that fit beside
/// addresses, fragments and scales: fewer if columns have scales of their own
/// inside the loop. SumsNextToFragments; FMAs, which are chosen with half as
/// many, fit in NvptxMatrix.
constexpr int64_t getMaxFragmentSums(bool hasColumnScales) {
  return hasColumnScales ? 64 : 128;
}

/// gpu.gemv with FMAs: accumulators per thread that fit beside chunks of rows
/// and weights in tiles of 8 rows and 4 columns, and chunks of weights that a
/// thread has in flight. SumsNextToChunks.
inline constexpr int64_t kGemvSums = 32, kGemvChunks = 8;
/// gpu.gemv with tensor cores: chunks of both operands that a lane has in
/// flight. SumsNextToChunks.
inline constexpr int64_t kGemvTensorChunks = 16;

//===----------------------------------------------------------------------===//
// Adapters
//===----------------------------------------------------------------------===//

/// gpu.lora_parts and gpu.lora_update: registers of a thread (`.maxnreg`), so
/// that an SM holds two CTAs of 8 warps; those for loads in flight, sums and
/// addresses; those that the end of rows and gpu.lora_update need besides.
/// PartsFitInRegisters.
inline constexpr int64_t kAdapterRegisters = 128, kAdapterLoadRegisters = 112,
                         kAdapterTailRegisters = 8,
                         kAdapterUpdateRegisters = 16;

//===----------------------------------------------------------------------===//
// Routing
//===----------------------------------------------------------------------===//

/// gpu.top_k: keys of a row per lane, if the row is held in registers.
/// RoutingFits.
inline constexpr int64_t kKeysPerLane = 16;

/// gpu.sort_by_expert: slots of other chunks that a thread has in flight; fewer
/// if experts are processed in rounds, because more values then stay in
/// registers. NvptxMatrix (rank, rank_rounds).
inline constexpr int64_t kRankedLoads = 8, kRankedRoundLoads = 4;
/// Counts of an expert that a thread adds at once, one per chunk; fewer if the
/// thread has several experts. RoutingFits.
inline constexpr int64_t kCountLoads = 16, kWideCountLoads = 15;

//===----------------------------------------------------------------------===//
// sm90.gemm: registers
//===----------------------------------------------------------------------===//

/// The properties that the registers of an sm90.gemm kernel depend on.
struct Sm90Shape {
  /// The largest BLOCK_M; the number of its values.
  int64_t rows, blockMs;
  /// Accumulators of a consumer thread, including those of a k tile with
  /// promotion.
  int64_t sums;
  /// Input rows are the M side of wgmma.
  bool noSwapAB;
  /// Each k tile is accumulated separately (promotion).
  bool promotes;
  /// Tensor maps load the input rows, so that no thread copies them.
  bool mapRows;
  /// Threads copy scales with each k tile.
  bool copiesScales;
  /// Threads that copy scales quantize the rows too.
  bool quantizesRows;
  /// Weights are multiplied from registers, by `consumers` warpgroups.
  bool fromRegisters;
  int64_t consumers;
  /// CTAs of a cluster share the k tiles of a tile.
  bool splitsK = false;
};

/// Maximum accumulators of a thread beside the addresses of a k tile and the
/// epilogue. SumsOfAStepFitInRegisters, ScalesOfRowsFitInRegisters,
/// WarpgroupsShareRegisters.
constexpr int64_t getMaxSums(const Sm90Shape &shape) {
  if (shape.fromRegisters)
    return 80;
  if (shape.noSwapAB)
    return 192;
  if (shape.promotes)
    return 168;
  return !shape.mapRows || shape.copiesScales ? 160 : 192;
}

/// Maximum rows and accumulators of a CTA that fits in half of an SM's
/// registers, and the registers that its producer threads keep, if they copy
/// rows or quantize them too. WarpgroupsShareRegisters,
/// SumsOfAStepFitInRegisters, QuantizedRowsFitInRegisters.
inline constexpr int64_t kHalfShareRows = 32, kHalfShareSums = 48,
                         kHalfShareCopying = 56, kHalfShareQuantizing = 64;
/// The same of sums that CTAs of a cluster send to each other.
/// SharesOfKFitInRegisters.
inline constexpr int64_t kHalfShareShares = 24;

/// Registers that producer threads keep: threads that copy rows need two for
/// each row and for its scales; several values of BLOCK_M take a few more.
/// WarpgroupsShareRegisters, SumsOfAStepFitInRegisters,
/// ScalesOfRowsFitInRegisters.
constexpr int64_t getCopyingRegisters(const Sm90Shape &shape) {
  if (shape.fromRegisters && shape.mapRows)
    return 56;
  if (shape.fromRegisters)
    return shape.rows <= 64 && shape.blockMs == 1 ? 72 : 104;
  if (shape.noSwapAB && shape.promotes)
    return shape.mapRows ? 56 : shape.sums > 128 ? 72 : 88;
  bool isOne = shape.blockMs == 1;
  if (shape.mapRows && shape.promotes)
    return isOne ? 40 : 56;
  if (shape.mapRows)
    return shape.sums <= 160 ? 40 : 24;
  if (shape.rows <= (shape.promotes ? 96 : 144) && isOne)
    return 72;
  return shape.rows <= (shape.promotes ? 144 : 160) ? 88 : 104;
}

/// Maximum sum of a tile's accumulators, a k tile's and the scales of its rows:
/// a consumer with two blocks of weights has scales for each.
/// SumsOfAStepFitInRegisters.
constexpr int64_t getMaxSumsAndScales(int64_t blocks) {
  return blocks > 1 ? 152 : 160;
}

//===----------------------------------------------------------------------===//
// sm90.gemm: candidates
//===----------------------------------------------------------------------===//

// A user's config is held to the limits above. Beyond the limits below some
// epilogues spill and others do not, so that nothing beyond them is a
// candidate.

/// BLOCK_M where threads copy rows. CandidatesDoNotSpill.
inline constexpr int64_t kCopiedRows = 192;
/// Accumulators where threads quantize the rows that they copy.
/// QuantizedRowsFitInRegisters.
inline constexpr int64_t kQuantizedSums = 40;
/// Where threads copy adapters: BLOCK_M, and registers of these threads.
/// AdaptersFitInRegisters.
inline constexpr int64_t kAdapterRows = 144, kAdapterCopying = 112;
/// Swapped A and B with promotion: values of BLOCK_M, and accumulators beside
/// them. CandidatesDoNotSpill.
inline constexpr int64_t kPromotedBlockMs = 2, kPromotedSums = 128;
/// Weights from registers with three consumers, which have fewer registers than
/// two: values of BLOCK_M, their sum, and the largest if there are several.
/// RegistersSufficeForThree.
inline constexpr int64_t kBlockMsOfThree = 3, kRowsOfThree = 112,
                         kRowsOfManyBlockMs = 48;
/// Weights from registers with two consumers: values of BLOCK_M with at most
/// `kSumsOfFiveBlockMs` accumulators, and with more; and how many fewer if rows
/// of bf16 have scales. PackedTilesOfBytesFitInRegisters,
/// DequantizedRowsFitInRegisters.
inline constexpr int64_t kBlockMsOfTwo = 5, kSumsOfFiveBlockMs = 64,
                         kBlockMsOfManySums = 4, kBlockMsOfRowScales = 1;
/// Registers for addresses, fragments and operands of the epilogue beside the
/// accumulators of weights from registers, where words of packed tiles are
/// loaded early. RegistersSufficeForThree, MinimaAndBooksFitInRegisters.
inline constexpr int64_t kBesideEarlyWords = 132;
/// Rows on M with promotion: where threads copy rows and there are more than
/// `kSumsOfAnyEpilogue` accumulators, the maximum lines of an epilogue, as
/// counted by `sm90::estimateEpilogue`. CandidatesDoNotSpill.
inline constexpr int64_t kSumsOfAnyEpilogue = 128, kShortEpilogue = 19;

//===----------------------------------------------------------------------===//
// sm90.gemm: lines of PTX
//===----------------------------------------------------------------------===//

/// Maximum lines of all epilogues of a kernel: of each BLOCK_M, and of both
/// gemms if two are joined. A candidate's epilogues take ptxas 0.4 s alone, 0.9
/// s beside the other kernels of a layer. The limit is higher if one config is
/// to suit any load, because the gemm then has no other kernel.
/// EpiloguesAssembleQuickly, NvptxMatrix, ModelsTest.
inline constexpr int64_t kMaxLines = 4800, kMaxLinesOfAnyLoad = 6000;

/// Lines of tiles with more than `kSlowRows` rows take ptxas `kSlowness` times
/// as long, because it is short of registers. EpiloguesAssembleQuickly.
inline constexpr int64_t kSlowRows = 160, kSlowness = 4;

/// The table of tiles: groups of a lane whose counts are loaded at once, and
/// groups that are tiled by one body of code, in a loop. With 512 experts a
/// lane has 16 groups, whose unrolled code was a quarter of a kernel.
/// ModelsTest (qwen3-next).
inline constexpr int64_t kGroupsAtOnce = 16, kCutAtOnce = 2;

} // namespace moec::ptxas

#endif // MOEC_SCHEDULES_PTXASLIMITS_H
