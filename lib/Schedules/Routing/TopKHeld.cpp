//===- TopKHeld.cpp - routing of rows in registers --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TopKHeld.h"

#include "Shape.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

TopKHeld::TopKHeld(tile::TopKOp op, WarpEmitter &emitter, bool mayWait)
    : TopKEmission(op, emitter, kWarp), warp(emitter) {
  makeParts();
  if (anygpu::TopK::isRanked(op)) {
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
  Index last = emitter.index(numRoutes - 1);
  for (Part &part : parts) {
    Index expert = part.firstExpert + warp.lane().toIndex();
    if (!part.mask.isNull())
      expert = min(expert, last);
    part.bias = {b, warp.loadConstantF32(selectionBias, expert)};
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

Flag TopKHeld::readRow(Index token) {
  SmallVector<F32> scores;
  for (const Part &part : parts)
    scores.push_back(emitter.loadVector(logits, {token, part.firstExpert},
                                        kWarp, part.mask));
  for (auto [part, score] : llvm::zip(parts, scores)) {
    score = scoreOf(score);
    if (!part.mask.isNull() && routing.getSoftmax() == moe::Softmax::All)
      score = select(part.mask, score, -kInfinity);
  }
  keys.clear();
  if (isOrderedByScore())
    return keysOfScores(scores);
  if (routing.getSoftmax() == moe::Softmax::All)
    divideBySum(scores);
  I32 largest = emitter.i32(KeyTable::kOutKey);
  for (auto [part, score] : llvm::zip(parts, scores)) {
    I32 key = finishScore(score, part.bias, part.mask).key;
    if (!part.mask.isNull())
      key = select(part.mask, key, KeyTable::kOutKey);
    keys.push_back(key);
    largest = max(largest, key);
  }
  return hasDeadRows() ? KeyTable::isAboveMinusInfinity(emitter, largest)
                       : Flag();
}

/// Keys of softmax scores where only their order counts. The sum uses
/// approximate exponentials: a score far from the largest contributes little,
/// so its error is small. A NaN in the row, or an infinite maximum, reaches all
/// scores through the sum; then all keys are equal.
Flag TopKHeld::keysOfScores(ArrayRef<F32> scores) {
  // exp of anything smaller is 0 in f32.
  constexpr double minPower = -104;
  for (F32 score : scores)
    keys.push_back(KeyTable::fromFloat(score));
  I32 largestKey = warp.warpMax(largestHeld(keys));
  rowLargest = KeyTable::toFloat(largestKey);
  F32 sum = splat(0.0);
  for (F32 score : scores) {
    Value difference = score - rowLargest;
    Value power = math::ExpOp::create(b, difference, arith::FastMathFlags::afn);
    sum = sum + F32(b, power);
  }
  rowSum = emitter.sum(sum);
  Flag isNumber = rowSum.isNumber();
  // From 2^31 on the sum may be the largest itself, which is alone all the
  // same.
  F32 leastScore = rowLargest + minPower;
  I32 below = largestKey - 1;
  I32 least = min(KeyTable::fromFloat(leastScore), below);
  least = select(isNumber, least, std::numeric_limits<int32_t>::max());
  for (auto [part, key] : llvm::zip(parts, keys)) {
    key = max(key, least);
    if (!part.mask.isNull())
      key = select(part.mask, key, KeyTable::kOutKey);
  }
  return hasDeadRows() ? isNumber : Flag();
}

/// A NaN in the row reaches all scores through the sum.
void TopKHeld::divideBySum(MutableArrayRef<F32> scores) {
  F32 largest = splat(-kInfinity);
  for (F32 score : scores)
    largest = largerOf(score, largest);
  rowLargest = emitter.maximum(largest);
  F32 sum = splat(0.0);
  for (F32 &score : scores) {
    score = expOfDifference(score, rowLargest);
    sum = sum + score;
  }
  rowSum = emitter.sum(sum);
  for (F32 &score : scores)
    score = score / rowSum;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Lanes without a slot take part in the sums.
void TopKHeld::weighRow(Index token) {
  Flag hasSlot = isSlot();
  Flag counts = givenIds ? hasSlot & isGivenExpert : hasSlot;
  F32 chosen = select(counts, valueAt(token, expert), kNaN);
  F32 scale = expertScale ? emitter.loadF32(expertScale, expert) : F32();
  F32 weight = weightsOf(chosen, scale, kWarp);
  emitter.ifThen(hasSlot, [&] {
    emitter.KernelEmitter::storeF32(weight, weights,
                                    {token, found.slot.toIndex()});
  });
}
