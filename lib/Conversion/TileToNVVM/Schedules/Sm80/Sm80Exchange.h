//===- Sm80Exchange.h - the schedule sm80.exchange --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80EXCHANGE_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80EXCHANGE_H

#include "../../Emit.h"
#include "../../ThreadEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "moec/Dialect/Tile/Exchange.h"

#include <functional>

namespace moec {

/// A flag or counter takes so many bytes, and a word of a piece.
constexpr int64_t kFlagBytes = 8, kWordBytes = 4;

/// One pair of `ins` and `outs`. Counts and bytes are those of one rank, i64.
struct Sm80ExchangePart {
  mlir::Value in, out;
  /// What one load or store moves, its elements where they are summed, and its
  /// size.
  mlir::Type piece;
  mlir::VectorType terms;
  int64_t pieceBytes;
  /// Pieces of a thread in a round: fewer of those with fewer pieces in all.
  int64_t atOnce;
  mlir::Value count, bytes;
  /// In a heap: from the place of an exchange to what rank 0 sends of this
  /// part, and from one rank's to the next one's.
  mlir::Value begin, pitch;
};

class Sm80Exchange {
public:
  Sm80Exchange(tile::ExchangeOp op, KernelBody body, ThreadEmitter &emitter)
      : op(op), config(mlir::cast<tile::Sm80ExchangeAttr>(op.getConfigAttr())),
        emitter(emitter), b(emitter.b), threads(body.threads),
        ranks(int64_t(op.getHeaps().size())),
        sums(op.getKind() != plan::CollectiveKind::AllGather) {}

  void emit();

private:
  using Pieces = mlir::SmallVector<mlir::Value>;

  // i64 arithmetic.
  mlir::Value number(int64_t value) {
    return mlir::arith::ConstantOp::create(b, b.getI64IntegerAttr(value));
  }
  mlir::Value toNumber(mlir::Value x) {
    return mlir::arith::IndexCastOp::create(b, b.getI64Type(), x);
  }
  mlir::Value widen(mlir::Value x) {
    return mlir::arith::ExtUIOp::create(b, b.getI64Type(), x);
  }
  mlir::Value add(mlir::Value x, mlir::Value y) {
    return mlir::arith::AddIOp::create(b, x, y);
  }
  mlir::Value mul(mlir::Value x, mlir::Value y) {
    return mlir::arith::MulIOp::create(b, x, y);
  }
  mlir::Value mul(mlir::Value x, int64_t y) { return mul(x, number(y)); }
  mlir::Value isLess(mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::slt, x,
                                       y);
  }
  mlir::Value isEqual(mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::eq, x, y);
  }
  /// The place on the axis of the rank that is `distance` behind this one.
  mlir::Value getPlace(mlir::Value distance);
  /// Whether there is another rank at that distance.
  mlir::Value isOther(mlir::Value distance) {
    return mlir::arith::AndIOp::create(b, isLess(number(0), distance),
                                       isLess(distance, number(ranks)));
  }

  // Words of a heap.
  mlir::Value wordAt(mlir::Value heap, int64_t offset, mlir::Value index = {});
  mlir::Value loadWord(mlir::Value address) {
    return emitter.load(b.getI64Type(), address, kFlagBytes);
  }
  /// In the order of all GPUs.
  mlir::Value loadStrong(mlir::Value address, mlir::LLVM::AtomicOrdering order);
  void storeStrong(mlir::Value value, mlir::Value address,
                   mlir::LLVM::AtomicOrdering order);

  void readHeader();
  void makeParts();
  Sm80ExchangePart makePart(mlir::Value in, mlir::Value out, mlir::Value begin);

  /// This thread's pieces of a part in a round, and whether there are such.
  struct Round {
    const Sm80ExchangePart *part;
    /// Bytes from the beginning of a rank's part.
    Pieces offsets;
    Pieces isThere;
  };
  mlir::SmallVector<Round> getRounds(mlir::Value turn);
  /// Pieces of a round that are loaded from an address, and what is done with
  /// them then.
  struct Load {
    const Round *round;
    mlir::Value from;
    std::function<void(mlir::ArrayRef<mlir::Value>)> use;
  };
  void run(mlir::ArrayRef<Load> loads);
  void tie(mlir::MutableArrayRef<Pieces> loaded);
  void store(const Round &round, mlir::ValueRange pieces,
             mlir::ArrayRef<mlir::Value> addresses);
  mlir::Value getStaged(const Sm80ExchangePart &part, mlir::Value heap,
                        mlir::Value place) {
    return emitter.advance(heap,
                           add(add(begin, part.begin), mul(place, part.pitch)));
  }

  void push(mlir::Value turn);
  void take(mlir::Value turn);
  void sum(mlir::Value turn);
  /// Tells each other rank that so many rounds are there.
  void raiseFlags(mlir::Value rounds);
  /// Waits, with each warp, for so many rounds of each other rank; whether they
  /// have come.
  mlir::Value awaitFlags(mlir::Value rounds);
  mlir::Value awaitFlag(mlir::Value place, mlir::Value rounds);
  mlir::Value getFailure(mlir::Value place, mlir::Value start);
  void giveUp(mlir::Value failure);
  void countExchange();

  tile::ExchangeOp op;
  tile::Sm80ExchangeAttr config;
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const int64_t threads, ranks;
  const bool sums;

  /// This rank's, then those of the ranks behind it.
  mlir::SmallVector<mlir::Value> heaps;
  mlir::SmallVector<Sm80ExchangePart> parts;
  mlir::Value cta, thread, lane;
  /// From the header: the rank's place on the axis, the limit in ns, how many
  /// exchanges were before this one, whether somebody has given up.
  mlir::Value own, limit, epoch, aborted;
  /// From a heap's beginning to the place of this exchange.
  mlir::Value begin;
  mlir::Value placeBytes;
  /// Threads of all CTAs; the first of this round's pieces of this thread.
  mlir::Value lanes, first;
  /// Two words of shared memory, for turns by turns: whether a warp of the CTA
  /// has given up.
  mlir::Value hasFailed;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80EXCHANGE_H
