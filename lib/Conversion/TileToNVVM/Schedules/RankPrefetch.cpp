//===- RankPrefetch.cpp - weights of chosen experts, ahead ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// While one CTA ranks few slots, all others have nothing to do, and neither has
// the bus. One warp of each reads the ids itself. Lane `i` learns the expert
// that is the `i`-th one of those chosen, in the order in which the product
// takes them; then chunks of all of them are dealt out to the lanes of all
// CTAs.

#include "RankPrefetch.h"

#include "../WeightPrefetch.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "moec/Analysis/Sm80.h"

using namespace mlir;
using namespace moec;

namespace {

constexpr int64_t kWarp = sm80::kWarp;
/// Slots of a lane. Of more slots most experts are chosen, and the product
/// takes so long that it does not matter when it begins.
constexpr int64_t kSlotsPerLane = 2;

class RankPrefetch {
public:
  RankPrefetch(tile::RankOp op, ThreadEmitter &emitter, RankIds &experts,
               Value ids, Value numSlots)
      : op(op), emitter(emitter), b(emitter.b), experts(experts), ids(ids),
        numSlots(numSlots),
        weights(emitter, op.getPrefetch(),
                static_cast<int64_t>(*op.getPrefetchBytes())),
        numLocal(RankIds::getNumLocal(op)) {}

  void emit();

private:
  /// The lane's experts; `numLocal` stands for none. i32.
  SmallVector<Value> loadExperts();
  void findChosen(ArrayRef<Value> own);
  void requestChunks();

  Value isLessIndex(Value x, Value y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, x, y);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, condition, x, y);
  }

  tile::RankOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  RankIds &experts;
  Value ids, numSlots;
  WeightPrefetch weights;
  int64_t numLocal;
  /// The expert that the lane knows, and how many lanes know one; i32.
  Value known, count;
};

SmallVector<Value> RankPrefetch::loadExperts() {
  SmallVector<Value> own;
  for (int64_t i = 0; i < kSlotsPerLane; ++i) {
    Value slot = emitter.add(emitter.toIndex(emitter.lane()), i * kWarp);
    Value exists = isLessIndex(slot, numSlots);
    Value at = select(exists, slot, emitter.index(0));
    Value local = experts.localOf(emitter.loadI32(ids, at));
    Value isHere = arith::AndIOp::create(b, exists, experts.isHere(local));
    own.push_back(select(isHere, local, emitter.i32(numLocal)));
  }
  return own;
}

/// The least expert of all lanes, then the least one above it, and so on.
void RankPrefetch::findChosen(ArrayRef<Value> own) {
  Value none = emitter.i32(numLocal);
  int64_t most = std::min(weights.getMostMatrices(), kWarp);
  SmallVector<Value> found = emitter.forLoop(
      emitter.index(0), emitter.index(most), 1,
      {emitter.i32(-1), none, emitter.i32(0)},
      [&](Value i, ValueRange carried) -> SmallVector<Value> {
        Value least = none;
        for (Value expert : own) {
          Value isAbove = emitter.isLess(carried[0], expert);
          least =
              arith::MinSIOp::create(b, least, select(isAbove, expert, none));
        }
        least = emitter.warpMin(least);
        Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                             emitter.lane(), emitter.toI32(i));
        Value isThere = arith::ExtUIOp::create(b, b.getI32Type(),
                                               emitter.isLess(least, none));
        return {least, select(isMine, least, carried[1]),
                arith::AddIOp::create(b, carried[2], isThere)};
      });
  known = found[1];
  count = found[2];
}

void RankPrefetch::requestChunks() {
  Value step = weights.getStep(count);
  Value chunks = emitter.mul(emitter.toIndex(count), weights.getMatrixChunks());
  Value all = emitter.min(chunks, emitter.index(weights.getSpan()));
  // The first CTA has no share.
  Value ctas = NVVM::GridDimXOp::create(b, b.getI32Type());
  Value others = emitter.toIndex(emitter.scale(ctas, 1, -1));
  Value stride = emitter.mul(others, step);
  Value first = emitter.mul(emitter.add(emitter.cta(), -1), step);
  auto loop = scf::ForOp::create(b, first, all, emitter.mul(stride, kWarp));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value chunk =
      emitter.add(loop.getInductionVar(),
                  emitter.mul(emitter.toIndex(emitter.lane()), stride));
  Value size = emitter.index(weights.getMatrixChunks());
  Value lane = emitter.toI32(arith::DivUIOp::create(b, chunk, size));
  Value inMatrix = arith::RemUIOp::create(b, chunk, size);
  // All lanes take part; the number of a lane behind the last is not used.
  Value expert = emitter.getFromLane(known, lane);
  emitter.ifThen(isLessIndex(chunk, all),
                 [&] { weights.request(expert, inMatrix); });
}

void RankPrefetch::emit() {
  auto isPositive = [&](Value x) { return isLessIndex(emitter.index(0), x); };
  Value isFree = isPositive(emitter.cta());
  Value isFirstWarp = emitter.isLess(emitter.warp(), emitter.i32(1));
  Value areFew =
      isLessIndex(numSlots, emitter.index(kSlotsPerLane * kWarp + 1));
  Value takesPart = arith::AndIOp::create(
      b, arith::AndIOp::create(b, isFree, isFirstWarp),
      arith::AndIOp::create(b, isPositive(numSlots), areFew));
  emitter.ifThen(takesPart, [&] {
    findChosen(loadExperts());
    requestChunks();
  });
}

} // namespace

void moec::emitRankPrefetch(tile::RankOp op, ThreadEmitter &emitter,
                            RankIds &experts, Value ids, Value numSlots) {
  RankPrefetch(op, emitter, experts, ids, numSlots).emit();
}
