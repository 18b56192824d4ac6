//===- Sm80ExchangeOwners.cpp - which ranks need a row ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Finds the destination ranks of rows. The lanes of a warp hold consecutive
// pieces, hence pieces of few rows, whose ids are contiguous too. Each lane
// looks up some of the ids, and the results are merged by row. All ranks find
// the same destinations, since they have the same ids and tables.

#include "Sm80Exchange.h"

#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Sm80.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

void Sm80Exchange::readOwners() {
  if (!op.getOwners())
    return;
  auto address = [&](Value memref) {
    auto rank = cast<MemRefType>(memref.getType()).getRank();
    return emitter.address(emitter.operand(memref),
                           SmallVector<Value>(rank, emitter.index(0)));
  };
  ownerTable = address(op.getOwners());
  ownIds = address(op.getIds().front());
  if (op.getIds().size() > 1)
    allIds = address(op.getIds().back());
  asks = isLess(number(config.getLeastRows() - 1), numRows);
}

Value Sm80Exchange::isOwner(Value owners, Value place) {
  Value distance = arith::TruncIOp::create(b, b.getI32Type(), place);
  Value bit = arith::AndIOp::create(
      b, arith::ShRUIOp::create(b, owners, distance), emitter.i32(1));
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, bit,
                               emitter.i32(0));
}

Value Sm80Exchange::getPartOf(Value piece, Value owners, Value place) {
  Value isThere =
      arith::OrIOp::create(b, isOwner(owners, place), isEqual(place, own));
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(piece.getType()));
  return arith::SelectOp::create(b, isThere, piece, zeros);
}

/// The destination ranks, as bits, of this lane's ids: element `firstElement`,
/// then every 32nd. An id may have several (replicas), or none if it is not an
/// expert's.
SmallVector<Value> Sm80Exchange::loadOwnerBits(const Question &question,
                                               Value firstElement,
                                               Value endElement) {
  constexpr int64_t idBytes = 4;
  Type i32 = b.getI32Type();
  int64_t topK = cast<MemRefType>(op.getIds().front().getType()).getDimSize(1);
  ArrayRef<int64_t> table =
      cast<MemRefType>(op.getOwners().getType()).getShape();
  int64_t numExperts = table.front();
  int64_t perExpert = table.size() > 1 ? table.back() : 1;
  auto perOwner = static_cast<int32_t>(op.getExpertsPerOwner().value_or(1));
  int64_t count = llvm::divideCeil(
      countRowsOfWarp(question.part->ownedPieces) * topK, sm80::kWarp);
  auto isBelow = [&](Value x, int64_t end) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, x,
                                 emitter.i32(end));
  };
  // Absent elements load the heap's header, which is always readable.
  auto loadIf = [&](Value isThere, Value table, Value index) {
    Value address = arith::SelectOp::create(
        b, isThere, emitter.advance(table, mul(index, idBytes)), heap);
    return emitter.load(i32, address, idBytes);
  };
  SmallVector<Value> isThere, ids, found;
  for (int64_t i = 0; i < count; ++i) {
    Value element = add(firstElement, number(i * sm80::kWarp));
    isThere.push_back(isLess(element, endElement));
    ids.push_back(loadIf(isThere.back(), question.ids, element));
  }
  for (auto [id, there] : llvm::zip(ids, isThere)) {
    there = arith::AndIOp::create(b, there, isBelow(id, numExperts));
    Value first = mul(widen(id), perExpert);
    for (int64_t i = 0; i < perExpert; ++i)
      found.push_back(loadIf(there, ownerTable, add(first, number(i))));
  }
  SmallVector<Value> bits(isThere.size());
  for (auto [i, expert] : llvm::enumerate(found)) {
    size_t element = i / size_t(perExpert);
    Value has = arith::AndIOp::create(
        b, isThere[element], isBelow(expert, ranks * int64_t(perOwner)));
    Value place = perOwner == 1
                      ? expert
                      : arith::DivUIOp::create(b, expert, emitter.i32(perOwner))
                            .getResult();
    Value bit = arith::SelectOp::create(
        b, has, arith::ShLIOp::create(b, emitter.i32(1), place),
        emitter.i32(0));
    Value &joined = bits[element];
    joined = joined ? arith::OrIOp::create(b, joined, bit) : bit;
  }
  return bits;
}

SmallVector<Sm80Exchange::Pieces>
Sm80Exchange::findOwners(ArrayRef<Question> questions) {
  SmallVector<Pieces> answers;
  if (questions.empty())
    return answers;
  int64_t topK = cast<MemRefType>(op.getIds().front().getType()).getDimSize(1);
  auto ask = [&] {
    struct Asked {
      const Question *question;
      /// Offset in pieces from the warp's first row to the piece.
      Value rest;
      SmallVector<Value> bits;
    };
    SmallVector<Asked> asked;
    for (const Question &question : questions)
      for (Value piece : question.pieces) {
        Value perRow = number(question.part->ownedPieces);
        Value row = arith::DivUIOp::create(
            b, arith::SubIOp::create(b, piece, lane), perRow);
        Value element = add(mul(add(question.firstRow, row), topK), lane);
        Value end = mul(add(question.firstRow, numRows), topK);
        asked.push_back({&question,
                         arith::SubIOp::create(b, piece, mul(row, perRow)),
                         loadOwnerBits(question, element, end)});
      }
    SmallVector<Value> all;
    for (const Asked &each : asked) {
      int64_t pieces = each.question->part->ownedPieces;
      Value mine;
      for (int64_t row = 0; row < countRowsOfWarp(pieces); ++row) {
        Value ofRow;
        for (auto [i, bits] : llvm::enumerate(each.bits)) {
          int64_t first = row * topK - int64_t(i) * sm80::kWarp;
          if (first >= sm80::kWarp || first + topK <= 0)
            continue;
          Value isOfRow =
              arith::AndIOp::create(b, isLess(number(first - 1), lane),
                                    isLess(lane, number(first + topK)));
          Value joined = emitter.warpOr(
              arith::SelectOp::create(b, isOfRow, bits, emitter.i32(0)));
          ofRow = ofRow ? arith::OrIOp::create(b, ofRow, joined) : joined;
        }
        mine =
            mine ? arith::SelectOp::create(
                       b, isLess(each.rest, number(row * pieces)), mine, ofRow)
                 : ofRow;
      }
      all.push_back(mine);
    }
    return all;
  };
  size_t count = 0;
  for (const Question &question : questions)
    count += question.pieces.size();
  auto everybody = [&] { return SmallVector<Value>(count, emitter.i32(-1)); };
  SmallVector<Value> all = emitter.choose(
      asks, SmallVector<Type>(count, b.getI32Type()), ask, everybody);
  ArrayRef<Value> rest = all;
  for (const Question &question : questions) {
    answers.emplace_back(rest.take_front(question.pieces.size()));
    rest = rest.drop_front(question.pieces.size());
  }
  return answers;
}
