//===- Exchange.h - chunks that ranks exchange ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_EXCHANGE_H
#define MOEC_SCHEDULES_EXCHANGE_H

#include "Schedules.h"
#include "moec/Dialect/Tile/Exchange.h"
#include "moec/Support/GpuInstructions.h"

namespace moec {

/// One pair of memrefs of a tile.exchange, as chunks that are moved whole.
struct ExchangedPart {
  /// 1, 2, 4, 8 or 16: alignment of the chunks, given that the memref begins at
  /// a multiple of 16 (of 4 for i32 elements, which callers may bind so).
  int64_t chunkBytes;
  /// Chunks of one rank, or of one of its rows.
  int64_t chunks;
  bool perToken;
};

/// `in`: type of the pair's input.
ExchangedPart getExchangedPart(plan::CollectiveKind kind, int64_t ranks,
                               mlir::MemRefType in);

/// Chunks of a row, each moved whole by one thread.
int64_t getRowChunks(mlir::MemRefType rows);

/// Least number of rows of a rank with which rows go only to their destination
/// ranks: up to 128 rows, flags and first bytes take the time.
constexpr int64_t kLeastRoutedRows = 256;

/// `least_rows` of the config of an exchange; no value without a config.
std::optional<int64_t> getLeastRoutedRows(tile::ExchangeOp exchange);

/// Maximum slots of a row that an exchange sums itself: a warp loads them at
/// once.
constexpr int64_t kMostSummedSlots = kWarp;

/// Share of rows with a destination in a rank that has `numLocal` of
/// `numExperts`, if a row's `topK` experts are uniform.
double getRoutedShare(int64_t numExperts, int64_t numLocal, int64_t topK);

/// Maximum number of rows that the chunks of one warp belong to, with `chunks`
/// chunks per row.
int64_t countRowsOfWarp(int64_t chunks);

/// Warps per row if the kernel computes the sum itself: each takes up to
/// `chunks` chunks per lane of one row.
int64_t countWarpsOfRow(int64_t rowChunks, int64_t chunks);

/// Whether an exchange quantizes rows with one scale each.
bool hasRowScales(tile::ExchangeOp exchange);

/// Whether threads that hold such rows have enough registers to quantize them:
/// int8, or e4m3 where the target has conversion instructions.
bool holdsQuantizedRows(moe::QuantAttr quant, const Target &target);

/// Maximum elements of such a row in gpu.exchange, by which its config is
/// chosen: the threads of one CTA hold the whole unquantized row.
int64_t getMaxQuantizedColumns();

/// Warps per such row of `rowChunks` chunks, each thread with up to `chunks` of
/// them: a power of two, so that a CTA has whole rows.
int64_t countQuantizingWarps(int64_t rowChunks, int64_t chunks);

/// Whether gpu.exchange moves rows of pair `index` only to their destination
/// ranks: chunks must be 16 bytes, and a warp must have few rows to check.
/// Narrower rows go to all ranks.
bool movesToDestinations(tile::ExchangeOp exchange, int64_t index);

/// Chunks per thread and round of a kernel that sums few rows itself, or
/// quantizes them with one scale each. The number is small enough to spread a
/// row over more SMs or warps, because loading it takes longest, and large
/// enough that all rows of the collective's variant fit in one round; `rows`
/// gives those of a rank. No value for other collectives.
std::optional<int64_t> getChunksOfFewRows(plan::CollectiveOp collective,
                                          int64_t ranks,
                                          const moert::Expr &rows);

/// The config of gpu.exchange with `chunks` chunks per thread.
tile::ConfigAttr withChunks(tile::ConfigAttr config, int64_t chunks);

/// Rows per rank in all parts of a collective whose rows depend on the tokens;
/// no value if they differ or none depends.
std::optional<moert::Expr> getExchangedRows(plan::CollectiveOp collective);

} // namespace moec

#endif // MOEC_SCHEDULES_EXCHANGE_H
