//===- PtxasLimits.h - what ptxas has registers and time for ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How much of a kernel ptxas keeps in registers without spilling, and how much
// code it takes a second for, is written nowhere: these numbers were found by
// trying, with ptxas 13. All of them are here, each beside the tests that hold
// it: they assemble kernels at the limit, and fail where one spills, makes
// ptxas complain or takes it too long. Suites are those of
// unittests/Target/PtxasLimitsTest.cpp unless another one is named.
//
// How many registers there are is a matter of the architecture (Parts.h).
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_PTXASLIMITS_H
#define MOEC_ANALYSIS_PTXASLIMITS_H

#include <algorithm>
#include <cstdint>

namespace moec::ptxas {

//===----------------------------------------------------------------------===//
// All kernels
//===----------------------------------------------------------------------===//

/// Seconds of processor time that a kernel may take ptxas. NvptxMatrix,
/// EpiloguesAssembleQuickly, and ModelsTest for the layers of models.
inline constexpr double kMaxSeconds = 1;

/// CTAs of a kernel that ptxas is to make room for in a multiprocessor's
/// registers: left to itself, it spills for more of them than shared memory has
/// room for. NvptxMatrix; test/Conversion/TileToNVVM/gpu-kernel-entry.mlir
/// shows how it is told.
inline constexpr int32_t kFewestCtas = 1;

//===----------------------------------------------------------------------===//
// sm80.contract, sm80.gemv
//===----------------------------------------------------------------------===//

/// Accumulators of a thread of sm80.contract with tensor cores, as many as fit
/// next to addresses, fragments and scales: fewer where columns have scales of
/// their own inside the loop. SumsNextToFragments; FMAs, which are chosen with
/// half as many, fit in NvptxMatrix.
constexpr int64_t getMaxFragmentSums(bool hasColumnScales) {
  return hasColumnScales ? 64 : 128;
}

/// sm80.gemv with FMAs: sums of a thread, next to which pieces of rows and
/// weights fit in tiles of 8 rows and 4 columns, and pieces of weights that it
/// has on their way at once. SumsNextToPieces.
inline constexpr int64_t kGemvSums = 32, kGemvPieces = 8;
/// sm80.gemv with tensor cores: pieces of both operands that a lane has on
/// their way at once. SumsNextToPieces.
inline constexpr int64_t kGemvTensorPieces = 16;

//===----------------------------------------------------------------------===//
// Routing
//===----------------------------------------------------------------------===//

/// sm80.top_k: keys of a row that a lane has, where a row is in registers.
/// RoutingFits.
inline constexpr int64_t kKeysPerLane = 16;

/// sm80.rank: slots of other chunks that a thread has on their way at once;
/// fewer where experts come in panels, for more numbers stay in registers then.
/// NvptxMatrix (rank, rank_panels).
inline constexpr int64_t kRankedLoads = 8, kRankedPanelLoads = 4;
/// Counts of an expert that a thread adds up at once: those of so many chunks,
/// of fewer if it has those of several experts. RoutingFits.
inline constexpr int64_t kCountLoads = 16, kWideCountLoads = 15;

//===----------------------------------------------------------------------===//
// sm90.contract: registers
//===----------------------------------------------------------------------===//

/// What the registers of a kernel of sm90.contract depend on.
struct Sm90Shape {
  /// Rows of the highest tiles; how many heights there are.
  int64_t rows, heights;
  /// Accumulators of a thread that multiplies, with those of a step where they
  /// are apart.
  int64_t sums;
  /// Input rows are on the tensor cores' side of 64.
  bool rowsOnM;
  /// The sums of a step are apart.
  bool promotes;
  /// Maps bring the input rows, so that no thread copies them.
  bool mapRows;
  /// Threads copy scales with each step.
  bool copiesScales;
  /// Weights are multiplied from registers, by so many consumers.
  bool fromRegisters;
  int64_t consumers;
};

/// The most accumulators of a thread, next to which a step's addresses and the
/// epilogue fit. SumsOfAStepFitInRegisters, ScalesOfRowsFitInRegisters,
/// WarpgroupsShareRegisters.
constexpr int64_t getMaxSums(const Sm90Shape &shape) {
  if (shape.fromRegisters)
    return 80;
  if (shape.rowsOnM)
    return 192;
  if (shape.promotes)
    return 168;
  return !shape.mapRows || shape.copiesScales ? 160 : 192;
}

/// Rows and accumulators up to which half of a multiprocessor's registers are
/// enough for a CTA, and what its copying threads keep of theirs.
/// WarpgroupsShareRegisters, SumsOfAStepFitInRegisters.
inline constexpr int64_t kHalfShareRows = 32, kHalfShareSums = 48,
                         kHalfShareCopying = 56;

/// Registers that the threads keep which copy: those that copy rows have two
/// for each of theirs, and of their scales; several heights take a few more.
/// WarpgroupsShareRegisters, SumsOfAStepFitInRegisters,
/// ScalesOfRowsFitInRegisters.
constexpr int64_t getCopyingRegisters(const Sm90Shape &shape) {
  if (shape.fromRegisters && shape.mapRows)
    return 56;
  if (shape.fromRegisters)
    return shape.rows <= 64 && shape.heights == 1 ? 72 : 104;
  if (shape.rowsOnM && shape.promotes)
    return shape.mapRows ? 56 : shape.sums > 128 ? 72 : 88;
  bool isOne = shape.heights == 1;
  if (shape.mapRows && shape.promotes)
    return isOne ? 40 : 56;
  if (shape.mapRows)
    return shape.sums <= 160 ? 40 : 24;
  if (shape.rows <= (shape.promotes ? 96 : 144) && isOne)
    return 72;
  return shape.rows <= (shape.promotes ? 144 : 160) ? 88 : 104;
}

/// Sums of a tile, those of a step and the scales of its rows that fit
/// together: a consumer with two blocks of weights has scales for each.
/// SumsOfAStepFitInRegisters.
constexpr int64_t getMaxSumsAndScales(int64_t blocks) {
  return blocks > 1 ? 152 : 160;
}

//===----------------------------------------------------------------------===//
// sm90.contract: what is tried
//===----------------------------------------------------------------------===//

// What a user asks for is held to the limits above. Beyond these some epilogues
// spill and others do not, so that nothing beyond them is a candidate.

/// Rows of a tile where threads copy them. CandidatesDoNotSpill.
inline constexpr int64_t kCopiedRows = 192;
/// Weights on the side of 64, and sums of steps apart: several heights, and
/// accumulators next to them. CandidatesDoNotSpill.
inline constexpr int64_t kPromotedHeights = 2, kPromotedSums = 128;
/// Three consumers that multiply weights from registers, which have fewer
/// registers than two: heights, rows of all of them together, and of one where
/// there are several. RegistersSufficeForThree.
inline constexpr int64_t kHeightsOfThree = 3, kRowsOfThree = 112,
                         kRowsOfManyHeights = 48;
/// Heights of two that do: with as many accumulators at most, and with more;
/// and how many fewer where rows of bf16 have scales.
/// UnitsOfBytesFitInRegisters, RowsOfCodesFitInRegisters.
inline constexpr int64_t kHeightsOfTwo = 5, kSumsOfFiveHeights = 64,
                         kHeightsOfManySums = 4, kHeightsOfRowScales = 1;
/// Registers that addresses, fragments and operands of the epilogue take next
/// to sums of weights from registers, where words of units are loaded early.
/// RegistersSufficeForThree, MinimaAndBooksFitInRegisters.
inline constexpr int64_t kBesideEarlyWords = 132;
/// With rows on the side of 64 and sums of steps apart: where threads copy rows
/// and there are more accumulators than this, the lines of an epilogue, as
/// `sm90::estimateEpilogue` counts them. CandidatesDoNotSpill.
inline constexpr int64_t kSumsOfAnyEpilogue = 128, kShortEpilogue = 19;

//===----------------------------------------------------------------------===//
// sm90.contract: lines of PTX
//===----------------------------------------------------------------------===//

/// Lines of the epilogues of a kernel together, all heights' and those of both
/// products if it has two: those of a candidate take ptxas 0.4 s by themselves,
/// 0.9 s beside the other kernels of a layer. Where one config is to suit any
/// load, no other kernel is made for the same product.
/// EpiloguesAssembleQuickly, NvptxMatrix, ModelsTest.
inline constexpr int64_t kMaxLines = 4800, kMaxLinesOfAnyLoad = 6000;

/// Each line of tiles with more rows than this takes ptxas so many times as
/// long, for it is short of registers. EpiloguesAssembleQuickly.
inline constexpr int64_t kSlowRows = 160, kSlowness = 4;

/// The table of tiles: groups of a lane whose counts are loaded at once, and
/// those that are cut into tiles by one piece of code, in a loop. Of 512
/// experts a lane has 16, whose code one behind the other was a quarter of a
/// kernel. ModelsTest (qwen3-next).
inline constexpr int64_t kGroupsAtOnce = 16, kCutAtOnce = 2;

} // namespace moec::ptxas

#endif // MOEC_ANALYSIS_PTXASLIMITS_H
