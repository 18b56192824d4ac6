//===- TopKHeld.cpp - routing of rows in registers --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TopKHeld.h"

#include "moec/Analysis/Sm80.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;
using namespace moec;

static constexpr int64_t kWarp = sm80::kWarp;

TopKHeld::TopKHeld(tile::TopKOp op, WarpEmitter &emitter, bool mayWait)
    : TopKEmission(op, emitter, kWarp), warp(emitter) {
  table = emitter.scratch(layout.size(), b.getF32Type());
  makeParts();
  loadBiases();
  if (mayWait)
    emitter.waitForLaunchBefore();
}

void TopKHeld::makeParts() {
  for (int64_t position = 0; position < layout.size(); position += kWarp) {
    int64_t group = position / layout.stride;
    int64_t column = position % layout.stride;
    int64_t count = std::min(kWarp, layout.groupSize - column);
    Part &part = parts.emplace_back();
    part.firstExpert = emitter.index(group * layout.groupSize + column);
    if (count < kWarp)
      part.mask = emitter.mask(emitter.index(count), kWarp);
    part.group = group;
  }
}

/// Lanes without an expert read a bias that there is.
void TopKHeld::loadBiases() {
  if (!selectionBias)
    return;
  Value last = emitter.index(numRoutes - 1);
  for (Part &part : parts) {
    Value expert = emitter.add(part.firstExpert, toIndex(warp.lane()));
    if (part.mask)
      expert = emitter.min(expert, last);
    part.bias = warp.loadConstantF32(selectionBias, expert);
  }
}

//===----------------------------------------------------------------------===//
// Values and keys
//===----------------------------------------------------------------------===//

Value TopKHeld::readRow(Value token) {
  SmallVector<Value> scores;
  for (const Part &part : parts)
    scores.push_back(emitter.loadVector(logits, {token, part.firstExpert},
                                        kWarp, part.mask));
  for (Value &score : scores)
    score = scoreOf(score);
  if (routing.getSoftmax() == moe::Softmax::All)
    divideBySum(scores);
  values.clear();
  keys.clear();
  Value out = emitter.i32(KeyTable::kOutKey), largest = out;
  for (auto [part, score] : llvm::zip(parts, scores)) {
    Scored scored = finishScore(score, part.bias, part.mask);
    if (part.mask)
      scored.key = choose(part.mask, scored.key, out);
    values.push_back(scored.value);
    keys.push_back(scored.key);
    largest = arith::MaxSIOp::create(b, largest, scored.key);
  }
  return hasDeadRows() ? KeyTable::isAboveMinusInfinity(emitter, largest)
                       : Value();
}

/// A NaN in the row reaches all of it through the sum.
void TopKHeld::divideBySum(MutableArrayRef<Value> scores) {
  Value none = splat(-kInfinity), largest = none;
  for (auto [part, score] : llvm::zip(parts, scores)) {
    if (part.mask)
      score = choose(part.mask, score, none);
    largest = largerOf(score, largest);
  }
  largest = largestOf(largest);
  Value sum = splat(0.0);
  for (Value &score : scores) {
    score = expOfDifference(score, largest);
    sum = arith::AddFOp::create(b, sum, score);
  }
  sum = sumOf(sum);
  for (Value &score : scores)
    score = arith::DivFOp::create(b, score, sum);
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

/// Barriers order what the warp's token before has read, and what lanes read
/// next.
void TopKHeld::storeValues() {
  warp.warpBarrier();
  Value lane = toIndex(warp.lane());
  for (auto [i, value] : llvm::enumerate(values))
    emitter.KernelEmitter::storeF32(
        value, table, emitter.add(lane, static_cast<int64_t>(i) * kWarp));
  warp.warpBarrier();
}

Value TopKHeld::isSlot() { return warp.isLess(warp.lane(), emitter.i32(topK)); }

/// A lane has its two best keys at hand, and takes the place of one in the row
/// by part; most lanes need no third. What comes next follows from what was
/// taken last, for keys are taken in their order, and equal ones by place.
struct TopKHeld::Bests {
  Value key, place, nextKey, nextPlace;
  /// How many of the two are at hand.
  Value count;
  Value lastKey, lastPlace;

  SmallVector<Value> pack() const {
    return {key, place, nextKey, nextPlace, count, lastKey, lastPlace};
  }
  static Bests unpack(ValueRange values) {
    return {values[0], values[1], values[2], values[3],
            values[4], values[5], values[6]};
  }
};

Value TopKHeld::isEqual(Value x, Value y) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y);
}

TopKHeld::Bests TopKHeld::findBests(const Bests &before) {
  Value out = emitter.i32(KeyTable::kOutKey), zero = emitter.i32(0);
  Value key = out, place = zero, nextKey = out, nextPlace = zero;
  for (auto [i, all] : llvm::enumerate(keys)) {
    Value here = emitter.i32(static_cast<int64_t>(i) * kWarp);
    Value isLater = arith::AndIOp::create(b, isEqual(all, before.lastKey),
                                          warp.isLess(before.lastPlace, here));
    Value isLeft =
        arith::OrIOp::create(b, warp.isLess(all, before.lastKey), isLater);
    Value left = choose(isLeft, all, out);
    Value isBest = warp.isLess(key, left), isNext = warp.isLess(nextKey, left);
    nextKey = choose(isBest, key, choose(isNext, left, nextKey));
    nextPlace = choose(isBest, place, choose(isNext, here, nextPlace));
    key = choose(isBest, left, key);
    place = choose(isBest, here, place);
  }
  return {key,
          place,
          nextKey,
          nextPlace,
          emitter.i32(2),
          before.lastKey,
          before.lastPlace};
}

/// Lanes without a key at hand find their next two.
TopKHeld::Bests TopKHeld::refill(const Bests &bests) {
  Value isEmpty = isEqual(bests.count, emitter.i32(0));
  Value isAny = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                      warp.ballot(isEmpty), emitter.i32(0));
  SmallVector<Value> kept = bests.pack();
  return Bests::unpack(emitter.choose(
      isAny, ValueRange(kept).getTypes(),
      [&] {
        SmallVector<Value> found = findBests(bests).pack();
        for (auto [now, before] : llvm::zip(found, kept))
          now = choose(isEmpty, now, before);
        return found;
      },
      [&] { return kept; }));
}

void TopKHeld::select(Value token) {
  if (layout.numGroups > 1)
    keepBestGroups();
  storeValues();
  Value zero = emitter.i32(0);
  // Before the first one: a key above all.
  Bests none = {zero, zero, zero,
                zero, zero, emitter.i32(std::numeric_limits<int32_t>::max()),
                zero};
  // Last, the place that the lane's slot takes.
  SmallVector<Value> init = none.pack();
  init.push_back(zero);
  auto body = [&](Value slot, ValueRange carried) {
    Bests bests = refill(Bests::unpack(carried));
    Value own = arith::AddIOp::create(b, bests.place, warp.lane());
    Value place = KeyTable::reduceBest(emitter, kWarp, bests.key, own).place;
    Value isIt = isEqual(place, own);
    Value left = arith::SubIOp::create(b, bests.count, emitter.i32(1));
    Bests next = {choose(isIt, bests.nextKey, bests.key),
                  choose(isIt, bests.nextPlace, bests.place),
                  bests.nextKey,
                  bests.nextPlace,
                  choose(isIt, left, bests.count),
                  choose(isIt, bests.key, bests.lastKey),
                  choose(isIt, bests.place, bests.lastPlace)};
    SmallVector<Value> all = next.pack();
    Value isMine = isEqual(warp.lane(), toI32(slot));
    all.push_back(choose(isMine, place, carried.back()));
    return all;
  };
  Value place = toIndex(
      emitter.forLoop(emitter.index(0), emitter.index(topK), 1, init, body)
          .back());
  chosen = choose(isSlot(), emitter.loadF32(table, place), splat(kNaN));
  Value expert = layout.expertAt(place);
  if (expertScale)
    scale = emitter.loadF32(expertScale, expert);
  emitter.ifThen(isSlot(), [&] {
    emitter.KernelEmitter::storeI32(toI32(expert), ids,
                                    {token, toIndex(warp.lane())});
  });
}

/// The largest key of a group, or that of the sum of its two largest.
Value TopKHeld::groupKey(int64_t group) {
  Value out = emitter.i32(KeyTable::kOutKey);
  SmallVector<Value> two{out, out};
  for (auto [part, key] : llvm::zip(parts, keys))
    if (part.group == group)
      two = KeyTable::nextTwo(emitter, key, two);
  return KeyTable::reduceGroup(emitter, kWarp, routing.getGroupScore(), two);
}

/// Lane g counts the groups that come before group g.
void TopKHeld::keepBestGroups() {
  Value out = emitter.i32(KeyTable::kOutKey), mine = out;
  SmallVector<Value> all;
  for (int64_t group = 0; group < layout.numGroups; ++group) {
    all.push_back(groupKey(group));
    Value isMine = isEqual(warp.lane(), emitter.i32(group));
    mine = choose(isMine, all.back(), mine);
  }
  Value before = emitter.i32(0);
  for (auto [group, key] : llvm::enumerate(all)) {
    Value isLower =
        warp.isLess(emitter.i32(static_cast<int64_t>(group)), warp.lane());
    Value isBefore = arith::OrIOp::create(
        b, warp.isLess(mine, key),
        arith::AndIOp::create(b, isEqual(key, mine), isLower));
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

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

void TopKHeld::weighRow(Value token) {
  Value weight = weightsOf(chosen, scale, kWarp);
  emitter.ifThen(isSlot(), [&] {
    emitter.KernelEmitter::storeF32(weight, weights,
                                    {token, toIndex(warp.lane())});
  });
}
