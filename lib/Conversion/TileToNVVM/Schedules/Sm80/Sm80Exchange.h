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
  /// Pieces of a row, where rows are moved for their owners alone; else 0.
  int64_t ownedPieces = 0;
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
  /// What follows from the header's words from here on.
  void useHeader();
  void makeParts();
  Sm80ExchangePart makePart(size_t index, mlir::Value begin);

  // Owners. They are found with many rows only: `asks`.
  void readOwners();
  /// Pieces of which the owners of their rows are asked for: their numbers in
  /// a rank's part, the ids, and how many rows of these are before that part.
  struct Question {
    const Sm80ExchangePart *part;
    mlir::ArrayRef<mlir::Value> pieces;
    mlir::Value ids;
    mlir::Value firstRow;
  };
  /// For each piece of each question the owners' places as bits (i32).
  mlir::SmallVector<Pieces> findOwners(mlir::ArrayRef<Question> questions);
  mlir::SmallVector<mlir::Value> loadOwnerBits(const Question &question,
                                               mlir::Value firstElement,
                                               mlir::Value endElement);
  /// Whether the place is one of the owners'.
  mlir::Value isOwner(mlir::Value owners, mlir::Value place);
  /// A piece that the rank at `place` has a part of a sum in: zeros where it is
  /// neither an owner nor this rank.
  mlir::Value getPartOf(mlir::Value piece, mlir::Value owners,
                        mlir::Value place);

  /// This thread's pieces of a part in a round, and whether there are such.
  struct Round {
    const Sm80ExchangePart *part;
    /// Of a rank's part.
    Pieces numbers;
    /// Bytes from the beginning of a rank's part.
    Pieces offsets;
    Pieces isThere;
  };
  llvm::SmallVector<Round, 0> getRounds(mlir::Value turn);
  /// Pieces of a round that are loaded from an address, and what is done with
  /// them then, and with their owners: none where nobody asks, or rows go to
  /// all.
  struct Load {
    const Round *round;
    mlir::Value from;
    std::function<void(Pieces pieces, Pieces owners)> use;
    /// Null where nobody asks.
    mlir::Value ids = {};
    mlir::Value firstRow = {};
  };
  Load makeLoad(const Round &round, mlir::Value from, decltype(Load::use) use,
                mlir::Value ids, mlir::Value firstRow);
  void run(mlir::ArrayRef<Load> loads);
  void tie(mlir::MutableArrayRef<Pieces> loaded);
  /// Where pieces go to; with a place, to this one if it is an owner.
  struct Target {
    mlir::Value address;
    mlir::Value place = {};
  };
  void store(const Round &round, mlir::ValueRange pieces,
             mlir::ArrayRef<Target> targets, mlir::ValueRange owners = {});
  mlir::Value getStaged(const Sm80ExchangePart &part, mlir::Value heap,
                        mlir::Value place) {
    return emitter.advance(heap,
                           add(add(begin, part.begin), mul(place, part.pitch)));
  }

  /// The same for one turn: what follows from heaps, rows and places is
  /// computed there, since addresses of all parts have no room in registers.
  Sm80Exchange forTurn() const;
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
  /// Words of the header, which are used as `useHeader` leaves them: the rank's
  /// place on the axis, the limit in ns, bytes of a place, how many exchanges
  /// were before this one, the word of aborts.
  mlir::Value own, limit, placeBytes, epoch, aborted;
  /// What follows from them: from a heap's beginning to the place of this
  /// exchange, its flags before the first round, whether nobody has given up.
  mlir::Value begin, done, mayPush;
  /// Of a push, which loads its first pieces before the header is there where
  /// addresses do not follow from it.
  bool isPush = false, awaitsHeader = false;
  /// Threads of all CTAs; the first of this round's pieces of this thread.
  mlir::Value lanes, first;
  /// Rows of a rank.
  mlir::Value numRows;
  /// The table of owners, ids of own rows and of all; null where all rows go to
  /// all ranks.
  mlir::Value ownerTable, ownIds, allIds;
  /// Whether there are enough rows to ask for owners.
  mlir::Value asks;
  /// Two words of shared memory, for turns by turns: whether a warp of the CTA
  /// has given up.
  mlir::Value hasFailed;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80EXCHANGE_H
