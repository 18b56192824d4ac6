//===- TopKStored.cpp - routing with rows in scratch memory -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Formulas 4 and 5 of docs/use/layers.md: from keys to ids, from values to
// weights.

#include "TopKStored.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

TopKStored::TopKStored(tile::TopKOp op, KernelEmitter &emitter, int64_t lanes)
    : TopKEmission(op, emitter, lanes), keys(layout),
      slotLanes(llvm::alignTo(topK, lanes)) {
  values = emitter.scratch(layout.size(), b.getF32Type());
  chosen = emitter.scratch(slotLanes, b.getF32Type());
  scales = emitter.scratch(slotLanes, b.getF32Type());
  // Slots beyond top_k stay as they are here.
  Value zero = emitter.index(0);
  emitter.storeVector(emitter.splat(kNaN, slotLanes), chosen, zero);
  emitter.storeVector(emitter.splat(1.0, slotLanes), scales, zero);
}

//===----------------------------------------------------------------------===//
// Values and keys
//===----------------------------------------------------------------------===//

/// A NaN in the row reaches all of it through the sum.
Value TopKStored::softmaxRow(Value token) {
  int64_t lanes = layout.lanes;
  // Scores that are logits are read again rather than kept.
  bool isKept = !op.getScore().empty();
  auto loadOrPad = [&](Value expert, Value mask) {
    Value score = loadScores(token, expert, mask);
    return mask ? choose(mask, score, splat(-kInfinity)) : score;
  };
  SmallVector<Value> largest =
      layout.forRow(splat(-kInfinity),
                    [&](Value expert, Value position, Value mask,
                        ValueRange carried) -> SmallVector<Value> {
                      Value score = loadOrPad(expert, mask);
                      if (isKept)
                        emitter.storeVector(score, values, position);
                      return {largerOf(score, carried[0])};
                    });
  rowLargest = emitter.splat(largestOf(largest[0]), lanes);
  SmallVector<Value> sum =
      layout.forRow(splat(0.0),
                    [&](Value expert, Value position, Value mask,
                        ValueRange carried) -> SmallVector<Value> {
                      Value score =
                          isKept ? emitter.loadVector(values, position, lanes)
                                 : loadOrPad(expert, mask);
                      Value power = expOfDifference(score, rowLargest);
                      emitter.storeVector(power, values, position);
                      return {arith::AddFOp::create(b, carried[0], power)};
                    });
  return emitter.splat(sumOf(sum[0]), lanes);
}

Value TopKStored::readRow(Value token) {
  SmallVector<Value> init;
  if (hasDeadRows())
    init.push_back(keys.initialLargest());
  if (routing.getSoftmax() == moe::Softmax::All)
    rowSum = softmaxRow(token);
  SmallVector<Value> largest = layout.forRow(
      init,
      [&](Value expert, Value position, Value mask,
          ValueRange carried) -> SmallVector<Value> {
        Value score =
            rowSum ? arith::DivFOp::create(
                         b, emitter.loadVector(values, position, layout.lanes),
                         rowSum)
                   : loadScores(token, expert, mask);
        Scored scored = finishScore(score, loadBias(expert, mask), mask);
        emitter.storeVector(scored.value, values, position);
        if (!scored.key)
          return {};
        keys.store(scored.key, position, mask);
        if (carried.empty())
          return {};
        return {keys.nextLargest(carried[0], scored.key, mask)};
      });
  return hasDeadRows() ? KeyTable::isAboveMinusInfinity(emitter, largest[0])
                       : Value();
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

void TopKStored::select(Value token) {
  Value zero = emitter.index(0);
  switch (routing.getSelect()) {
  case moe::Select::TopK:
    if (layout.numGroups > 1)
      keys.keepBestGroups(routing.getGroupScore(), routing.getTopkGroups());
    return selectBest(
        token, zero, topK, zero,
        emitter.index(llvm::alignTo(layout.size(), layout.lanes)));
  case moe::Select::PerGroup: {
    int64_t share = topK / layout.numGroups;
    emitter.forLoop(zero, emitter.index(layout.numGroups), 1, [&](Value group) {
      Value begin = emitter.mul(group, layout.stride);
      selectBest(token, emitter.mul(group, share), share, begin,
                 emitter.add(begin, layout.stride));
    });
    return;
  }
  case moe::Select::Hash:
    return selectByHash(token);
  case moe::Select::SparseMixer:
    return selectSparseMixer(token);
  }
}

/// Slot `slot` takes the expert at `position`, whose value is `value`.
void TopKStored::take(Value token, Value slot, Value position, Value value) {
  Value expert = layout.expertAt(position);
  emitter.storeI32(toI32(expert), ids, {token, slot});
  emitter.storeF32(value, chosen, slot);
  if (expertScale)
    emitter.storeF32(emitter.loadF32(expertScale, expert), scales, slot);
  keys.remove(position);
}

void TopKStored::selectBest(Value token, Value firstSlot, int64_t count,
                            Value begin, Value end) {
  emitter.forLoop(emitter.index(0), emitter.index(count), 1, [&](Value i) {
    Value position = keys.argmax(begin, end);
    take(token, emitter.add(firstSlot, i), position,
         emitter.loadF32(values, position));
  });
}

void TopKStored::selectByHash(Value token) {
  HashRow row = loadHashRow(token);
  emitter.forLoop(emitter.index(0), emitter.index(topK), 1, [&](Value slot) {
    emitter.storeI32(emitter.i32(-1), ids, {token, slot});
    emitter.storeF32(emitter.f32(kNaN), chosen, slot);
    emitter.storeF32(emitter.f32(1.0), scales, slot);
    emitter.ifThen(row.hasRow, [&] {
      Value id = loadHashId(row, slot);
      emitter.storeI32(id, ids, {token, slot});
      emitter.ifThen(isExpert(id), [&] {
        Value expert = toIndex(id);
        emitter.storeF32(emitter.loadF32(values, expert), chosen, slot);
        if (expertScale)
          emitter.storeF32(emitter.loadF32(expertScale, expert), scales, slot);
      });
    });
  });
}

/// The sum of exp(value - largest) over the experts near the largest.
Value TopKStored::mixerSum(Value largest) {
  int64_t lanes = layout.lanes;
  Value top = emitter.splat(largest, lanes);
  SmallVector<Value> sum = layout.forRow(
      splat(0.0),
      [&](Value, Value position, Value,
          ValueRange carried) -> SmallVector<Value> {
        Value value = emitter.loadVector(values, position, lanes);
        return {arith::AddFOp::create(b, carried[0], mixerTerm(value, top))};
      });
  return sumOf(sum[0]);
}

void TopKStored::selectSparseMixer(Value token) {
  Value zero = emitter.index(0);
  Value end = emitter.index(layout.size());
  emitter.forLoop(zero, emitter.index(topK), 1, [&](Value slot) {
    Value position = keys.argmax(zero, end);
    Value largest = KeyTable::toFloat(emitter, keys.load(position));
    Value weight =
        arith::DivFOp::create(b, emitter.f32(1.0), mixerSum(largest));
    Value value = emitter.loadF32(values, position);
    Value counts = compare(Predicate::ORD, value, value);
    take(token, slot, position, choose(counts, weight, emitter.f32(kNaN)));
    // The next round is without it.
    emitter.storeF32(emitter.f32(kNaN), values, position);
  });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

void TopKStored::weighRow(Value token) {
  Value zero = emitter.index(0);
  Value scale;
  if (expertScale)
    scale = emitter.loadVector(scales, zero, slotLanes);
  Value result =
      weightsOf(emitter.loadVector(chosen, zero, slotLanes), scale, slotLanes);
  Value mask;
  if (topK != slotLanes)
    mask = emitter.mask(emitter.index(topK), slotLanes);
  emitter.storeVector(result, weights, {token, zero}, mask);
}
