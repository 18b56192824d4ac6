//===- Sm80ExchangeSums.cpp - sums that an exchange makes -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Computes the summands that an exchange pushes: the sum of a token's rows, in
// the order and with the rounding of sm80.gather_reduce. All pieces of a warp
// in a round belong to one row, so a vote finds the slots with something to
// add, and a token's cost is that of its rows. Loads from rows of several slots
// and pieces are in flight at once.
//
// A rank's own rows come last, after those that other ranks wait for, and pass
// through its own heap.

#include "../../InlinePtx.h"
#include "Sm80Exchange.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "moec/Analysis/Sm80.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

void Sm80Exchange::readSums() {
  if (!op.getRows())
    return;
  auto address = [&](Value memref) {
    return emitter.address(emitter.operand(memref),
                           {emitter.index(0), emitter.index(0)});
  };
  auto addressOfRows = [&](Value memref) {
    return skippedBytes ? emitter.advance(address(memref), skippedBytes)
                        : address(memref);
  };
  slotRows = addressOfRows(op.getRows());
  positions = address(op.getPosition());
  if (op.getAddend())
    addend = addressOfRows(op.getAddend());
  if (Value count = op.getNumValidTokens())
    numValid = arith::ExtSIOp::create(
        b, b.getI64Type(),
        emitter.loadI32(emitter.operand(count), {emitter.index(0)}));
}

Value Sm80Exchange::loadPosition(const Round &round, Value firstRow) {
  constexpr int64_t positionBytes = 4;
  int64_t topK = cast<MemRefType>(op.getPosition().getType()).getDimSize(1);
  // Lanes without a slot load the last one, and do not vote for it. Warps
  // without a row load the heap's header.
  Value slot = arith::MinSIOp::create(b, lane, number(topK - 1));
  Value index = add(mul(add(firstRow, round.row), topK), slot);
  Value at = arith::SelectOp::create(
      b, round.hasRow, emitter.advance(positions, mul(index, positionBytes)),
      heap);
  return emitter.load(b.getI32Type(), at, positionBytes);
}

/// The slots of `row` with something to add, as bits.
Value Sm80Exchange::findSlots(const Round &round, Value row, Value position) {
  int64_t topK = cast<MemRefType>(op.getPosition().getType()).getDimSize(1);
  Value has =
      arith::AndIOp::create(b, round.hasRow,
                            arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                                                  position, emitter.i32(0)));
  if (topK < sm80::kWarp)
    has = arith::AndIOp::create(b, has, isBelow(lane, topK));
  if (numValid)
    has = arith::AndIOp::create(b, has, isLess(row, numValid));
  return emitter.ballot(has);
}

/// Adds the first `count` remaining slots.
Sm80Exchange::Pieces Sm80Exchange::addSlots(const Round &round, Value position,
                                            Pieces left, int64_t count) {
  const Sm80ExchangePart &part = *round.part;
  int64_t rowBytes = part.rowBytes;
  // Byte offsets in a row; absent pieces load the row's last one.
  bool areAllThere = part.rowPieces % (sm80::kWarp * part.atOnce) == 0;
  Value before = mul(round.row, rowBytes);
  Value first = arith::SubIOp::create(b, round.offsets.front(), before);
  SmallVector<Value> columns;
  for (int64_t i = 0; i < part.atOnce; ++i) {
    Value column = add(first, number(i * sm80::kWarp * part.pieceBytes));
    if (!areAllThere)
      column =
          arith::MinSIOp::create(b, column, number(rowBytes - part.pieceBytes));
    columns.push_back(column);
  }
  SmallVector<Pieces> loaded;
  for (int64_t i = 0; i < count; ++i) {
    // At least `count` bits are set, so skip the branch for a zero operand.
    Value slot = LLVM::CountTrailingZerosOp::create(
        b, b.getI32Type(), left.front(), /*is_zero_poison=*/true);
    Value below = arith::SubIOp::create(b, left.front(), emitter.i32(1));
    left.front() = arith::AndIOp::create(b, left.front(), below);
    Value row = emitter.getFromLane(position, slot);
    Value from =
        emitter.advance(slotRows, mul(widen(row), part.tensorRowBytes));
    Pieces &pieces = loaded.emplace_back();
    for (Value column : columns)
      pieces.push_back(emitter.load(part.piece, emitter.advance(from, column),
                                    part.pieceBytes));
  }
  // All loads are issued before the first result is unpacked.
  tie(loaded);
  for (const Pieces &pieces : loaded)
    for (auto [i, piece] : llvm::enumerate(pieces)) {
      Value term = castFloat(b, LLVM::BitcastOp::create(b, part.terms, piece),
                             b.getF32Type());
      left[i + 1] = arith::AddFOp::create(b, left[i + 1], term);
    }
  return left;
}

Sm80Exchange::Pieces Sm80Exchange::makeSums(const Round &round, Value firstRow,
                                            Value position) {
  // 32-bit registers for rows in flight.
  constexpr int64_t mostWords = 64;
  const Sm80ExchangePart &part = *round.part;
  Value row = add(firstRow, round.row);
  Type sumType = VectorType::get(part.terms.getShape(), b.getF32Type());
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(sumType));
  Pieces progress{findSlots(round, row, position)};
  progress.append(size_t(part.atOnce), zeros);
  Value count = math::CtPopOp::create(b, progress.front());
  int64_t topK = cast<MemRefType>(op.getPosition().getType()).getDimSize(1);
  int64_t words =
      part.atOnce * int64_t(llvm::divideCeil(part.pieceBytes, kWordBytes));
  int64_t most = std::min<int64_t>(
      llvm::bit_floor(uint64_t(topK)),
      llvm::bit_floor(uint64_t(std::max<int64_t>(mostWords / words, 1))));
  Value times = emitter.divide(count, most);
  progress =
      emitter.forLoop(emitter.index(0), emitter.toIndex(times), 1, progress,
                      [&](Value, ValueRange carried) {
                        return addSlots(round, position, Pieces(carried), most);
                      });
  // The remainder takes halves, quarters, ...
  for (int64_t slots = most / 2; slots > 0; slots /= 2) {
    Value bit = arith::AndIOp::create(b, count, emitter.i32(slots));
    Value has =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ne, bit, emitter.i32(0));
    progress = emitter.choose(
        has, ValueRange(progress).getTypes(),
        [&] { return addSlots(round, position, progress, slots); },
        [&] { return progress; });
  }
  Pieces sums(llvm::drop_begin(progress));
  for (auto [i, sum] : llvm::enumerate(sums)) {
    if (addend) {
      Value bytes = mul(firstRow, part.tensorRowBytes);
      if (part.tensorRowBytes != part.rowBytes)
        bytes = add(bytes, getGap(round));
      Value at = arith::SelectOp::create(
          b, round.isThere[i],
          emitter.advance(addend, add(bytes, round.offsets[i])), heap);
      Value piece = emitter.load(part.piece, at, part.pieceBytes);
      Value term = castFloat(b, LLVM::BitcastOp::create(b, part.terms, piece),
                             b.getF32Type());
      sum = arith::AddFOp::create(b, sum, term);
    }
    if (numValid)
      sum = arith::SelectOp::create(b, isLess(row, numValid), sum, zeros);
    sum = LLVM::BitcastOp::create(
        b, part.piece, castFloat(b, sum, part.terms.getElementType()));
  }
  return sums;
}

void Sm80Exchange::storeSums(const Round &round, ArrayRef<Value> distances,
                             ValueRange sums, ValueRange owners) {
  store(round, sums,
        llvm::map_to_vector(distances,
                            [&](Value distance) {
                              Target target = getTarget(*round.part, distance);
                              target.place = own;
                              return target;
                            }),
        owners);
}

void Sm80Exchange::pushSums(Value turn) {
  SmallVector<Round, 0> rounds = getRounds(turn);
  const Round &round = rounds.front();
  // Recomputed for the stores, so as not to occupy registers during the sums.
  auto getAgain = [&](Sm80Exchange &here) {
    return here.getRounds(tieNumbers(b, turn).front()).front();
  };
  if (op.getKind() == plan::CollectiveKind::AllReduce) {
    Pieces sums = makeSums(round, number(0), loadPosition(round, number(0)));
    useHeader();
    forRanks(0, [&](ArrayRef<Value> distances) {
      Sm80Exchange here = withNewParts();
      here.storeSums(getAgain(here), distances, sums, {});
    });
    return;
  }
  // A distance of `ranks` is this rank itself.
  auto getFirstRow = [&](Value distance) {
    return mul(getPlace(distance), numRows);
  };
  Value all = number(ranks);
  emitter.forLoop(
      emitter.index(1), emitter.index(ranks + 1), 1,
      loadPosition(round, getFirstRow(number(1))),
      [&](Value index, ValueRange carried) {
        // Prefetch the next rank's positions while this one's rows are added.
        Value distance = toNumber(index);
        Value next = arith::MinSIOp::create(b, add(distance, number(1)), all);
        Value nextPosition = loadPosition(round, getFirstRow(next));
        Pieces sums = makeSums(round, getFirstRow(distance), carried.front());
        distance = tieNumbers(b, distance).front();
        Value isOther = isLess(distance, all);
        Sm80Exchange here = withNewParts();
        Round again = getAgain(here);
        Pieces owners;
        if (again.part->ownedPieces > 0) {
          // This rank's own rows need no lookup of destination ranks.
          here.asks = arith::AndIOp::create(b, asks, isOther);
          Question question = {again.part, getAsked(again), allIds,
                               getFirstRow(distance)};
          owners = spread(again, here.findOwners(question).front());
        }
        Value to = arith::SelectOp::create(b, isOther, distance, number(0));
        here.storeSums(again, to, sums, owners);
        return SmallVector<Value>{nextPosition};
      });
}
