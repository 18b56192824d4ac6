//===- Sm80ExchangeFlags.cpp - how ranks wait for each other ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Flag words in heaps: ranks signal to each other how far they have come, and
// why one of them has stopped waiting.

#include "Sm80Exchange.h"

#include "../../InlinePtx.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "moert/PeerHeap.h"

using namespace mlir;
using namespace moec;
using moert::PeerHeap;

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

Value Sm80Exchange::wordAt(Value heap, int64_t offset, Value index) {
  Value bytes = number(offset);
  return emitter.advance(heap,
                         index ? add(bytes, mul(index, kFlagBytes)) : bytes);
}

Value Sm80Exchange::loadStrong(Value address, LLVM::AtomicOrdering order) {
  return LLVM::LoadOp::create(b, b.getI64Type(), address, kFlagBytes,
                              /*isVolatile=*/false, /*isNonTemporal=*/false,
                              /*isInvariant=*/false,
                              /*isInvariantGroup=*/false, order);
}

void Sm80Exchange::storeStrong(Value value, Value address,
                               LLVM::AtomicOrdering order) {
  LLVM::StoreOp::create(b, value, address, kFlagBytes, /*isVolatile=*/false,
                        /*isNonTemporal=*/false, /*isInvariantGroup=*/false,
                        order);
}

//===----------------------------------------------------------------------===//
// Flags
//===----------------------------------------------------------------------===//

void Sm80Exchange::raiseFlags(Value rounds) {
  constexpr int64_t senders = 1;
  // Lane i signals to the rank at distance i.
  Value isSender = arith::AndIOp::create(
      b, isEqual(widen(emitter.warp()), number(senders)), isOther(lane));
  emitter.ifThen(isSender, [&] {
    Value flag = add(mul(own, PeerHeap::kMaxCtas), cta);
    storeStrong(add(done, rounds), wordAt(heapAt(lane), PeerHeap::kFlags, flag),
                LLVM::AtomicOrdering::release);
  });
}

/// Returns 0, or the failure of the wait for the rank at `place`.
Value Sm80Exchange::awaitFlag(Value place, Value rounds) {
  // Polls between two checks of the clock and the abort word.
  constexpr int64_t pollsPerLook = 64;
  Type i64 = b.getI64Type();
  Value zero = number(0), wanted = add(done, rounds);
  Value flag =
      wordAt(heap, PeerHeap::kFlags, add(mul(place, PeerHeap::kMaxCtas), cta));
  Value start = NVVM::GlobalTimerOp::create(b, i64);
  // Carried: the number of polls, and the failure.
  SmallVector<Type> types(2, i64);
  SmallVector<Location> locs(types.size(), b.getLoc());
  auto loop =
      scf::WhileOp::create(b, types, SmallVector<Value>(types.size(), zero));
  OpBuilder::InsertionGuard guard(b);
  Block *before = b.createBlock(&loop.getBefore(), {}, types, locs);
  Value found = loadStrong(flag, LLVM::AtomicOrdering::acquire);
  Value isMissing = isLess(found, wanted);
  Value failure =
      arith::SelectOp::create(b, isMissing, before->getArgument(1), zero);
  Value goesOn = arith::AndIOp::create(b, isMissing, isEqual(failure, zero));
  scf::ConditionOp::create(b, goesOn,
                           ValueRange{before->getArgument(0), failure});

  Block *after = b.createBlock(&loop.getAfter(), {}, types, locs);
  Value polls = add(after->getArgument(0), number(1));
  Value isLook =
      isEqual(arith::AndIOp::create(b, polls, number(pollsPerLook - 1)), zero);
  auto look = [&] { return SmallVector<Value>{getFailure(place, start)}; };
  auto none = [&] { return SmallVector<Value>{zero}; };
  Value why = emitter.choose(isLook, i64, look, none).front();
  scf::YieldOp::create(b, ValueRange{polls, why});
  return loop.getResult(1);
}

/// The reason to stop waiting for the rank at `place`, or 0.
Value Sm80Exchange::getFailure(Value place, Value start) {
  Value now = NVVM::GlobalTimerOp::create(b, b.getI64Type());
  // Loaded here, since few threads need it and none should keep it in a
  // register.
  Value limit = loadWord(wordAt(heap, PeerHeap::kLimit));
  Value isLate = isLess(limit, arith::SubIOp::create(b, now, start));
  Value word = loadStrong(wordAt(heap, PeerHeap::kAbort),
                          LLVM::AtomicOrdering::monotonic);
  auto encode = [&](int64_t reason, Value place) {
    return add(number(reason << PeerHeap::kReasonShift), place);
  };
  Value late = arith::SelectOp::create(
      b, isLate, encode(PeerHeap::TimedOut, place), number(0));
  return arith::SelectOp::create(
      b, isEqual(word, number(0)), late,
      encode(PeerHeap::Aborted, add(word, number(-1))));
}

/// Reports the failure to this rank's host, and tells all ranks to stop
/// waiting.
void Sm80Exchange::giveUp(Value failure) {
  Value address =
      LLVM::PtrToIntOp::create(b, b.getI64Type(), parts.front().out);
  storeStrong(address, wordAt(heap, PeerHeap::kAddress),
              LLVM::AtomicOrdering::monotonic);
  // The first failure is kept.
  LLVM::AtomicCmpXchgOp::create(b, wordAt(heap, PeerHeap::kFailure), number(0),
                                failure, LLVM::AtomicOrdering::release,
                                LLVM::AtomicOrdering::monotonic);
  Value mask = number((int64_t(1) << PeerHeap::kReasonShift) - 1);
  Value word = add(arith::AndIOp::create(b, failure, mask), number(1));
  forRanks(0, [&](ArrayRef<Value> distances) {
    for (Value distance : distances)
      storeStrong(word, wordAt(heapAt(distance), PeerHeap::kAbort),
                  LLVM::AtomicOrdering::monotonic);
  });
}

Value Sm80Exchange::awaitFlags(Value rounds) {
  auto await = [&] {
    return SmallVector<Value>{awaitFlag(getPlace(lane), rounds)};
  };
  auto none = [&] { return SmallVector<Value>{number(0)}; };
  Value failure =
      emitter.choose(isOther(lane), b.getI64Type(), await, none).front();
  Value hasFailed =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne, failure, number(0));
  Value hasCome = isEqual(widen(emitter.ballot(hasFailed)), number(0));
  emitter.ifThen(hasFailed, [&] { giveUp(failure); });
  return hasCome;
}
