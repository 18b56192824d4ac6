//===- Sm80Exchange.h - the schedule sm80.exchange --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80EXCHANGE_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80EXCHANGE_H

#include "../../Emit.h"
#include "../../Quantizer.h"
#include "../../ThreadEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "moec/Analysis/Schedules.h"
#include "moec/Dialect/Tile/Exchange.h"

#include <functional>

namespace moec {

/// A flag or counter takes so many bytes, and a word of a piece.
constexpr int64_t kFlagBytes = 8, kWordBytes = 4;

/// One pair of `ins` and `outs`. Counts and bytes are those of one rank, i64.
struct Sm80ExchangePart {
  /// Where what is moved begins, of codes that the kernel makes their rows.
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
  /// Pieces of a row, where all that a warp has in a round are of one, and so
  /// many warps have it: of sums that the kernel makes, and of codes by one
  /// scale for a row; else 0.
  int64_t rowPieces = 0, rowWarps = 0;
  /// Of a row of sums: its bytes in a heap, and in a tensor, of which it may be
  /// some columns.
  int64_t rowBytes = 0, tensorRowBytes = 0;
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
        sums(op.getKind() != plan::CollectiveKind::AllGather),
        convertsFloat8(body.target.convertsFloat8()) {}

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
  mlir::Value isBelow(mlir::Value x, int64_t end) {
    return isLess(x, number(end));
  }
  /// Whether there is another rank at that distance.
  mlir::Value isOther(mlir::Value distance) {
    return mlir::arith::AndIOp::create(b, isLess(number(0), distance),
                                       isBelow(distance, ranks));
  }
  /// The numbers from `first` to that of the last rank, several at a time, in a
  /// loop if they are many: addresses of all ranks at once have no room in
  /// registers. `body` makes what is carried from one time to the next, from
  /// nothing the first time.
  mlir::SmallVector<mlir::Value>
  forRanks(int64_t first,
           llvm::function_ref<mlir::SmallVector<mlir::Value>(
               mlir::ArrayRef<mlir::Value> numbers, mlir::ValueRange carried)>
               body);
  /// The same of what carries nothing.
  void
  forRanks(int64_t first,
           llvm::function_ref<void(mlir::ArrayRef<mlir::Value> numbers)> body);

  // Heaps.
  /// Has the addresses of all ranks' where any thread finds them by number.
  void makeHeapTable();
  /// That of the rank so far behind this one, less than all.
  mlir::Value heapAt(mlir::Value distance);

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
  void useTold();
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
    /// Of a part with `rowPieces`, the row of all of the warp's pieces, and
    /// whether there is one.
    mlir::Value row, hasRow;
    /// Of a rank's part.
    Pieces numbers;
    /// Bytes from the beginning of a rank's part.
    Pieces offsets;
    Pieces isThere;
  };
  llvm::SmallVector<Round, 0> getRounds(mlir::Value turn);
  void addPieces(Round &round, mlir::Value turn);
  void addPiecesOfRow(Round &round, mlir::Value turn);
  void addScales(mlir::MutableArrayRef<Round> rounds);
  /// Those whose owners are asked for.
  mlir::ArrayRef<mlir::Value> getAsked(const Round &round) {
    return round.row ? mlir::ArrayRef(round.numbers).take_front()
                     : mlir::ArrayRef(round.numbers);
  }
  /// The owners of all pieces, where those of `getAsked` are `answer`.
  static Pieces spread(const Round &round, Pieces answer) {
    answer.resize(round.numbers.size(), answer.front());
    return answer;
  }
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
    /// Loads that a piece is made of, one behind the other, of its size each.
    int64_t perPiece = 1;
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
  /// Where this rank's part goes to.
  Target getTarget(const Sm80ExchangePart &part, mlir::Value distance);
  mlir::Value getSource(const Sm80ExchangePart &part, mlir::Value place);
  mlir::Value getStaged(const Sm80ExchangePart &part, mlir::Value heap,
                        mlir::Value place) {
    return emitter.advance(heap,
                           add(add(begin, part.begin), mul(place, part.pitch)));
  }

  /// The same for one turn: what follows from heaps, rows and places is
  /// computed there, since addresses of all parts have no room in registers.
  Sm80Exchange forTurn() const;
  /// The same of parts alone, at a place inside of a turn.
  Sm80Exchange withNewParts() const;
  /// Rounds of pushes, each taken when all ranks have come so far; whether they
  /// have. With `most` pieces of a thread.
  mlir::Value pushAndTake(mlir::Value most);
  /// All pushes, then a wait for all ranks; whether they have come.
  mlir::Value pushToResults(mlir::Value most);
  void push(mlir::Value turn);
  /// Pieces of a pair in a round.
  struct Moved {
    size_t pair;
    Pieces pieces;
  };
  /// Stores pieces of a gather with all that need them, this rank too.
  void pushPieces(mlir::Value turn, mlir::ArrayRef<Moved> moved,
                  mlir::ValueRange owners);
  void pushOwned(mlir::ArrayRef<Round> rounds);
  void take(mlir::Value turn);
  void sum(mlir::Value turn);

  // Sums that the kernel makes itself (Sm80ExchangeSums.cpp).
  /// Where a round's row begins in a tensor, less where it begins in a heap's
  /// part.
  mlir::Value getGap(const Round &round) {
    const Sm80ExchangePart &part = *round.part;
    return mul(round.row, part.tensorRowBytes - part.rowBytes);
  }
  void readSums();
  void pushSums(mlir::Value turn);
  void storeSums(const Round &round, mlir::ArrayRef<mlir::Value> distances,
                 mlir::ValueRange sums, mlir::ValueRange owners);
  /// The position that is in this lane's slot of a round's row, of those behind
  /// `firstRow`.
  mlir::Value loadPosition(const Round &round, mlir::Value firstRow);
  Pieces makeSums(const Round &round, mlir::Value firstRow,
                  mlir::Value position);
  mlir::Value findSlots(const Round &round, mlir::Value row,
                        mlir::Value position);
  /// Slots that are left of a warp's row, as bits, then sums of pieces.
  Pieces addSlots(const Round &round, mlir::Value position, Pieces left,
                  int64_t count);

  // Codes that the kernel makes itself (Sm80ExchangeCodes.cpp).
  bool areCodes(size_t pair) {
    return op.getCoded() && op.getCoded()->front() == int64_t(pair);
  }
  bool areScales(size_t pair) {
    return op.getCoded() && op.getCoded()->back() == int64_t(pair);
  }
  /// Loads of a row that make a piece of codes, and neighbouring lanes that
  /// have the pieces of a group.
  int64_t countLoadsOfCodes();
  int64_t countLanesOfGroup();
  void readCodes();
  /// How many pieces of codes and scales a thread has in a round.
  void dealOutCodes();
  /// Quantizes what a thread has loaded of rows in a round.
  void pushCodes(const Round &round, mlir::Value turn,
                 mlir::ArrayRef<mlir::Value> rows, mlir::ValueRange owners);
  /// What a piece of codes is made of, as vectors of the rows' elements.
  Pieces getValues(mlir::ArrayRef<mlir::Value> rows, size_t piece);
  mlir::Value makePieceOfCodes(Quantizer &quantizer,
                               mlir::ArrayRef<mlir::Value> numbers,
                               const Quantizer::Divisor &divisor);
  /// The largest magnitude of the row of all of the warp's pieces.
  mlir::Value findLargestOfRow(Quantizer &quantizer, const Round &round,
                               mlir::ArrayRef<mlir::Value> rows);
  mlir::Value shareInRow(Quantizer &quantizer, mlir::Value largest,
                         int64_t warps);

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
  const bool sums, convertsFloat8;

  /// This rank's heap, and a table of all in shared memory: this rank's, then
  /// those of the ranks behind it.
  mlir::Value heap, heapTable;
  mlir::SmallVector<Sm80ExchangePart> parts;
  mlir::Value cta, thread, lane;
  /// Words of the header, which are used as `useHeader` leaves them: the rank's
  /// place on the axis, bytes of a place, how many exchanges were before this
  /// one, the word of aborts.
  mlir::Value own, placeBytes, epoch, aborted;
  /// What follows from them: from a heap's beginning to the place of this
  /// exchange, its flags before the first round, whether nobody has given up.
  mlir::Value begin, done, mayPush;
  /// Of a push, which loads its first pieces before the header is there where
  /// addresses do not follow from it.
  bool isPush = false, awaitsHeader = false;
  /// Threads of all CTAs; the first of this round's pieces of this thread.
  mlir::Value lanes, first;
  /// What the kernel is told in place of rows (PeerHeap::kRowBits), and the
  /// rows of a rank.
  mlir::Value told, numRows;
  /// Bytes of a row of a tensor that are before what is moved of it; null for
  /// none.
  mlir::Value skippedBytes;
  /// The table of owners, ids of own rows and of all; null where all rows go to
  /// all ranks.
  mlir::Value ownerTable, ownIds, allIds;
  /// Whether there are enough rows to ask for owners.
  mlir::Value asks;
  /// Of sums that the kernel makes: where slots' rows, positions and the addend
  /// begin, and how many rows count; null for none.
  mlir::Value slotRows, positions, addend, numValid;
  /// Of codes by one scale for a row, what the warps of a row have found: a f32
  /// for each, in shared memory; null where one warp has a row.
  mlir::Value largestOfWarps;
  /// Two words of shared memory, for turns by turns: whether a warp of the CTA
  /// has given up.
  mlir::Value hasFailed;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80EXCHANGE_H
