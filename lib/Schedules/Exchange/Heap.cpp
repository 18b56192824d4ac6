//===- Heap.cpp - heaps of an exchange's ranks ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Heap.h"

#include "KernelBuilder/InlinePtx.h"

#include "moert/PeerHeap.h"

using namespace mlir;
using namespace moec;
using LLVM::AtomicOrdering;
using moert::PeerHeap;

/// Bytes of a flag or counter.
static constexpr int64_t kFlagBytes = 8;

ExchangeThread::ExchangeThread(ThreadEmitter &emitter)
    : cta(emitter.toI64(emitter.cta())), thread(emitter.thread().toI64()),
      lane(emitter.lane().toI64()) {}

ExchangeHeap::ExchangeHeap(tile::ExchangeOp op, ThreadEmitter &emitter,
                           const ExchangeThread &thread)
    : op(op), emitter(emitter), b(emitter.b), thread(thread),
      ranks(int64_t(op.getHeaps().size())),
      heap(emitter.baseAddress(emitter.operand(op.getHeaps()[0]))) {
  own = loadWord(wordAt(heap, PeerHeap::kIndex));
  bufferBytes = loadWord(wordAt(heap, PeerHeap::kBufferBytes));
  epoch = loadWord(wordAt(heap, PeerHeap::kEpochs, thread.cta));
  abortWord =
      loadStrong(wordAt(heap, PeerHeap::kAbort), AtomicOrdering::monotonic);
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

I64 ExchangeHeap::rankAt(I64 distance) {
  I64 sum = own + distance, all = emitter.i64(ranks);
  Flag isRank = sum < all;
  return select(isRank, sum, sum - all);
}

Flag ExchangeHeap::isOther(I64 distance) {
  Flag isBehind = emitter.i64(0) < distance;
  return isBehind & (distance < ranks);
}

/// The ranks that fit in registers beside the loop's own values. Quantized
/// values and scales have separate addresses.
int64_t ExchangeHeap::getRanksAtOnce() {
  constexpr int64_t mostInLoop = 2;
  int64_t mostUnrolled = op.getQuantized() ? 2 : 4;
  return ranks <= mostUnrolled ? mostUnrolled : mostInLoop;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

void ExchangeHeap::storeTable() {
  table = emitter.scratch({ranks}, b.getI64Type());
  emitter.ifThen(thread.thread == 0, [&] {
    for (auto [i, memref] : llvm::enumerate(op.getHeaps())) {
      Value address = emitter.baseAddress(emitter.operand(memref));
      memref::StoreOp::create(
          b, LLVM::PtrToIntOp::create(b, b.getI64Type(), address), table,
          ValueRange{emitter.index(int64_t(i))});
    }
  });
}

Value ExchangeHeap::addressAt(I64 distance) {
  Value address =
      memref::LoadOp::create(b, table, ValueRange{emitter.toIndex(distance)});
  return LLVM::IntToPtrOp::create(b, heap.getType(), address);
}

void ExchangeHeap::renewAddress() { heap = tieAddress(b, heap); }

Value ExchangeHeap::wordAt(Value heap, int64_t offset, I64 index) {
  return index ? emitter.advance(heap, offset + index * kFlagBytes)
               : emitter.advance(heap, offset);
}

I64 ExchangeHeap::loadWord(Value address) {
  return {b, emitter.load(b.getI64Type(), address, kFlagBytes)};
}

I64 ExchangeHeap::loadStrong(Value address, AtomicOrdering order) {
  return {b, LLVM::LoadOp::create(b, b.getI64Type(), address, kFlagBytes,
                                  /*isVolatile=*/false, /*isNonTemporal=*/false,
                                  /*isInvariant=*/false,
                                  /*isInvariantGroup=*/false, order)};
}

void ExchangeHeap::storeStrong(I64 value, Value address, AtomicOrdering order) {
  LLVM::StoreOp::create(b, value, address, kFlagBytes, /*isVolatile=*/false,
                        /*isNonTemporal=*/false, /*isInvariantGroup=*/false,
                        order);
}

//===----------------------------------------------------------------------===//
// Progress
//===----------------------------------------------------------------------===//

void ExchangeHeap::awaitHeader() {
  I64 *words[] = {&own, &bufferBytes, &epoch, &abortWord};
  SmallVector<Value> tied = tieNumbers(
      b, llvm::map_to_vector(words, [](I64 *word) -> Value { return *word; }));
  for (auto [word, value] : llvm::zip(words, tied))
    *word = {b, value};
  I64 isOdd = epoch & 1;
  buffer = PeerHeap::kBuffers + isOdd * bufferBytes;
  flagsBefore = epoch << PeerHeap::kRoundBits;
  alive = abortWord == 0;
}

void ExchangeHeap::setFlags(I64 rounds) {
  constexpr int64_t sender = 1;
  // Lane i signals to the rank at distance i.
  Flag isSender = emitter.warp() == sender;
  emitter.ifThen(isSender & isOther(thread.lane), [&] {
    I64 flag = own * PeerHeap::kMaxCtas + thread.cta;
    I64 value = flagsBefore + rounds;
    Value address = wordAt(addressAt(thread.lane), PeerHeap::kFlags, flag);
    storeStrong(value, address, AtomicOrdering::release);
  });
}

/// Returns 0, or the failure of the wait for `rank`.
I64 ExchangeHeap::awaitFlag(I64 rank, I64 rounds) {
  // Polls between two checks of the clock and the abort word.
  constexpr int64_t pollsPerLook = 64;
  struct Wait {
    I64 polls, failure;
    auto fields() { return std::tie(polls, failure); }
  };
  I64 none = emitter.i64(0), wanted = flagsBefore + rounds;
  Value flag =
      wordAt(heap, PeerHeap::kFlags, rank * PeerHeap::kMaxCtas + thread.cta);
  I64 start = emitter.clock();
  auto isOpen = [&](Wait &wait) {
    I64 found = loadStrong(flag, AtomicOrdering::acquire);
    Flag isMissing = found < wanted;
    wait.failure = select(isMissing, wait.failure, none);
    return isMissing & (wait.failure == none);
  };
  auto look = [&](Wait wait) {
    wait.polls = wait.polls + 1;
    Flag isLook = (wait.polls & (pollsPerLook - 1)) == none;
    wait.failure = emitter.choose(
        isLook, [&] { return getFailure(rank, start); }, [&] { return none; });
    return wait;
  };
  return emitter.whileLoop(Wait{none, none}, isOpen, look).failure;
}

/// The reason to stop waiting for `rank`, or 0.
I64 ExchangeHeap::getFailure(I64 rank, I64 start) {
  I64 now = emitter.clock();
  // Loaded here, since few threads need it and none should keep it in a
  // register.
  I64 limit = loadWord(wordAt(heap, PeerHeap::kLimit));
  Flag isLate = limit < now - start;
  I64 word =
      loadStrong(wordAt(heap, PeerHeap::kAbort), AtomicOrdering::monotonic);
  auto encode = [&](int64_t reason, I64 rank) {
    return (reason << PeerHeap::kReasonShift) + rank;
  };
  I64 late = select(isLate, encode(PeerHeap::TimedOut, rank), 0);
  Flag isAlive = word == 0;
  return select(isAlive, late, encode(PeerHeap::Aborted, word + -1));
}

/// Reports the failure to this rank's host, and tells all ranks to stop
/// waiting.
void ExchangeHeap::giveUp(I64 failure, Value firstResult) {
  I64 address(b, LLVM::PtrToIntOp::create(b, b.getI64Type(), firstResult));
  storeStrong(address, wordAt(heap, PeerHeap::kAddress),
              AtomicOrdering::monotonic);
  // The first failure is kept.
  LLVM::AtomicCmpXchgOp::create(
      b, wordAt(heap, PeerHeap::kFailure), emitter.i64(0), failure,
      AtomicOrdering::release, AtomicOrdering::monotonic);
  I64 rank = failure & ((int64_t(1) << PeerHeap::kReasonShift) - 1);
  I64 word = rank + 1;
  forRanks(0, [&](ArrayRef<I64> distances) {
    for (I64 distance : distances)
      storeStrong(word, wordAt(addressAt(distance), PeerHeap::kAbort),
                  AtomicOrdering::monotonic);
  });
}

Flag ExchangeHeap::awaitFlags(I64 rounds, Value firstResult) {
  I64 failure = emitter.choose(
      isOther(thread.lane),
      [&] { return awaitFlag(rankAt(thread.lane), rounds); },
      [&] { return emitter.i64(0); });
  Flag hasFailed = failure != 0;
  Flag haveCome = emitter.ballot(hasFailed) == 0;
  emitter.ifThen(hasFailed, [&] { giveUp(failure, firstResult); });
  return haveCome;
}

void ExchangeHeap::countExchange() {
  I64 next = epoch + 1;
  I64 numCtas = emitter.numCtas().toI64();
  emitter.ifThen(thread.thread == 0, [&] {
    emitter.store(next, wordAt(heap, PeerHeap::kEpochs, thread.cta),
                  kFlagBytes);
  });
  // CTA 0 also advances the epochs of CTAs that this launch does not have.
  Flag isFirst = thread.cta == 0;
  Flag isAbsent =
      (numCtas + -1 < thread.thread) & (thread.thread < PeerHeap::kMaxCtas);
  emitter.ifThen(isFirst & isAbsent, [&] {
    emitter.store(next, wordAt(heap, PeerHeap::kEpochs, thread.thread),
                  kFlagBytes);
  });
}
