//===- Round.h - one round of an exchange -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// In a round a thread pushes chunks to other ranks, then takes or sums what
// other ranks have pushed. Rows that a rank does not need are not pushed to it:
// a gather takes the stale bytes there, and a sum loads them and adds +0.0
// instead.

#ifndef MOEC_LIB_SCHEDULES_EXCHANGE_ROUND_H
#define MOEC_LIB_SCHEDULES_EXCHANGE_ROUND_H

#include "Destinations.h"
#include "Quantizer.h"
#include "Sums.h"

#include <functional>
#include <optional>

namespace moec {

class ExchangeRound {
public:
  /// `convertsFloat8`: the target has instructions for that.
  ExchangeRound(tile::ExchangeOp op, ThreadEmitter &emitter,
                bool convertsFloat8);

  /// A copy for one round: values derived from heaps, rows and ranks are
  /// computed inside the round, because addresses of all parts do not fit in
  /// registers.
  ExchangeRound renewed() const;

  // `base` is the number of earlier rounds times the threads of all CTAs.
  void push(I64 base);
  void take(I64 base);
  void sum(I64 base);

  // The order of these members is that of the loads they begin with.
  ExchangeParts parts;
  ExchangeThread thread;
  ExchangeHeap heap;

private:
  using Chunks = llvm::SmallVector<mlir::Value>;
  using Masks = DestinationRanks::Masks;

  /// A copy with parts computed again at this point of the kernel.
  ExchangeRound withNewParts() const;

  //===--- Loads ---===//

  /// Chunks to load, and the action on them and on the masks of their
  /// destination ranks; no masks if none are wanted or rows go to all.
  struct Load {
    const ThreadChunks *chunks;
    mlir::Value from;
    std::function<void(Chunks loaded, Masks destinations)> use;
    /// Null if no destination ranks are wanted.
    mlir::Value ids = {};
    I64 firstRow = {};
    /// Consecutive loads, of the chunk's size each, that make up a chunk.
    int64_t perChunk = 1;
  };
  /// `ids`: of the rows from `firstRow` on, for parts whose rows are moved only
  /// to destination ranks.
  Load makeLoad(const ThreadChunks &chunks, mlir::Value from,
                decltype(Load::use) use, mlir::Value ids, I64 firstRow);
  /// Issues as many loads as fit in registers before it uses the first result.
  void run(llvm::ArrayRef<Load> loads);
  Chunks issue(const Load &load);
  /// All chunks of a row have the destination ranks of the first one.
  DestinationRanks::Query makeQuery(const ThreadChunks &chunks, mlir::Value ids,
                                    I64 firstRow);
  /// Masks of all chunks, given those of the query.
  static Masks spread(const ThreadChunks &chunks, Masks found);

  //===--- Stores ---===//

  /// Where chunks go; with a rank, only if that is a destination.
  struct Target {
    mlir::Value address;
    I64 rank = {};
  };
  /// Target of this rank's part in the heap of another rank.
  Target getTarget(const ExchangePart &part, I64 distance);
  /// Target of summands, which only go to another rank's rows if this rank is
  /// one of their destinations.
  Target getTargetOfSummands(const ExchangePart &part, I64 distance);
  void store(const ThreadChunks &chunks, mlir::ValueRange values,
             llvm::ArrayRef<Target> targets,
             llvm::ArrayRef<I32> destinations = {});

  //===--- Pushes ---===//

  /// Chunks of a pair, to store to all ranks that need them.
  struct Moved {
    size_t pair;
    Chunks values;
  };
  /// Stores also to this rank's results.
  void pushToAll(I64 base, llvm::ArrayRef<Moved> moved,
                 llvm::ArrayRef<I32> destinations);
  /// Sends to each other rank the summands of its rows.
  void pushSummands(llvm::ArrayRef<ThreadChunks> all);
  /// Computes the sums of rows and sends them to all ranks, or to each rank
  /// those of its rows.
  void pushSumsToAll(I64 base);
  void pushSumsByRank(I64 base);

  //===--- Sums ---===//

  /// The address of what the rank pushed into a heap.
  mlir::Value getReceived(const ExchangePart &part, mlir::Value heap, I64 rank);
  /// The address of the rank's summands of this rank's rows.
  mlir::Value getSummands(const ExchangePart &part, I64 rank);
  /// A chunk of summands, or zeros if its rank is neither a destination nor
  /// this rank.
  mlir::Value keepSummand(mlir::Value chunk, I32 destinations, I64 rank);

  tile::ExchangeOp op;
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  std::optional<DestinationRanks> destinationRanks;
  std::optional<RowSums> rowSums;
  std::optional<RowQuantizer> rowQuantizer;
  /// Whether stores end with the first abort; whether the header's words have
  /// not been awaited: a push loads its first chunks before, if their addresses
  /// do not depend on the header.
  bool isPush = false, awaitsHeader = false;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_EXCHANGE_ROUND_H
