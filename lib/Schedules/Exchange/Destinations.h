//===- Destinations.h - which ranks need a row ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Destination ranks of rows: those that have an expert of the row. All ranks
// find the same ones, since they have the same ids and tables.

#ifndef MOEC_LIB_SCHEDULES_EXCHANGE_DESTINATIONS_H
#define MOEC_LIB_SCHEDULES_EXCHANGE_DESTINATIONS_H

#include "KernelBuilder/ThreadEmitter.h"

#include "moec/Dialect/Tile/Exchange.h"

namespace moec {

class DestinationRanks {
public:
  /// For an exchange with a table of destination ranks (`destinations`). Few
  /// rows go to all ranks.
  DestinationRanks(tile::ExchangeOp op, ThreadEmitter &emitter, I64 lane,
                   I64 numRows);

  /// Addresses of the expert ids of this rank's rows, and of all ranks' rows.
  mlir::Value ownIds() const { return idsOfOwnRows; }
  mlir::Value allIds() const { return idsOfAllRows; }

  /// Chunks, by their indices in a rank's part with `rowChunks` per row, whose
  /// destination ranks are wanted; `ids` are those of the rows from `firstRow`
  /// on.
  struct Query {
    int64_t rowChunks;
    llvm::ArrayRef<I64> chunks;
    mlir::Value ids;
    I64 firstRow;
  };
  using Masks = llvm::SmallVector<I32>;
  /// A mask of destination ranks for each chunk of each query. `heap` is an
  /// address that may always be read.
  llvm::SmallVector<Masks> find(llvm::ArrayRef<Query> queries, mlir::Value heap,
                                I64 numRows);
  /// Where the flag is not set all ranks count as destinations.
  void findOnlyIf(Flag flag) { isWanted = isWanted & flag; }

  /// Whether a mask has the rank.
  Flag has(I32 mask, I64 rank);

private:
  /// Lanes hold elements `lane + i * 32` of the ids from a warp's first row.
  Masks loadMasks(const Query &query, I64 firstId, I64 endId, mlir::Value heap);
  /// The mask of a chunk's row, from the ids that the lanes hold.
  I32 joinMasks(const Query &query, I64 offset, llvm::ArrayRef<I32> masks);

  tile::ExchangeOp op;
  ThreadEmitter &emitter;
  I64 lane;
  int64_t topK;
  mlir::Value table, idsOfOwnRows, idsOfAllRows;
  Flag isWanted;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_EXCHANGE_DESTINATIONS_H
