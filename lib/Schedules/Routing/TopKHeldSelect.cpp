//===- TopKHeldSelect.cpp - selection from a row in registers ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Slot-by-slot selection compares all keys per slot, which dominates the
// kernel's computation. So keys that cannot be selected are dropped first:
// those below the smallest of the topK largest lane maxima. The survivors,
// about topK, are ranked by counting.

#include "TopKHeld.h"

#include "Shape.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

void TopKHeld::selectExperts(Index token) {
  if (layout.numGroups > 1)
    keepBestGroups();
  found = anygpu::TopK::isRanked(op) ? selectByRank() : selectOneByOne();
  expert = layout.expertAt(found.place.toIndex());
  if (givenIds)
    return takeGiven(token);
  emitter.ifThen(isSlot(), [&] {
    I32 id = expert.toI32();
    storeId(id, token, found.slot.toIndex(), /*isOfLane=*/true);
  });
}

/// The lanes of slots decide the order of sums, so ids that equal the selection
/// stay on its lanes. Others lie on lanes in the order of their slots.
void TopKHeld::takeGiven(Index token) {
  I32 lane = warp.lane(), last = emitter.i32(topK - 1);
  I32 id = loadGivenId(token, min(found.slot, last).toIndex());
  Flag differs = isSlot() & (id != expert.toI32());
  Flag isSelection = warp.ballot(differs) == 0;
  found.slot = select(isSelection, found.slot, lane);
  id = select(isSelection, id, loadGivenId(token, min(lane, last).toIndex()));
  emitter.ifThen(isSlot(), [&] {
    storeId(id, token, found.slot.toIndex(), /*isOfLane=*/true);
  });
  isGivenExpert = isExpert(id);
  expert = select(isGivenExpert, id, 0).toIndex();
}

/// A pairwise reduction, for a short dependence chain.
I32 TopKHeld::largestHeld(ArrayRef<I32> held) {
  SmallVector<I32> largest(held);
  for (; largest.size() > 1;
       largest.resize(llvm::divideCeil(largest.size(), 2)))
    for (size_t i = 0, half = largest.size() / 2; i < half; ++i)
      largest[i] = max(largest[i], largest[largest.size() - 1 - i]);
  return largest.front();
}

//===----------------------------------------------------------------------===//
// One by one
//===----------------------------------------------------------------------===//

TopKHeld::Found TopKHeld::selectOneByOne() {
  /// The keys that are left, and the index that the lane's slot takes.
  struct Left {
    SmallVector<I32> keys;
    I32 place;
    auto fields() { return std::tie(keys, place); }
  };
  I32 lane = warp.lane();
  Left last =
      emitter.loop(emitter.index(0), emitter.index(topK), 1,
                   Left{keys, emitter.i32(0)}, [&](Index slot, Left left) {
                     I32 place = findBest(left.keys);
                     I32 distance = place - lane;
                     for (auto [i, key] : llvm::enumerate(left.keys)) {
                       Flag isIt = distance == static_cast<int64_t>(i) * kWarp;
                       key = select(isIt, emitter.i32(KeyTable::kOutKey), key);
                     }
                     left.place =
                         select(lane == slot.toI32(), place, left.place);
                     return left;
                   });
  return {last.place, lane};
}

I32 TopKHeld::findBest(ArrayRef<I32> held) {
  I32 largest = largestHeld(held);
  // The lane's first part with its largest key; the last part by default.
  auto number = static_cast<int64_t>(held.size()) - 1;
  I32 first = emitter.i32(number * kWarp);
  for (int64_t i = number - 1; i >= 0; --i)
    first = select(held[i] == largest, emitter.i32(i * kWarp), first);
  I32 place = first + warp.lane();
  return KeyTable::reduceBest(emitter, kWarp, largest, place).place;
}

//===----------------------------------------------------------------------===//
// By rank
//===----------------------------------------------------------------------===//

/// Falls back to slot-by-slot selection if many equal keys exceed the table.
TopKHeld::Found TopKHeld::selectByRank() {
  I32 count = collect(findBound());
  return emitter.choose(
      count < kWarp + 1, [&] { return rankCollected(count); },
      [&] { return selectOneByOne(); });
}

/// The topK-th largest lane maximum. Lanes with equal maxima are removed
/// together, which lowers the bound. The bound stays above `kOutKey`, the key
/// of experts that cannot be selected.
I32 TopKHeld::findBound() {
  /// The lane's maximum, unless it is removed, and the last one removed.
  struct Bound {
    I32 left, removed;
    auto fields() { return std::tie(left, removed); }
  };
  I32 out = emitter.i32(KeyTable::kOutKey);
  Bound last = emitter.loop(
      emitter.index(0), emitter.index(topK), 1, Bound{largestHeld(keys), out},
      [&](Index, Bound before) -> Bound {
        I32 largest = warp.warpMax(before.left);
        return {select(before.left == largest, out, before.left), largest};
      });
  return max(last.removed, KeyTable::kOutKey + 1);
}

/// Barriers order these stores after the previous token's reads, and before the
/// lanes' next reads.
I32 TopKHeld::collect(I32 bound) {
  warp.warpBarrier();
  I32 lane = warp.lane(), count = emitter.i32(0);
  I32 lower = (emitter.i32(1) << lane) - 1;
  for (auto [i, key] : llvm::enumerate(keys)) {
    I32 place = lane + static_cast<int64_t>(i) * kWarp;
    Flag isLeft = key >= bound;
    I32 lanes = warp.ballot(isLeft);
    I32 to = count + (lanes & lower).popcount();
    emitter.ifThen(isLeft & (to < kWarp), [&, key = key] {
      emitter.KernelEmitter::storeI32(key, leftKeys, {to.toIndex()});
      emitter.KernelEmitter::storeI32(place, leftPlaces, {to.toIndex()});
    });
    count = count + lanes.popcount();
  }
  // Pads the table, since all lanes read an entry and compare whole vectors.
  emitter.ifThen(lane >= count, [&] {
    Index at = lane.toIndex();
    emitter.KernelEmitter::storeI32(emitter.i32(KeyTable::kOutKey), leftKeys,
                                    at);
    emitter.KernelEmitter::storeI32(emitter.i32(0), leftPlaces, at);
  });
  warp.warpBarrier();
  return count;
}

/// Among equal keys the lower index comes first.
TopKHeld::Found TopKHeld::rankCollected(I32 count) {
  constexpr int64_t atOnce = 4;
  I32 lane = warp.lane();
  Index at = lane.toIndex();
  I32 key = emitter.loadI32(leftKeys, at);
  I32 place = emitter.loadI32(leftPlaces, at);
  Flag isHere = lane < count;
  I32 below = key - 1;
  I32 rank = emitter.loop(
      emitter.index(0), count.toIndex(), atOnce, emitter.i32(0),
      [&](Index first, I32 before) {
        I32 others(b, emitter.loadElements(leftKeys, first, atOnce));
        for (int64_t i = 0; i < atOnce; ++i) {
          I32 most = select(first.toI32() + i < lane, below, key);
          before = before + (most < others.element(i)).toI32();
        }
        return before;
      });
  return {place, select(isHere, rank, topK)};
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// The largest key of a group, or the key of the sum of its two largest scores.
I32 TopKHeld::groupKey(int64_t group) {
  I32 out = emitter.i32(KeyTable::kOutKey);
  KeyTable::TwoKeys two{out, out};
  for (auto [part, key] : llvm::zip(parts, keys))
    if (part.group == group)
      two = KeyTable::nextTwo(key, two);
  return KeyTable::reduceGroup(emitter, kWarp, routing.getGroupScore(), two);
}

/// Lane g counts the groups that precede group g.
void TopKHeld::keepBestGroups() {
  I32 lane = warp.lane(), out = emitter.i32(KeyTable::kOutKey), mine = out;
  SmallVector<I32> all;
  for (int64_t group = 0; group < layout.numGroups; ++group) {
    all.push_back(groupKey(group));
    mine = select(lane == group, all.back(), mine);
  }
  I32 before = emitter.i32(0);
  for (auto [group, key] : llvm::enumerate(all)) {
    Flag isLower = emitter.i32(static_cast<int64_t>(group)) < lane;
    Flag isEqual = key == mine;
    Flag isBefore = (mine < key) | (isEqual & isLower);
    before = before + isBefore.toI32();
  }
  I32 kept = warp.ballot(before < routing.getTopkGroups());
  for (auto [part, key] : llvm::zip(parts, keys)) {
    I32 bit = kept & (int64_t(1) << part.group);
    key = select(bit != 0, key, out);
  }
}
