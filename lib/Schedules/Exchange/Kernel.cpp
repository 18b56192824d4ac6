//===- Kernel.cpp - the schedule gpu.exchange -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// All-gather and sums over peer heaps (Heap.h). In one iteration of
// the loop a CTA pushes a round of chunks (Round.h), then takes the
// round before. After a barrier the second warp waits until the pushes are
// visible and sets the CTA's flags; the other warps continue. Each warp polls
// flags by itself. If one gives up, all leave the loop in the next iteration,
// after its barrier.

#include "Round.h"

#include "KernelBuilder/InlinePtx.h"
#include "Schedules/Interface/Emit.h"

#include "moec/Schedules/Schedules.h"
#include "moert/PeerHeap.h"

using namespace mlir;
using namespace moec;
using moert::PeerHeap;

namespace {

class GpuExchange {
public:
  GpuExchange(tile::ExchangeOp op, ThreadEmitter &emitter, bool convertsFloat8);

  void emit();

private:
  /// Rounds of pushes; the results of each are read when all ranks have reached
  /// it. Returns whether they have.
  Flag pushAndTake();
  /// All pushes, then one wait for all ranks; returns whether they have
  /// arrived.
  Flag pushToResults();

  struct Progress {
    /// The number of earlier rounds, and whether all ranks have arrived so far.
    I32 rounds;
    Flag isAlive;
    auto fields() { return std::tie(rounds, isAlive); }
  };
  /// Pushes a round and takes the one before.
  Progress pushAndTakeRound(I32 earlierRounds);
  Flag awaitFlags(ExchangeRound &round, I64 rounds) {
    return round.heap.awaitFlags(rounds, round.parts.get().front().out);
  }

  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const bool isSum, isToResults;
  /// Two words of shared memory, used in alternate rounds: whether a warp of
  /// the CTA has aborted.
  Value hasFailed;
  ExchangeRound round;
  /// Threads of all CTAs, and those that one round would need for all chunks.
  I64 launchThreads, neededThreads;
};

GpuExchange::GpuExchange(tile::ExchangeOp op, ThreadEmitter &emitter,
                         bool convertsFloat8)
    : emitter(emitter), b(emitter.b),
      isSum(op.getKind() != plan::CollectiveKind::AllGather),
      isToResults(op.getToResults()),
      hasFailed(isToResults ? Value()
                            : emitter.scratch({2}, emitter.b.getI32Type())),
      round(op, emitter, convertsFloat8),
      launchThreads(round.parts.launchThreads()),
      neededThreads(round.parts.countThreads()) {}

Flag GpuExchange::pushAndTake() {
  emitter.ifThen(round.thread.thread == 0, [&] {
    for (int64_t i : {0, 1})
      emitter.storeI32(emitter.i32(0), hasFailed, emitter.index(i));
  });
  // Makes the heap table visible.
  emitter.barrier();
  // The last iteration only takes the previous round.
  auto goesOn = [&](const Progress &progress) {
    I64 former = progress.rounds.toI64() + -1;
    return (former * launchThreads < neededThreads) & progress.isAlive;
  };
  return emitter
      .whileLoop(Progress{emitter.i32(0), emitter.flag(true)}, goesOn,
                 [&](const Progress &progress) {
                   return pushAndTakeRound(progress.rounds);
                 })
      .isAlive;
}

/// Chunks are computed in each iteration to save registers.
GpuExchange::Progress GpuExchange::pushAndTakeRound(I32 earlierRounds) {
  earlierRounds = tieWord(earlierRounds);
  I64 rounds = earlierRounds.toI64(), next = rounds + 1;
  I64 base = rounds * launchThreads;
  auto wordOf = [&](I64 rounds) { return emitter.toIndex(rounds & 1); };
  Flag pushes = base < neededThreads;
  emitter.ifThen(pushes, [&] { round.renewed().push(base); });
  renewMemory(b, round.heap.address());
  emitter.barrier();
  ExchangeRound here = round.renewed();
  here.heap.awaitHeader();
  // Written in the previous iteration; each word is written in every second one
  // only.
  I32 failed = emitter.loadI32(hasFailed, wordOf(next));
  Flag isAlive = here.heap.isAlive() & (failed == 0);
  emitter.ifThen(pushes & here.heap.isAlive(),
                 [&] { here.heap.setFlags(next); });
  emitter.ifThen(isAlive & (emitter.i64(0) < rounds), [&] {
    Flag haveCome = awaitFlags(here, rounds);
    // Lanes take the data after all of them have seen their flags.
    emitter.warpBarrier();
    renewMemory(b, round.heap.address());
    emitter.ifThen(
        haveCome,
        [&] {
          I64 before = base - launchThreads;
          if (isSum)
            here.renewed().sum(before);
          else
            here.renewed().take(before);
        },
        [&] {
          emitter.addAtomically(emitter.i32(1), hasFailed, wordOf(rounds));
        });
  });
  return {earlierRounds + 1, isAlive};
}

Flag GpuExchange::pushToResults() {
  // Makes the heap table visible.
  emitter.barrier();
  I64 rounds = divideUp(neededThreads, launchThreads);
  emitter.loop(emitter.index(0), emitter.toIndex(rounds), 1, [&](Index number) {
    I64 rounds = tieNumber(emitter.toI64(number));
    round.renewed().push(rounds * launchThreads);
  });
  renewMemory(b, round.heap.address());
  emitter.barrier();
  ExchangeRound here = round.renewed();
  here.heap.awaitHeader();
  // The threads that set flags also wait.
  Flag isWaiting = round.thread.thread < PeerHeap::kMaxCtas;
  return emitter.choose(
      here.heap.isAlive() & isWaiting,
      [&] {
        here.heap.setFlags(emitter.i64(1));
        return awaitFlags(here, emitter.i64(1));
      },
      [&] { return emitter.flag(false); });
}

void GpuExchange::emit() {
  Flag haveCome = isToResults ? pushToResults() : pushAndTake();
  emitter.ifThen(haveCome, [&] { round.heap.countExchange(); });
}

} // namespace

LogicalResult moec::emitGpuExchange(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  GpuExchange(cast<tile::ExchangeOp>(phase), emitter,
              body.target.convertsFloat8())
      .emit();
  return success();
}
