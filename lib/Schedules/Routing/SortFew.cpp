//===- SortFew.cpp - ranks few slots in one pass ----------------*- C++ -*-===//
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
// to count, scan and place, which wait for each other.

#include "SortFew.h"

using namespace mlir;
using namespace moec;

namespace {

class SortFew {
public:
  SortFew(ThreadEmitter &emitter, SortIds &experts, const RankArguments &args,
          Index numSlots, int64_t maxSlots, int64_t topK, int64_t numLocal,
          Value table)
      : emitter(emitter), experts(experts), args(args), numSlots(numSlots),
        maxSlots(maxSlots), topK(topK), numLocal(numLocal), table(table) {}

  void emit();

private:
  /// Keys compared at a time.
  static constexpr int64_t kKeys = 4;

  struct Slot {
    I32 id;
    F32 weight;
    I32 local, key;
    auto fields() { return std::tie(id, weight, local, key); }
  };

  Slot loadSlot(Index slot, Flag exists);
  void placeSlot(const Slot &mine, Index slot);
  /// The number of keys below `key`.
  I32 countBelow(I32 key);

  ThreadEmitter &emitter;
  SortIds &experts;
  RankArguments args;
  Index numSlots;
  int64_t maxSlots, topK, numLocal;
  Value table;
};

/// An absent slot gets a key above all others.
SortFew::Slot SortFew::loadSlot(Index slot, Flag exists) {
  return emitter.choose(
      exists,
      [&]() -> Slot {
        I32 id = emitter.loadI32(args.ids, slot);
        F32 weight = emitter.loadF32(args.weights, slot);
        I32 local = experts.localOf(id);
        return {id, weight, local, local * maxSlots + slot.toI32()};
      },
      [&]() -> Slot {
        return {emitter.i32(0), emitter.f32(0.0), emitter.i32(numLocal),
                emitter.i32(std::numeric_limits<int32_t>::max())};
      });
}

I32 SortFew::countBelow(I32 key) {
  return emitter.loop(emitter.index(0), numSlots, kKeys, emitter.i32(0),
                      [&](Index first, I32 count) {
                        I32 keys(emitter.b,
                                 emitter.loadElements(table, first, kKeys));
                        for (int64_t i = 0; i < kKeys; ++i)
                          count = count + (keys.element(i) < key).toI32();
                        return count;
                      });
}

void SortFew::placeSlot(const Slot &mine, Index slot) {
  emitter.ifThen(
      experts.isHere(mine.local),
      [&] {
        I32 place = countBelow(mine.key);
        Index to = emitter.toIndex(place);
        emitter.storeI32(place, args.position, slot);
        emitter.storeI32(slot.toI32() / topK, args.source, to);
        emitter.storeF32(mine.weight, args.rowWeight, {to, emitter.index(0)});
      },
      [&] {
        emitter.storeI32(experts.positionOfOther(mine.id), args.position, slot);
      });
}

void SortFew::emit() {
  int64_t threads = emitter.getNumThreads();
  Index slot = emitter.toIndex(emitter.thread());
  Flag exists = slot < numSlots;
  Slot mine = loadSlot(slot, exists);
  emitter.ifThen(emitter.thread() < maxSlots,
                 [&] { emitter.storeI32(mine.key, table, slot); });
  emitter.barrier();
  emitter.ifThen(exists, [&] { placeSlot(mine, slot); });
  // Threads without a slot take the first experts.
  I32 shifted = (emitter.thread() + (threads - maxSlots % threads)) % threads;
  emitter.loop(emitter.toIndex(shifted), emitter.index(numLocal + 1), threads,
               [&](Index local) {
                 I32 firstKey = local.toI32() * maxSlots;
                 emitter.storeI32(countBelow(firstKey), args.offsets, local);
               });
}

} // namespace

void moec::emitSortFew(ThreadEmitter &emitter, SortIds &experts,
                       const RankArguments &args, Index numSlots,
                       int64_t maxSlots, int64_t topK, int64_t numLocal,
                       Value table) {
  SortFew(emitter, experts, args, numSlots, maxSlots, topK, numLocal, table)
      .emit();
}
