//===- Sm80Rank.cpp - the schedule sm80.rank --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// One CTA. The slots, in the order of (token, slot), are cut into one run per
// warp. A warp counts the slots of each local expert in its run; sums over
// experts and over earlier warps tell where its slots go; then it deals out
// positions. Slots of a run are taken 32 at a time: those of one expert find
// each other by a match and are ranked by lane.

#include "../../Emission/RankIds.h"
#include "../Emit.h"
#include "../ThreadEmitter.h"
#include "moec/Analysis/Sm80.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

namespace {

constexpr int64_t kWarp = sm80::kWarp;

/// 32 slots of a warp, one per lane. Numbers are i32.
struct Slots {
  /// The lane's slot, of type index, and whether there is one.
  Value slot, exists;
  Value id, local, isHere;
  /// Slots of the same expert: those of lower lanes, and all.
  Value lower, count;
  /// Whether no lower lane has the same expert.
  Value isFirst;
};

class Rank {
public:
  Rank(tile::RankOp op, ThreadEmitter &emitter);

  void run();

private:
  static Value makeLocalTable(tile::RankOp op, ThreadEmitter &emitter) {
    return op.getLocalExperts()
               ? emitter.constantTable(RankIds::getLocalTable(op))
               : Value();
  }
  /// A `T x k` argument as one row of slots.
  Value flatten(Value memref);
  void forSlots(function_ref<void(const Slots &)> body);
  void countSlots();
  void sumWarps();
  void sumExperts();
  void placeSlots();
  void clearInvalid();
  /// The index, in `table`, of a local expert of this warp, or of a warp.
  Value counterOf(Value local);
  Value counterOf(int64_t warp, Value local);
  Value addI32(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  /// Adds the slots of each expert to its counter.
  void addCounts(const Slots &slots);

  tile::RankOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  int64_t topK, numLocal, numWarps;
  RankIds experts;
  Value ids, weights, offsets, position, source, rowWeight;
  /// Numbers of slots, then positions relative to the expert's first: per warp
  /// and local expert. After them, per expert, the sum over warps and then the
  /// expert's first position.
  Value table;
  /// Slots that count, and where the warp's run of them begins and ends.
  Value numSlots, begin, end;
};

Rank::Rank(tile::RankOp op, ThreadEmitter &emitter)
    : op(op), emitter(emitter), b(emitter.b), topK(getColumns(op.getIds())),
      numLocal(RankIds::getNumLocal(op)), numWarps(emitter.getNumWarps()),
      experts(op, emitter, makeLocalTable(op, emitter)),
      ids(flatten(emitter.operand(op.getIds()))),
      weights(flatten(emitter.operand(op.getWeights()))),
      offsets(emitter.operand(op.getOffsets())),
      position(flatten(emitter.operand(op.getPosition()))),
      source(emitter.operand(op.getSource())),
      rowWeight(emitter.operand(op.getRowWeight())) {
  table = emitter.scratch((numWarps + 1) * numLocal, b.getI32Type());
  numSlots = emitter.mul(emitter.validTokens(op.getNumValidTokens()), topK);
  // Whole rounds of the warp, but for the last run.
  int64_t round = kWarp * numWarps;
  Value rounds = arith::DivUIOp::create(b, emitter.add(numSlots, round - 1),
                                        emitter.index(round));
  Value run = emitter.mul(rounds, kWarp);
  begin =
      emitter.min(emitter.mul(emitter.toIndex(emitter.warp()), run), numSlots);
  end = emitter.min(emitter.add(begin, run), numSlots);
}

Value Rank::flatten(Value memref) {
  auto type = MemRefType::get({ShapedType::kDynamic}, getElementType(memref));
  Value size = emitter.mul(emitter.tokens(), topK);
  return memref::ReinterpretCastOp::create(
      b, type, memref, b.getIndexAttr(0), ArrayRef<OpFoldResult>{size},
      ArrayRef<OpFoldResult>{b.getIndexAttr(1)});
}

Value Rank::counterOf(Value local) {
  Value row = emitter.mul(emitter.toIndex(emitter.warp()), numLocal);
  return emitter.add(row, emitter.toIndex(local));
}

Value Rank::counterOf(int64_t warp, Value local) {
  return emitter.add(emitter.index(warp * numLocal), local);
}

void Rank::forSlots(function_ref<void(const Slots &)> body) {
  emitter.forLoop(begin, end, kWarp, [&](Value first) {
    Slots s;
    s.slot = emitter.add(first, emitter.toIndex(emitter.lane()));
    s.exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, s.slot, end);
    // A lane without a slot repeats the first one, but it is nowhere.
    Value at = arith::SelectOp::create(b, s.exists, s.slot, first);
    s.id = emitter.loadI32(ids, at);
    s.local = arith::SelectOp::create(b, s.exists, experts.localOf(s.id),
                                      emitter.i32(numLocal));
    s.isHere = experts.isHere(s.local);
    Value same = emitter.matchAny(s.local);
    Value bit = arith::ShLIOp::create(b, emitter.i32(1), emitter.lane());
    Value lowerBits = arith::SubIOp::create(b, bit, emitter.i32(1));
    s.lower = math::CtPopOp::create(
        b, Value(arith::AndIOp::create(b, same, lowerBits)));
    s.count = math::CtPopOp::create(b, same);
    s.isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, s.lower,
                                      emitter.i32(0));
    body(s);
  });
}

void Rank::addCounts(const Slots &s) {
  Value counts = arith::AndIOp::create(b, s.isHere, s.isFirst);
  emitter.ifThen(counts, [&] {
    Value at = counterOf(s.local);
    emitter.storeI32(addI32(emitter.loadI32(table, at), s.count), table, at);
  });
  emitter.warpBarrier();
}

void Rank::countSlots() {
  forSlots([&](const Slots &slots) { addCounts(slots); });
}

/// Per expert: what earlier warps have, and the sum of all.
void Rank::sumWarps() {
  emitter.forThreads(
      emitter.index(0), emitter.index(numLocal), [&](Value local) {
        Value sum = emitter.i32(0);
        for (int64_t warp = 0; warp <= numWarps; ++warp) {
          Value at = counterOf(warp, local);
          Value counted =
              warp < numWarps ? emitter.loadI32(table, at) : Value();
          emitter.storeI32(sum, table, at);
          if (counted)
            sum = addI32(sum, counted);
        }
      });
}

/// The first warp sums over experts, 32 at a time.
void Rank::sumExperts() {
  Value isFirstWarp = emitter.isLess(emitter.warp(), emitter.i32(1));
  Value lane = emitter.lane();
  emitter.ifThen(isFirstWarp, [&] {
    SmallVector<Value> total = emitter.forLoop(
        emitter.index(0), emitter.index(numLocal), kWarp, emitter.i32(0),
        [&](Value first, ValueRange carried) -> SmallVector<Value> {
          Value local = emitter.add(first, emitter.toIndex(lane));
          Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                               local, emitter.index(numLocal));
          Value safe = arith::SelectOp::create(b, exists, local, first);
          Value at = counterOf(numWarps, safe);
          Value counted = arith::SelectOp::create(
              b, exists, emitter.loadI32(table, at), emitter.i32(0));
          Value sum = counted;
          for (int64_t distance = 1; distance < kWarp; distance *= 2) {
            Value other = emitter.shuffleUp(sum, distance);
            Value isAlone = emitter.isLess(lane, emitter.i32(distance));
            sum = addI32(sum, arith::SelectOp::create(b, isAlone,
                                                      emitter.i32(0), other));
          }
          Value before =
              addI32(carried[0], arith::SubIOp::create(b, sum, counted));
          emitter.warpBarrier();
          emitter.ifThen(exists, [&] {
            emitter.storeI32(before, table, at);
            emitter.storeI32(before, offsets, local);
          });
          emitter.warpBarrier();
          return {addI32(carried[0], emitter.broadcast(sum, kWarp - 1))};
        });
    emitter.ifThen(emitter.isLess(lane, emitter.i32(1)), [&] {
      emitter.storeI32(total[0], offsets, emitter.index(numLocal));
    });
  });
}

void Rank::placeSlots() {
  forSlots([&](const Slots &s) {
    // Of a slot that is not here, something is read and not used.
    Value local = arith::SelectOp::create(b, s.isHere, s.local, emitter.i32(0));
    Value first =
        emitter.loadI32(table, counterOf(numWarps, emitter.toIndex(local)));
    Value inWarp = emitter.loadI32(table, counterOf(local));
    Value place = addI32(addI32(first, inWarp), s.lower);
    emitter.warpBarrier();
    emitter.ifThen(
        s.isHere,
        [&] {
          Value at = emitter.toIndex(place);
          Value token = emitter.divide(emitter.toI32(s.slot), topK);
          emitter.storeI32(place, position, s.slot);
          emitter.storeI32(token, source, at);
          emitter.storeF32(emitter.loadF32(weights, s.slot), rowWeight,
                           {at, emitter.index(0)});
        },
        [&] {
          emitter.ifThen(s.exists, [&] {
            emitter.storeI32(experts.positionOfOther(s.id), position, s.slot);
          });
        });
    addCounts(s);
  });
}

void Rank::clearInvalid() {
  if (!op.getNumValidTokens())
    return;
  emitter.forThreads(
      numSlots, emitter.mul(emitter.tokens(), topK),
      [&](Value slot) { emitter.storeI32(emitter.i32(-1), position, slot); });
}

void Rank::run() {
  emitter.forThreads(
      emitter.index(0), emitter.index(numWarps * numLocal),
      [&](Value i) { emitter.storeI32(emitter.i32(0), table, i); });
  emitter.barrier();
  countSlots();
  emitter.barrier();
  sumWarps();
  emitter.barrier();
  sumExperts();
  emitter.barrier();
  placeSlots();
  clearInvalid();
}

} // namespace

LogicalResult moec::emitSm80Rank(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  Rank(cast<tile::RankOp>(phase), emitter).run();
  return success();
}
