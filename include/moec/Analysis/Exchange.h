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

namespace moec {

/// One pair of a tile.exchange, as pieces that are moved whole.
struct ExchangedPart {
  /// 1, 2, 4, 8 or 16: what addresses of pieces are multiples of, where the
  /// memref begins at a multiple of 16 (of 4, for elements of i32, which
  /// callers may bind so).
  int64_t pieceBytes;
  /// Pieces of one rank, or of one of its rows.
  int64_t pieces;
  bool perToken;
};

/// `in` is the type of the pair's input.
ExchangedPart getExchangedPart(plan::CollectiveKind kind, int64_t ranks,
                               mlir::MemRefType in);

/// Pieces of a row of so many bytes each that a thread moves whole.
int64_t getPiecesOfRow(mlir::MemRefType rows);

/// Rows of a rank from which on owners are asked for: up to 128 the time is
/// that of flags and first bytes.
constexpr int64_t kLeastRowsOfOwners = 256;

/// Which share of rows has an owner in a rank with `numLocal` of `numExperts`,
/// where a row's `topK` are any of the experts.
double getOwnedShare(int64_t numExperts, int64_t numLocal, int64_t topK);

/// Rows that the pieces of a warp are of at most, of those of `pieces` each.
int64_t countRowsOfWarp(int64_t pieces);

/// Warps of a row whose sum the kernel makes itself: each has up to `pieces`
/// times a warp's pieces of one row.
int64_t countWarpsOfRow(int64_t rowPieces, int64_t pieces);

/// Whether an exchange quantizes rows by one scale each.
bool hasCodesOfRows(tile::ExchangeOp exchange);

/// Whether threads that hold such rows have room in registers for making codes
/// of them: int8, or e4m3 by instructions.
bool holdsCodesOfRows(moe::QuantAttr quant, const Target &target);

/// The most codes of such a row that sm80.exchange takes, as it chooses its
/// config: threads of a CTA hold the row that they are made of.
int64_t getMostCodesOfRow();

/// Warps that have such a row of `rowPieces`, each thread up to `pieces` of
/// them: a power of two, so that a CTA has whole rows.
int64_t countWarpsOfCodes(int64_t rowPieces, int64_t pieces);

/// Whether rows of pair `index` are moved for their owners alone by
/// sm80.exchange: a piece is 16 bytes, and a warp has few rows to ask for. What
/// is narrower goes to all.
bool isMovedForOwners(tile::ExchangeOp exchange, int64_t index);

/// Pieces of a thread in a round of a kernel that makes the sums of few rows
/// itself, or their codes by one scale each: so few that a row is spread over
/// more multiprocessors or warps, which it takes longest to load, and yet all
/// of the most rows of the collective's variant, by `rows` those of a rank,
/// have room in a round. No value elsewhere.
std::optional<int64_t> getPiecesOfFewRows(plan::CollectiveOp collective,
                                          int64_t ranks,
                                          const moert::Expr &rows);

/// That config of sm80.exchange with so many pieces.
tile::ConfigAttr withPieces(tile::ConfigAttr config, int64_t pieces);

/// The rows of one rank in all parts of a collective whose rows depend on the
/// tokens; no value where they differ, or where none does.
std::optional<moert::Expr> getExchangedRows(plan::CollectiveOp collective);

} // namespace moec

#endif // MOEC_ANALYSIS_EXCHANGE_H
