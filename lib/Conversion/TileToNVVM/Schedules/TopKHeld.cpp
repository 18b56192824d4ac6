//===- TopKHeld.cpp - routing of rows in registers --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TopKHeld.h"

#include "moec/Analysis/Sm80.h"
#include "llvm/Support/MathExtras.h"

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

void TopKHeld::select(Value token) {
  if (layout.numGroups > 1)
    keepBestGroups();
  storeValues();
  // Last, the place that the lane's slot takes.
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
  Value place = toIndex(
      emitter.forLoop(emitter.index(0), emitter.index(topK), 1, held, body)
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

Value TopKHeld::findBest(ValueRange held) {
  // In pairs, so that few of them wait for each other.
  SmallVector<Value> largest(held);
  for (; largest.size() > 1;
       largest.resize(llvm::divideCeil(largest.size(), 2)))
    for (size_t i = 0, half = largest.size() / 2; i < half; ++i)
      largest[i] = arith::MaxSIOp::create(b, largest[i],
                                          largest[largest.size() - 1 - i]);
  auto isEqual = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y);
  };
  // The lane's first part that has its largest key; the last one has it if no
  // other has.
  auto number = static_cast<int64_t>(held.size()) - 1;
  Value first = emitter.i32(number * kWarp);
  for (int64_t i = number - 1; i >= 0; --i)
    first = choose(isEqual(held[i], largest[0]), emitter.i32(i * kWarp), first);
  Value place = arith::AddIOp::create(b, first, warp.lane());
  return KeyTable::reduceBest(emitter, kWarp, largest[0], place).place;
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
