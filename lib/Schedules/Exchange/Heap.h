//===- Heap.h - heaps of an exchange's ranks --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Heaps of an exchange (moert/PeerHeap.h) as one thread accesses them: the
// words of this rank's header, and the flags by which ranks signal to each
// other how far they have come.

#ifndef MOEC_LIB_SCHEDULES_EXCHANGE_HEAP_H
#define MOEC_LIB_SCHEDULES_EXCHANGE_HEAP_H

#include "KernelBuilder/ThreadEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "moec/Dialect/Tile/Exchange.h"

namespace moec {

/// The thread among those of the launch.
struct ExchangeThread {
  explicit ExchangeThread(ThreadEmitter &emitter);

  I64 cta, thread, lane;
};

class ExchangeHeap {
public:
  /// Loads the header.
  ExchangeHeap(tile::ExchangeOp op, ThreadEmitter &emitter,
               const ExchangeThread &thread);

  //===--- Ranks ---===//

  /// Rank on the axis of this process, and of the one that is `distance` after
  /// it.
  I64 ownRank() const { return own; }
  I64 rankAt(I64 distance);
  /// Whether another rank exists at that distance.
  Flag isOther(I64 distance);
  /// Calls `body(distances, state)` for the distances from `first` to the last
  /// rank, several at a time, in a loop if there are many: addresses of all
  /// ranks at once do not fit in registers. The first call gets `state`, the
  /// others what the call before returned; its shape may change in the first.
  template <typename State, typename Body>
  State forRanks(int64_t first, State state, Body body) {
    int64_t atOnce = getRanksAtOnce(), count = ranks - first;
    // The first call takes the remainder.
    int64_t ahead = count % atOnce == 0 ? atOnce : count % atOnce;
    llvm::SmallVector<I64> distances;
    for (int64_t i = 0; i < ahead; ++i)
      distances.push_back(emitter.i64(first + i));
    state = body(llvm::ArrayRef<I64>(distances), state);
    if (ahead == count)
      return state;
    return emitter.loop(emitter.index(first + ahead), emitter.index(ranks),
                        atOnce, state, [&](Index begin, const State &state) {
                          llvm::SmallVector<I64> distances;
                          for (int64_t i = 0; i < atOnce; ++i)
                            distances.push_back(emitter.toI64(begin) + i);
                          return body(llvm::ArrayRef<I64>(distances), state);
                        });
  }
  template <typename Body>
  void forRanks(int64_t first, Body body) {
    using None = llvm::SmallVector<mlir::Value>;
    forRanks(first, None(), [&](llvm::ArrayRef<I64> distances, const None &) {
      body(distances);
      return None();
    });
  }

  //===--- Memory ---===//

  /// The heap of this rank; its header is always readable.
  mlir::Value address() const { return heap; }
  /// Stores the addresses of all heaps in shared memory; threads read these
  /// after a barrier.
  void storeTable();
  /// The heap of the rank at a distance less than the number of ranks.
  mlir::Value addressAt(I64 distance);
  /// Offset of the receive buffer of this exchange in each heap.
  I64 bufferOffset() const { return buffer; }
  /// Computes this rank's address again, so that addresses derived from it do
  /// not occupy registers before this point.
  void renewAddress();

  //===--- Progress ---===//

  /// Makes the header's words available: ranks, offsets and flags are valid
  /// after it.
  void awaitHeader();
  /// Whether no rank has aborted.
  Flag isAlive() const { return alive; }
  /// Signals to each other rank that `rounds` rounds are complete.
  void setFlags(I64 rounds);
  /// Waits, in each warp, for `rounds` rounds of each other rank; returns
  /// whether they have arrived. A failure is recorded with the address of the
  /// first result.
  Flag awaitFlags(I64 rounds, mlir::Value firstResult);
  /// Counts the completed exchange.
  void countExchange();

private:
  int64_t getRanksAtOnce();

  /// The word at an offset of a heap, or element `index` of the words there.
  mlir::Value wordAt(mlir::Value heap, int64_t offset, I64 index = {});
  I64 loadWord(mlir::Value address);
  /// Accesses with system scope, ordered across GPUs.
  I64 loadStrong(mlir::Value address, mlir::LLVM::AtomicOrdering order);
  void storeStrong(I64 value, mlir::Value address,
                   mlir::LLVM::AtomicOrdering order);

  I64 awaitFlag(I64 rank, I64 rounds);
  I64 getFailure(I64 rank, I64 start);
  void giveUp(I64 failure, mlir::Value firstResult);

  tile::ExchangeOp op;
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  ExchangeThread thread;
  const int64_t ranks;
  /// The table in shared memory has this rank's heap, then those of the ranks
  /// after it.
  mlir::Value heap, table;
  /// Words of the header: this rank, bytes of a receive buffer, the number of
  /// earlier exchanges, and the abort word.
  I64 own, bufferBytes, epoch, abortWord;
  /// Derived: the offset of the receive buffer, and this exchange's flags
  /// before the first round.
  I64 buffer, flagsBefore;
  Flag alive;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_EXCHANGE_HEAP_H
