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
// each other by a match and are ranked by lane. If there are counters for
// `panel` experts only, all this is done for `panel` of them after the other.

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
  /// Its expert; the counter of that, and whether it has one now.
  Value id, counter, isHere;
  /// Whether no counter is its expert's, now or ever.
  Value isElsewhere;
  /// Slots of the same expert: those of lower lanes, and all.
  Value lower, count;
  /// Whether no lower lane has the same expert.
  Value isFirst;
};

class Rank {
public:
  Rank(tile::RankOp op, ThreadEmitter &emitter, int64_t panel);

  void run();

private:
  static Value makeLocalTable(tile::RankOp op, ThreadEmitter &emitter) {
    return op.getLocalExperts()
               ? emitter.constantTable(RankIds::getLocalTable(op))
               : Value();
  }
  /// A `T x k` argument as one row of slots.
  Value flatten(Value memref);
  /// Ranks the slots of the experts that have counters now.
  void rankPanel();
  void forSlots(function_ref<void(const Slots &)> body);
  void countSlots();
  void sumWarps();
  void sumExperts();
  void placeSlots();
  void clearInvalid();
  /// The index, in `table`, of a counter of this warp, or of a warp.
  Value indexOf(Value counter);
  Value indexOf(int64_t warp, Value counter);
  /// The index in `table` of the slots of earlier panels.
  Value totalIndex() { return emitter.index((numWarps + 1) * panel); }
  /// The local expert, of type index, whose counter that is.
  Value localOf(Value counter) {
    return firstLocal ? emitter.add(firstLocal, counter) : counter;
  }
  Value addI32(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  /// Adds the slots of each expert to its counter.
  void addCounts(const Slots &slots);

  tile::RankOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  int64_t topK, numLocal, numWarps, panel;
  RankIds experts;
  Value ids, weights, offsets, position, source, rowWeight;
  /// Numbers of slots, then positions relative to the expert's first: per warp
  /// and expert of the panel. After them, per expert, the sum over warps and
  /// then the expert's first position. With several panels, last the slots of
  /// earlier ones.
  Value table;
  /// The first expert of the panel and the number of them, of type index; null
  /// for one panel, which has all.
  Value firstLocal;
  Value numCounters;
  /// Slots that count, and where the warp's run of them begins and ends.
  Value numSlots, begin, end;
};

Rank::Rank(tile::RankOp op, ThreadEmitter &emitter, int64_t panel)
    : op(op), emitter(emitter), b(emitter.b), topK(getColumns(op.getIds())),
      numLocal(RankIds::getNumLocal(op)), numWarps(emitter.getNumWarps()),
      panel(panel), experts(op, emitter, makeLocalTable(op, emitter)),
      ids(flatten(emitter.operand(op.getIds()))),
      weights(flatten(emitter.operand(op.getWeights()))),
      offsets(emitter.operand(op.getOffsets())),
      position(flatten(emitter.operand(op.getPosition()))),
      source(emitter.operand(op.getSource())),
      rowWeight(emitter.operand(op.getRowWeight())) {
  int64_t size = (numWarps + 1) * panel + (panel < numLocal ? 1 : 0);
  table = emitter.scratch(size, b.getI32Type());
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

Value Rank::indexOf(Value counter) {
  Value row = emitter.mul(emitter.toIndex(emitter.warp()), panel);
  return emitter.add(row, emitter.toIndex(counter));
}

Value Rank::indexOf(int64_t warp, Value counter) {
  return emitter.add(emitter.index(warp * panel), counter);
}

void Rank::forSlots(function_ref<void(const Slots &)> body) {
  emitter.forLoop(begin, end, kWarp, [&](Value first) {
    Slots s;
    s.slot = emitter.add(first, emitter.toIndex(emitter.lane()));
    s.exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, s.slot, end);
    // A lane without a slot repeats the first one, but it is nowhere.
    Value at = arith::SelectOp::create(b, s.exists, s.slot, first);
    s.id = emitter.loadI32(ids, at);
    Value local = arith::SelectOp::create(b, s.exists, experts.localOf(s.id),
                                          emitter.i32(numLocal));
    s.counter = local;
    s.isHere = experts.isHere(local);
    s.isElsewhere = s.exists;
    if (firstLocal) {
      Value isLocal = s.isHere;
      Value none = emitter.i32(panel);
      // As an unsigned number, that of an expert before the panel is too large.
      Value number = arith::SubIOp::create(b, local, emitter.toI32(firstLocal));
      Value isInPanel = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                              number, emitter.i32(panel));
      s.isHere = arith::AndIOp::create(b, isLocal, isInPanel);
      s.counter = arith::SelectOp::create(b, s.isHere, number, none);
      Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
      s.isElsewhere = arith::AndIOp::create(
          b, s.exists, Value(arith::XOrIOp::create(b, isLocal, yes)));
    }
    Value same = emitter.matchAny(s.counter);
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
    Value at = indexOf(s.counter);
    emitter.storeI32(addI32(emitter.loadI32(table, at), s.count), table, at);
  });
  emitter.warpBarrier();
}

void Rank::countSlots() {
  forSlots([&](const Slots &slots) { addCounts(slots); });
}

/// Per expert: what earlier warps have, and the sum of all.
void Rank::sumWarps() {
  emitter.forThreads(emitter.index(0), numCounters, [&](Value counter) {
    Value sum = emitter.i32(0);
    for (int64_t warp = 0; warp <= numWarps; ++warp) {
      Value at = indexOf(warp, counter);
      Value counted = warp < numWarps ? emitter.loadI32(table, at) : Value();
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
    Value earlier =
        firstLocal ? emitter.loadI32(table, totalIndex()) : emitter.i32(0);
    SmallVector<Value> total = emitter.forLoop(
        emitter.index(0), numCounters, kWarp, earlier,
        [&](Value first, ValueRange carried) -> SmallVector<Value> {
          Value counter = emitter.add(first, emitter.toIndex(lane));
          Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                               counter, numCounters);
          Value safe = arith::SelectOp::create(b, exists, counter, first);
          Value at = indexOf(numWarps, safe);
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
            emitter.storeI32(before, offsets, localOf(counter));
          });
          emitter.warpBarrier();
          return {addI32(carried[0], emitter.broadcast(sum, kWarp - 1))};
        });
    emitter.ifThen(emitter.isLess(lane, emitter.i32(1)), [&] {
      emitter.storeI32(total[0], offsets, localOf(numCounters));
      if (firstLocal)
        emitter.storeI32(total[0], table, totalIndex());
    });
  });
}

void Rank::placeSlots() {
  forSlots([&](const Slots &s) {
    // Of a slot that is not here, something is read and not used.
    Value counter =
        arith::SelectOp::create(b, s.isHere, s.counter, emitter.i32(0));
    Value first =
        emitter.loadI32(table, indexOf(numWarps, emitter.toIndex(counter)));
    Value inWarp = emitter.loadI32(table, indexOf(counter));
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
          emitter.ifThen(s.isElsewhere, [&] {
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

void Rank::rankPanel() {
  emitter.forThreads(
      emitter.index(0), emitter.index(numWarps * panel),
      [&](Value i) { emitter.storeI32(emitter.i32(0), table, i); });
  emitter.barrier();
  countSlots();
  emitter.barrier();
  sumWarps();
  emitter.barrier();
  sumExperts();
  emitter.barrier();
  placeSlots();
}

void Rank::run() {
  if (panel >= numLocal) {
    numCounters = emitter.index(numLocal);
    rankPanel();
    return clearInvalid();
  }
  emitter.ifThen(emitter.isLess(emitter.thread(), emitter.i32(1)), [&] {
    emitter.storeI32(emitter.i32(0), table, totalIndex());
  });
  Value all = emitter.index(numLocal);
  emitter.forLoop(emitter.index(0), all, panel, [&](Value first) {
    // The panel before reads its counters until here.
    emitter.barrier();
    firstLocal = first;
    numCounters =
        emitter.min(arith::SubIOp::create(b, all, first), emitter.index(panel));
    rankPanel();
  });
  clearInvalid();
}

} // namespace

LogicalResult moec::emitSm80Rank(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto op = cast<tile::RankOp>(phase);
  Rank(op, emitter, op.getConfigAttr().getPanel()).run();
  return success();
}
