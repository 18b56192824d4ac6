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

/// Bytes of a flag or counter, and of a word of a chunk.
constexpr int64_t kFlagBytes = 8, kWordBytes = 4;

/// One pair of `ins` and `outs`. Counts and bytes are for one rank, i64.
struct Sm80ExchangePart {
  /// Base addresses of the memory to move; for values that the kernel
  /// quantizes, of their rows.
  mlir::Value in, out;
  /// Type of one load or store, its elements if they are summed, and its size.
  mlir::Type piece;
  mlir::VectorType terms;
  int64_t pieceBytes;
  /// Chunks of a thread in a round: fewer for parts with fewer chunks in all.
  int64_t atOnce;
  mlir::Value count, bytes;
  /// Chunks of a row, if rows are moved only to destination ranks; else 0.
  int64_t ownedPieces = 0;
  /// Chunks of a row, and the warps per row, if all of a warp's chunks in a
  /// round belong to one row: for sums that the kernel computes, and for
  /// quantization with one scale per row; else 0.
  int64_t rowPieces = 0, rowWarps = 0;
  /// Bytes of a row of sums: in a heap, and in a tensor, of which it may be
  /// some columns.
  int64_t rowBytes = 0, tensorRowBytes = 0;
  /// Offsets in a heap: from the start of an exchange to the data of this part
  /// from rank 0, and between ranks.
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
  /// Coordinate on the axis of the rank that is `distance` after this one.
  mlir::Value getPlace(mlir::Value distance);
  mlir::Value isBelow(mlir::Value x, int64_t end) {
    return isLess(x, number(end));
  }
  /// Whether another rank exists at that distance.
  mlir::Value isOther(mlir::Value distance) {
    return mlir::arith::AndIOp::create(b, isLess(number(0), distance),
                                       isBelow(distance, ranks));
  }
  /// Iterates over the distances from `first` to the last rank, several at a
  /// time, in a loop if there are many: addresses of all ranks at once do not
  /// fit in registers. `body` computes the carried values, from none the first
  /// time.
  mlir::SmallVector<mlir::Value>
  forRanks(int64_t first,
           llvm::function_ref<mlir::SmallVector<mlir::Value>(
               mlir::ArrayRef<mlir::Value> numbers, mlir::ValueRange carried)>
               body);
  /// Iterates over ranks without carried values.
  void
  forRanks(int64_t first,
           llvm::function_ref<void(mlir::ArrayRef<mlir::Value> numbers)> body);

  // Heaps.
  /// Stores the addresses of all ranks' heaps in shared memory.
  void makeHeapTable();
  /// The heap of the rank at that distance, which is less than the number of
  /// ranks.
  mlir::Value heapAt(mlir::Value distance);

  // Words of a heap.
  mlir::Value wordAt(mlir::Value heap, int64_t offset, mlir::Value index = {});
  mlir::Value loadWord(mlir::Value address) {
    return emitter.load(b.getI64Type(), address, kFlagBytes);
  }
  /// Accesses with system scope, ordered across GPUs.
  mlir::Value loadStrong(mlir::Value address, mlir::LLVM::AtomicOrdering order);
  void storeStrong(mlir::Value value, mlir::Value address,
                   mlir::LLVM::AtomicOrdering order);

  void readHeader();
  void useTold();
  /// Computes values that depend on the header's words.
  void useHeader();
  void makeParts();
  Sm80ExchangePart makePart(size_t index, mlir::Value begin);

  // Destination ranks. They are only determined with many rows: `asks`.
  void readOwners();
  /// Chunks whose rows' destination ranks are requested: their indices in a
  /// rank's part, the ids, and the number of id rows before that part.
  struct Question {
    const Sm80ExchangePart *part;
    mlir::ArrayRef<mlir::Value> pieces;
    mlir::Value ids;
    mlir::Value firstRow;
  };
  /// Masks (i32) of destination ranks' coordinates, for each chunk of each
  /// question.
  mlir::SmallVector<Pieces> findOwners(mlir::ArrayRef<Question> questions);
  mlir::SmallVector<mlir::Value> loadOwnerBits(const Question &question,
                                               mlir::Value firstElement,
                                               mlir::Value endElement);
  /// Whether the coordinate is one of the destination ranks'.
  mlir::Value isOwner(mlir::Value owners, mlir::Value place);
  /// A chunk's summand from the rank at `place`: zeros if that is neither a
  /// destination rank nor this rank.
  mlir::Value getPartOf(mlir::Value piece, mlir::Value owners,
                        mlir::Value place);

  /// This thread's chunks of a part in a round, and whether they exist.
  struct Round {
    const Sm80ExchangePart *part;
    /// For a part with `rowPieces`: the row of all of the warp's chunks, and
    /// whether it exists.
    mlir::Value row, hasRow;
    /// Indices in a rank's part.
    Pieces numbers;
    /// Byte offsets from the beginning of a rank's part.
    Pieces offsets;
    Pieces isThere;
  };
  llvm::SmallVector<Round, 0> getRounds(mlir::Value turn);
  void addPieces(Round &round, mlir::Value turn);
  void addPiecesOfRow(Round &round, mlir::Value turn);
  void addScales(mlir::MutableArrayRef<Round> rounds);
  /// Chunks whose destination ranks are requested.
  mlir::ArrayRef<mlir::Value> getAsked(const Round &round) {
    return round.row ? mlir::ArrayRef(round.numbers).take_front()
                     : mlir::ArrayRef(round.numbers);
  }
  /// The destination ranks of all chunks, given `answer` for those of
  /// `getAsked`.
  static Pieces spread(const Round &round, Pieces answer) {
    answer.resize(round.numbers.size(), answer.front());
    return answer;
  }
  /// Chunks of a round to load, and the action on them and on their destination
  /// ranks; no ranks if none are requested or rows go to all.
  struct Load {
    const Round *round;
    mlir::Value from;
    std::function<void(Pieces pieces, Pieces owners)> use;
    /// Null if no destination ranks are requested.
    mlir::Value ids = {};
    mlir::Value firstRow = {};
    /// Consecutive loads, of the chunk's size each, that make up a chunk.
    int64_t perPiece = 1;
  };
  Load makeLoad(const Round &round, mlir::Value from, decltype(Load::use) use,
                mlir::Value ids, mlir::Value firstRow);
  void run(mlir::ArrayRef<Load> loads);
  void tie(mlir::MutableArrayRef<Pieces> loaded);
  /// Destination of chunks; with a coordinate, only if that is a destination
  /// rank.
  struct Target {
    mlir::Value address;
    mlir::Value place = {};
  };
  void store(const Round &round, mlir::ValueRange pieces,
             mlir::ArrayRef<Target> targets, mlir::ValueRange owners = {});
  /// Destination of this rank's part.
  Target getTarget(const Sm80ExchangePart &part, mlir::Value distance);
  mlir::Value getSource(const Sm80ExchangePart &part, mlir::Value place);
  mlir::Value getStaged(const Sm80ExchangePart &part, mlir::Value heap,
                        mlir::Value place) {
    return emitter.advance(heap,
                           add(add(begin, part.begin), mul(place, part.pitch)));
  }

  /// A copy for one round: values derived from heaps, rows and coordinates are
  /// computed inside the round, because addresses of all parts do not fit in
  /// registers.
  Sm80Exchange forTurn() const;
  /// A copy with parts recomputed at a point inside a round.
  Sm80Exchange withNewParts() const;
  /// Rounds of pushes; the results of each are read when all ranks have reached
  /// it. Returns whether they have. `most`: chunks per thread.
  mlir::Value pushAndTake(mlir::Value most);
  /// All pushes, then one wait for all ranks; returns whether they have
  /// arrived.
  mlir::Value pushToResults(mlir::Value most);
  void push(mlir::Value turn);
  /// Chunks of a pair in a round.
  struct Moved {
    size_t pair;
    Pieces pieces;
  };
  /// Stores chunks of a gather to all ranks that need them, including this one.
  void pushPieces(mlir::Value turn, mlir::ArrayRef<Moved> moved,
                  mlir::ValueRange owners);
  void pushOwned(mlir::ArrayRef<Round> rounds);
  void take(mlir::Value turn);
  void sum(mlir::Value turn);

  // Sums that the kernel makes itself (Sm80ExchangeSums.cpp).
  /// Offset of a round's row in a tensor minus its offset in a heap's part.
  mlir::Value getGap(const Round &round) {
    const Sm80ExchangePart &part = *round.part;
    return mul(round.row, part.tensorRowBytes - part.rowBytes);
  }
  void readSums();
  void pushSums(mlir::Value turn);
  void storeSums(const Round &round, mlir::ArrayRef<mlir::Value> distances,
                 mlir::ValueRange sums, mlir::ValueRange owners);
  /// The position in this lane's slot of a round's row, relative to `firstRow`.
  mlir::Value loadPosition(const Round &round, mlir::Value firstRow);
  Pieces makeSums(const Round &round, mlir::Value firstRow,
                  mlir::Value position);
  mlir::Value findSlots(const Round &round, mlir::Value row,
                        mlir::Value position);
  /// Sums chunks over the remaining slots (a mask) of a warp's row.
  Pieces addSlots(const Round &round, mlir::Value position, Pieces left,
                  int64_t count);

  // Quantization by the kernel (Sm80ExchangeCodes.cpp).
  bool areCodes(size_t pair) {
    return op.getCoded() && op.getCoded()->front() == int64_t(pair);
  }
  bool areScales(size_t pair) {
    return op.getCoded() && op.getCoded()->back() == int64_t(pair);
  }
  /// Loads of a row per chunk of quantized values, and adjacent lanes that
  /// share a group.
  int64_t countLoadsOfCodes();
  int64_t countLanesOfGroup();
  void readCodes();
  /// Sets the chunks of quantized values and scales per thread and round.
  void dealOutCodes();
  /// Quantizes the rows that a thread has loaded in a round, and pushes them.
  void pushCodes(const Round &round, mlir::Value turn,
                 mlir::ArrayRef<mlir::Value> rows, mlir::ValueRange owners);
  /// Inputs of a chunk of quantized values, as vectors of the rows' elements.
  Pieces getValues(mlir::ArrayRef<mlir::Value> rows, size_t piece);
  mlir::Value makePieceOfCodes(Quantizer &quantizer,
                               mlir::ArrayRef<mlir::Value> numbers,
                               const Quantizer::Divisor &divisor);
  /// The largest magnitude of the row that all of the warp's chunks belong to.
  mlir::Value findLargestOfRow(Quantizer &quantizer, const Round &round,
                               mlir::ArrayRef<mlir::Value> rows);
  mlir::Value shareInRow(Quantizer &quantizer, mlir::Value largest,
                         int64_t warps);

  /// Signals to each other rank that `rounds` rounds are complete.
  void raiseFlags(mlir::Value rounds);
  /// Waits, in each warp, for `rounds` rounds of each other rank; returns
  /// whether they have arrived.
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

  /// This rank's heap, and a table in shared memory of all heaps: this rank's,
  /// then those of the ranks after it.
  mlir::Value heap, heapTable;
  mlir::SmallVector<Sm80ExchangePart> parts;
  mlir::Value cta, thread, lane;
  /// Words of the header, valid after `useHeader`: the rank's coordinate on the
  /// axis, bytes of an exchange area, the number of earlier exchanges, the
  /// abort word.
  mlir::Value own, placeBytes, epoch, aborted;
  /// Derived values: the offset of this exchange in a heap, its flags before
  /// the first round, and whether no rank has aborted.
  mlir::Value begin, done, mayPush;
  /// For pushes, which load their first chunks before the header arrives if
  /// addresses do not depend on it.
  bool isPush = false, awaitsHeader = false;
  /// Threads of all CTAs; the first of this thread's chunks in this round.
  mlir::Value lanes, first;
  /// The kernel's argument in place of rows (PeerHeap::kRowBits), and the rows
  /// of a rank.
  mlir::Value told, numRows;
  /// Bytes of a tensor's row before the columns that are moved; null for none.
  mlir::Value skippedBytes;
  /// The table of destination ranks, ids of own rows and of all rows; null if
  /// all rows go to all ranks.
  mlir::Value ownerTable, ownIds, allIds;
  /// Whether there are enough rows to determine destination ranks.
  mlir::Value asks;
  /// For sums that the kernel computes: addresses of slots' rows, positions and
  /// the addend, and the number of valid rows; null for none.
  mlir::Value slotRows, positions, addend, numValid;
  /// Per-warp row maxima (f32) in shared memory, for one scale per row; null if
  /// one warp has a whole row.
  mlir::Value largestOfWarps;
  /// Two words of shared memory, used in alternate rounds: whether a warp of
  /// the CTA has aborted.
  mlir::Value hasFailed;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80EXCHANGE_H
