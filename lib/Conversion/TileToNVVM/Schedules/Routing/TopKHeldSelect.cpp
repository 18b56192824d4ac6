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

#include "moec/Analysis/Sm80.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using sm80::kWarp;

void TopKHeld::select(Value token) {
  if (layout.numGroups > 1)
    keepBestGroups();
  found = sm80::TopK::isRanked(op) ? selectByRank() : selectOneByOne();
  expert = layout.expertAt(toIndex(found.place));
  emitter.ifThen(isSlot(), [&] {
    emitter.KernelEmitter::storeI32(toI32(expert), ids,
                                    {token, toIndex(found.slot)});
  });
}

/// A pairwise reduction, for a short dependence chain.
Value TopKHeld::largestHeld(ValueRange held) {
  SmallVector<Value> largest(held);
  for (; largest.size() > 1;
       largest.resize(llvm::divideCeil(largest.size(), 2)))
    for (size_t i = 0, half = largest.size() / 2; i < half; ++i)
      largest[i] = arith::MaxSIOp::create(b, largest[i],
                                          largest[largest.size() - 1 - i]);
  return largest.front();
}

//===----------------------------------------------------------------------===//
// One by one
//===----------------------------------------------------------------------===//

TopKHeld::Found TopKHeld::selectOneByOne() {
  // The last carried value is the index that the lane's slot takes.
  SmallVector<Value> held(keys);
  held.push_back(emitter.i32(0));
  auto body = [&](Value slot, ValueRange carried) {
    SmallVector<Value> next(carried);
    Value place = findBest(carried.drop_back());
    Value distance = arith::SubIOp::create(b, place, warp.lane());
    for (size_t i = 0; i < parts.size(); ++i) {
      Value first = emitter.i32(static_cast<int64_t>(i) * kWarp);
      Value isIt =
          arith::CmpIOp::create(b, arith::CmpIPredicate::eq, distance, first);
      next[i] = choose(isIt, emitter.i32(KeyTable::kOutKey), next[i]);
    }
    Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                         warp.lane(), toI32(slot));
    next.back() = choose(isMine, place, next.back());
    return next;
  };
  Value place =
      emitter.forLoop(emitter.index(0), emitter.index(topK), 1, held, body)
          .back();
  return {place, warp.lane()};
}

Value TopKHeld::findBest(ValueRange held) {
  Value largest = largestHeld(held);
  auto isEqual = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y);
  };
  // The lane's first part with its largest key; the last part by default.
  auto number = static_cast<int64_t>(held.size()) - 1;
  Value first = emitter.i32(number * kWarp);
  for (int64_t i = number - 1; i >= 0; --i)
    first = choose(isEqual(held[i], largest), emitter.i32(i * kWarp), first);
  Value place = arith::AddIOp::create(b, first, warp.lane());
  return KeyTable::reduceBest(emitter, kWarp, largest, place).place;
}

//===----------------------------------------------------------------------===//
// By rank
//===----------------------------------------------------------------------===//

/// Falls back to slot-by-slot selection if many equal keys exceed the table.
TopKHeld::Found TopKHeld::selectByRank() {
  Value count = collect(findBound());
  Value hasRoom = warp.isLess(count, emitter.i32(kWarp + 1));
  Type i32 = b.getI32Type();
  auto branch = scf::IfOp::create(b, TypeRange{i32, i32}, hasRoom,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (Block *block : {branch.thenBlock(), branch.elseBlock()}) {
    b.setInsertionPointToEnd(block);
    Found here =
        block == branch.thenBlock() ? rankCollected(count) : selectOneByOne();
    scf::YieldOp::create(b, ValueRange{here.place, here.slot});
  }
  return {branch.getResult(0), branch.getResult(1)};
}

/// The topK-th largest lane maximum. Lanes with equal maxima are removed
/// together, which lowers the bound. The bound stays above `kOutKey`, the key
/// of experts that cannot be selected.
Value TopKHeld::findBound() {
  Value out = emitter.i32(KeyTable::kOutKey);
  SmallVector<Value> carried{largestHeld(keys), out};
  Value bound =
      emitter.forLoop(emitter.index(0), emitter.index(topK), 1, carried,
                      [&](Value, ValueRange before) -> SmallVector<Value> {
                        Value largest = warp.warpMax(before[0]);
                        Value isIt = arith::CmpIOp::create(
                            b, arith::CmpIPredicate::eq, before[0], largest);
                        return {choose(isIt, out, before[0]), largest};
                      })[1];
  return arith::MaxSIOp::create(b, bound, emitter.i32(KeyTable::kOutKey + 1));
}

/// Barriers order these stores after the previous token's reads, and before the
/// lanes' next reads.
Value TopKHeld::collect(Value bound) {
  warp.warpBarrier();
  Value one = emitter.i32(1), count = emitter.i32(0);
  Value lower = arith::SubIOp::create(
      b, arith::ShLIOp::create(b, one, warp.lane()).getResult(), one);
  for (auto held : llvm::enumerate(keys)) {
    Value key = held.value();
    Value isLeft =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sge, key, bound);
    Value lanes = warp.ballot(isLeft);
    Value to = arith::AddIOp::create(
        b, count,
        math::CtPopOp::create(b, arith::AndIOp::create(b, lanes, lower)));
    Value hasRoom = warp.isLess(to, emitter.i32(kWarp));
    emitter.ifThen(arith::AndIOp::create(b, isLeft, hasRoom), [&] {
      Value place = warp.scale(warp.lane(), 1,
                               static_cast<int64_t>(held.index()) * kWarp);
      emitter.KernelEmitter::storeI32(key, leftKeys, toIndex(to));
      emitter.KernelEmitter::storeI32(place, leftPlaces, toIndex(to));
    });
    count = arith::AddIOp::create(b, count, math::CtPopOp::create(b, lanes));
  }
  // Pads the table, since all lanes read an entry and compare whole vectors.
  Value isFree =
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, warp.lane(), count);
  emitter.ifThen(isFree, [&] {
    Value lane = toIndex(warp.lane());
    emitter.KernelEmitter::storeI32(emitter.i32(KeyTable::kOutKey), leftKeys,
                                    lane);
    emitter.KernelEmitter::storeI32(emitter.i32(0), leftPlaces, lane);
  });
  warp.warpBarrier();
  return count;
}

/// Among equal keys the lower index comes first.
TopKHeld::Found TopKHeld::rankCollected(Value count) {
  constexpr int64_t atOnce = 4;
  Value lane = toIndex(warp.lane());
  Value key = emitter.loadI32(leftKeys, lane);
  Value place = emitter.loadI32(leftPlaces, lane);
  Value isHere = warp.isLess(warp.lane(), count);
  Value below = arith::SubIOp::create(b, key, emitter.i32(1));
  auto type = VectorType::get(atOnce, b.getI32Type());
  Value rank = emitter.forLoop(
      emitter.index(0), toIndex(count), atOnce, emitter.i32(0),
      [&](Value first, ValueRange carried) -> SmallVector<Value> {
        Value others =
            vector::LoadOp::create(b, type, leftKeys, first,
                                   /*nontemporal=*/false, llvm::MaybeAlign(16));
        Value before = carried[0];
        for (int64_t i = 0; i < atOnce; ++i) {
          Value number = warp.scale(toI32(first), 1, i);
          Value most = choose(warp.isLess(number, warp.lane()), below, key);
          Value isBefore =
              warp.isLess(most, vector::ExtractOp::create(b, others, i));
          before = arith::AddIOp::create(
              b, before, arith::ExtUIOp::create(b, b.getI32Type(), isBefore));
        }
        return {before};
      })[0];
  return {place, choose(isHere, rank, emitter.i32(topK))};
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// The largest key of a group, or the key of the sum of its two largest scores.
Value TopKHeld::groupKey(int64_t group) {
  Value out = emitter.i32(KeyTable::kOutKey);
  SmallVector<Value> two{out, out};
  for (auto [part, key] : llvm::zip(parts, keys))
    if (part.group == group)
      two = KeyTable::nextTwo(emitter, key, two);
  return KeyTable::reduceGroup(emitter, kWarp, routing.getGroupScore(), two);
}

/// Lane g counts the groups that precede group g.
void TopKHeld::keepBestGroups() {
  Value out = emitter.i32(KeyTable::kOutKey), mine = out;
  SmallVector<Value> all;
  for (int64_t group = 0; group < layout.numGroups; ++group) {
    all.push_back(groupKey(group));
    Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                         warp.lane(), emitter.i32(group));
    mine = choose(isMine, all.back(), mine);
  }
  Value before = emitter.i32(0);
  for (auto [group, key] : llvm::enumerate(all)) {
    Value isLower =
        warp.isLess(emitter.i32(static_cast<int64_t>(group)), warp.lane());
    Value isEqual =
        arith::CmpIOp::create(b, arith::CmpIPredicate::eq, key, mine);
    Value isBefore = arith::OrIOp::create(
        b, warp.isLess(mine, key), arith::AndIOp::create(b, isEqual, isLower));
    before = arith::AddIOp::create(
        b, before, arith::ExtUIOp::create(b, b.getI32Type(), isBefore));
  }
  Value kept =
      warp.ballot(warp.isLess(before, emitter.i32(routing.getTopkGroups())));
  for (auto [part, key] : llvm::zip(parts, keys)) {
    Value bit =
        arith::AndIOp::create(b, kept, emitter.i32(int64_t(1) << part.group));
    Value isKept =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ne, bit, emitter.i32(0));
    key = choose(isKept, key, out);
  }
}
