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
using sm80::kWarp;

TopKHeld::TopKHeld(tile::TopKOp op, WarpEmitter &emitter, bool mayWait)
    : TopKEmission(op, emitter, kWarp), warp(emitter) {
  makeParts();
  if (sm80::TopK::isRanked(op)) {
    leftKeys = emitter.scratch(kWarp, b.getI32Type());
    leftPlaces = emitter.scratch(kWarp, b.getI32Type());
  }
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

/// Lanes without an expert load a bias that exists.
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

bool TopKHeld::isOrderedByScore() const {
  return routing.getSoftmax() == moe::Softmax::All && !selectionBias &&
         tile::TopKOp(op).getKey().empty() &&
         (layout.numGroups == 1 ||
          routing.getGroupScore() != moe::GroupScore::Top2Sum);
}

Value TopKHeld::readRow(Value token) {
  SmallVector<Value> scores;
  for (const Part &part : parts)
    scores.push_back(emitter.loadVector(logits, {token, part.firstExpert},
                                        kWarp, part.mask));
  for (auto [part, score] : llvm::zip(parts, scores)) {
    score = scoreOf(score);
    if (part.mask && routing.getSoftmax() == moe::Softmax::All)
      score = choose(part.mask, score, splat(-kInfinity));
  }
  keys.clear();
  if (isOrderedByScore())
    return keysOfScores(scores);
  if (routing.getSoftmax() == moe::Softmax::All)
    divideBySum(scores);
  Value out = emitter.i32(KeyTable::kOutKey), largest = out;
  for (auto [part, score] : llvm::zip(parts, scores)) {
    Value key = finishScore(score, part.bias, part.mask).key;
    keys.push_back(part.mask ? choose(part.mask, key, out) : key);
    largest = arith::MaxSIOp::create(b, largest, keys.back());
  }
  return hasDeadRows() ? KeyTable::isAboveMinusInfinity(emitter, largest)
                       : Value();
}

/// Keys of softmax scores where only their order counts. The sum uses
/// approximate exponentials: a score far from the largest contributes little,
/// so its error is small. A NaN in the row, or an infinite maximum, reaches all
/// scores through the sum; then all keys are equal.
Value TopKHeld::keysOfScores(ArrayRef<Value> scores) {
  // exp of anything smaller is 0 in f32.
  constexpr double minPower = -104;
  for (Value score : scores)
    keys.push_back(KeyTable::fromFloat(emitter, score));
  Value largestKey = warp.warpMax(largestHeld(keys));
  rowLargest = KeyTable::toFloat(emitter, largestKey);
  rowSum = splat(0.0);
  for (Value score : scores) {
    Value power = math::ExpOp::create(
        b, arith::SubFOp::create(b, score, rowLargest).getResult(),
        arith::FastMathFlags::afn);
    rowSum = arith::AddFOp::create(b, rowSum, power);
  }
  rowSum = sumOf(rowSum);
  Value isNumber = compare(Predicate::ORD, rowSum, rowSum);
  Value least = arith::AddFOp::create(b, rowLargest, emitter.f32(minPower));
  // From 2^31 on the sum may be the largest itself, which is alone all the
  // same.
  Value below = arith::AddIOp::create(b, largestKey, emitter.i32(-1));
  least = arith::MinSIOp::create(b, KeyTable::fromFloat(emitter, least), below);
  least =
      choose(isNumber, least, emitter.i32(std::numeric_limits<int32_t>::max()));
  for (auto [part, key] : llvm::zip(parts, keys)) {
    key = arith::MaxSIOp::create(b, key, least);
    if (part.mask)
      key = choose(part.mask, key, emitter.i32(KeyTable::kOutKey));
  }
  return hasDeadRows() ? isNumber : Value();
}

/// A NaN in the row reaches all scores through the sum.
void TopKHeld::divideBySum(MutableArrayRef<Value> scores) {
  Value largest = splat(-kInfinity);
  for (Value score : scores)
    largest = largerOf(score, largest);
  rowLargest = largestOf(largest);
  Value sum = splat(0.0);
  for (Value &score : scores) {
    score = expOfDifference(score, rowLargest);
    sum = arith::AddFOp::create(b, sum, score);
  }
  rowSum = sumOf(sum);
  for (Value &score : scores)
    score = arith::DivFOp::create(b, score, rowSum);
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Lanes without a slot take part in the sums.
void TopKHeld::weighRow(Value token) {
  Value chosen = choose(isSlot(), valueAt(token, expert), splat(kNaN));
  Value scale = expertScale ? emitter.loadF32(expertScale, expert) : Value();
  Value weight = weightsOf(chosen, scale, kWarp);
  emitter.ifThen(isSlot(), [&] {
    emitter.KernelEmitter::storeF32(weight, weights,
                                    {token, toIndex(found.slot)});
  });
}
