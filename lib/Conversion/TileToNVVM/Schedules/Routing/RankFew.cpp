//===- RankFew.cpp - ranks few slots in one pass ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Sorts few slots by expert in one pass. A slot's key is (local expert, slot
// number), so keys are distinct and a slot's position is the number of smaller
// keys. An expert's offset is likewise the number of keys below its first
// possible one. A thread issues all loads of its slot at once, and after one
// barrier compares its key with all others. For few slots that is cheaper than
// to count, scan and place, which wait for each other. than counting, summing
// and dealing out, which wait for each other.

#include "RankFew.h"

using namespace mlir;
using namespace moec;

namespace {

class RankFew {
public:
  RankFew(ThreadEmitter &emitter, RankIds &experts, const RankArguments &args,
          Value numSlots, int64_t maxSlots, int64_t topK, int64_t numLocal,
          Value table)
      : emitter(emitter), b(emitter.b), experts(experts), args(args),
        numSlots(numSlots), maxSlots(maxSlots), topK(topK), numLocal(numLocal),
        table(table) {}

  void emit();

private:
  /// Keys compared at a time.
  static constexpr int64_t kKeys = 4;

  struct Slot {
    Value id, weight, local, key;
  };

  Slot loadSlot(Value slot, Value exists);
  void placeSlot(const Slot &mine, Value slot);
  /// The number of keys below `key`.
  Value countBelow(Value key);

  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  RankIds &experts;
  RankArguments args;
  Value numSlots;
  int64_t maxSlots, topK, numLocal;
  Value table;
};

/// An absent slot gets a key above all others.
RankFew::Slot RankFew::loadSlot(Value slot, Value exists) {
  Type i32 = b.getI32Type();
  auto branch =
      scf::IfOp::create(b, TypeRange{i32, b.getF32Type(), i32, i32}, exists,
                        /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.thenBlock());
  Value id = emitter.loadI32(args.ids, slot);
  Value weight = emitter.loadF32(args.weights, slot);
  Value local = experts.localOf(id);
  Value first = emitter.scale(local, maxSlots);
  Value key = arith::AddIOp::create(b, first, emitter.toI32(slot));
  scf::YieldOp::create(b, ValueRange{id, weight, local, key});
  b.setInsertionPointToEnd(branch.elseBlock());
  Value none = emitter.i32(0);
  scf::YieldOp::create(
      b, ValueRange{none, emitter.f32(0.0), emitter.i32(numLocal),
                    emitter.i32(std::numeric_limits<int32_t>::max())});
  return {branch.getResult(0), branch.getResult(1), branch.getResult(2),
          branch.getResult(3)};
}

Value RankFew::countBelow(Value key) {
  auto type = VectorType::get(kKeys, b.getI32Type());
  return emitter.forLoop(
      emitter.index(0), numSlots, kKeys, emitter.i32(0),
      [&](Value first, ValueRange carried) -> SmallVector<Value> {
        Value keys =
            vector::LoadOp::create(b, type, table, first,
                                   /*nontemporal=*/false, llvm::MaybeAlign(16));
        Value count = carried[0];
        for (int64_t i = 0; i < kKeys; ++i) {
          Value isBelow =
              emitter.isLess(vector::ExtractOp::create(b, keys, i), key);
          count = arith::AddIOp::create(
              b, count, arith::ExtUIOp::create(b, b.getI32Type(), isBelow));
        }
        return {count};
      })[0];
}

void RankFew::placeSlot(const Slot &mine, Value slot) {
  emitter.ifThen(
      experts.isHere(mine.local),
      [&] {
        Value place = countBelow(mine.key);
        Value to = emitter.toIndex(place);
        emitter.storeI32(place, args.position, slot);
        emitter.storeI32(emitter.divide(emitter.toI32(slot), topK), args.source,
                         to);
        emitter.storeF32(mine.weight, args.rowWeight, {to, emitter.index(0)});
      },
      [&] {
        emitter.storeI32(experts.positionOfOther(mine.id), args.position, slot);
      });
}

void RankFew::emit() {
  int64_t threads = emitter.getNumThreads();
  Value slot = emitter.toIndex(emitter.thread());
  Value exists =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, slot, numSlots);
  Slot mine = loadSlot(slot, exists);
  Value isInTable = emitter.isLess(emitter.thread(), emitter.i32(maxSlots));
  emitter.ifThen(isInTable, [&] { emitter.storeI32(mine.key, table, slot); });
  emitter.barrier();
  emitter.ifThen(exists, [&] { placeSlot(mine, slot); });
  // Threads without a slot take the first experts.
  Value shifted = emitter.remainder(
      emitter.scale(emitter.thread(), 1, threads - maxSlots % threads),
      threads);
  emitter.forLoop(emitter.toIndex(shifted), emitter.index(numLocal + 1),
                  threads, [&](Value local) {
                    Value first = emitter.scale(emitter.toI32(local), maxSlots);
                    emitter.storeI32(countBelow(first), args.offsets, local);
                  });
}

} // namespace

void moec::emitRankFew(ThreadEmitter &emitter, RankIds &experts,
                       const RankArguments &args, Value numSlots,
                       int64_t maxSlots, int64_t topK, int64_t numLocal,
                       Value table) {
  RankFew(emitter, experts, args, numSlots, maxSlots, topK, numLocal, table)
      .emit();
}
