//===- Exchange.h - what ranks move to each other ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_EXCHANGE_H
#define MOEC_ANALYSIS_EXCHANGE_H

#include "moec/Analysis/Schedules.h"
#include "moec/Dialect/Tile/Exchange.h"
#include "moec/Support/GpuInstructions.h"

namespace moec {

/// One pair of memrefs of a tile.exchange, as chunks that are moved whole.
struct ExchangedPart {
  /// 1, 2, 4, 8 or 16: alignment of the chunks, given that the memref begins at
  /// a multiple of 16 (of 4 for i32 elements, which callers may bind so).
  int64_t pieceBytes;
  /// Chunks of one rank, or of one of its rows.
  int64_t pieces;
  bool perToken;
};

/// `in`: type of the pair's input.
ExchangedPart getExchangedPart(plan::CollectiveKind kind, int64_t ranks,
                               mlir::MemRefType in);

/// Chunks of a row, each moved whole by one thread.
int64_t getPiecesOfRow(mlir::MemRefType rows);

/// Rows of a rank from which on only destination ranks get a row: with up to
/// 128, the time is that of flags and first bytes.
constexpr int64_t kLeastRowsOfOwners = 256;

/// `least_rows` of the config of an exchange; no value without a config.
std::optional<int64_t> getLeastRowsOfOwners(tile::ExchangeOp exchange);

/// Maximum slots of a row that an exchange sums itself: a warp loads them at
/// once.
constexpr int64_t kMostSummedSlots = kWarp;

/// Share of rows with a destination in a rank that has `numLocal` of
/// `numExperts`, if a row's `topK` experts are uniform.
double getOwnedShare(int64_t numExperts, int64_t numLocal, int64_t topK);

/// Maximum number of rows that the chunks of one warp belong to, with `pieces`
/// chunks per row.
int64_t countRowsOfWarp(int64_t pieces);

/// Warps per row if the kernel computes the sum itself: each takes up to
/// `pieces` chunks per lane of one row.
int64_t countWarpsOfRow(int64_t rowPieces, int64_t pieces);

/// Whether an exchange quantizes rows with one scale each.
bool hasCodesOfRows(tile::ExchangeOp exchange);

/// Whether threads that hold such rows have enough registers to quantize them:
/// int8, or e4m3 where the target has conversion instructions.
bool holdsCodesOfRows(moe::QuantAttr quant, const Target &target);

/// Maximum elements of such a row in sm80.exchange, which chooses its config by
/// it: the threads of one CTA hold the whole unquantized row.
int64_t getMostCodesOfRow();

/// Warps per such row of `rowPieces` chunks, each thread with up to `pieces` of
/// them: a power of two, so that a CTA has whole rows.
int64_t countWarpsOfCodes(int64_t rowPieces, int64_t pieces);

/// Whether sm80.exchange moves rows of pair `index` only to their destination
/// ranks: chunks must be 16 bytes, and a warp must have few rows to check.
/// Narrower rows go to all ranks.
bool isMovedForOwners(tile::ExchangeOp exchange, int64_t index);

/// Chunks per thread and round of a kernel that sums few rows itself, or
/// quantizes them with one scale each. The number is small enough to spread a
/// row over more SMs or warps, because loading it takes longest, and large
/// enough that all rows of the collective's variant fit in one round; `rows`
/// gives those of a rank. No value for other collectives.
std::optional<int64_t> getPiecesOfFewRows(plan::CollectiveOp collective,
                                          int64_t ranks,
                                          const moert::Expr &rows);

/// The config of sm80.exchange with `pieces` chunks per thread.
tile::ConfigAttr withPieces(tile::ConfigAttr config, int64_t pieces);

/// Rows per rank in all parts of a collective whose rows depend on the tokens;
/// no value if they differ or none depends.
std::optional<moert::Expr> getExchangedRows(plan::CollectiveOp collective);

} // namespace moec

#endif // MOEC_ANALYSIS_EXCHANGE_H
