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
  Index zero = emitter.index(0);
  emitter.storeVector(emitter.splat(kNaN, slotLanes), chosen, zero);
  emitter.storeVector(emitter.splat(1.0, slotLanes), scales, zero);
}

//===----------------------------------------------------------------------===//
// Values and keys
//===----------------------------------------------------------------------===//

/// A NaN in the row reaches all of it through the sum.
F32 TopKStored::softmaxRow(Index token) {
  int64_t lanes = layout.lanes;
  // Scores that are logits are read again rather than kept.
  bool isKept = !op.getScore().empty();
  auto loadOrPad = [&](Index expert, Flag mask) {
    F32 score = loadScores(token, expert, mask);
    return mask.isNull() ? score : select(mask, score, -kInfinity);
  };
  F32 largest =
      layout.forRow(splat(-kInfinity),
                    [&](Index expert, Index position, Flag mask, F32 before) {
                      F32 score = loadOrPad(expert, mask);
                      if (isKept)
                        emitter.storeVector(score, values, position);
                      return largerOf(score, before);
                    });
  rowLargest = emitter.splat(emitter.maximum(largest), lanes);
  F32 sum = layout.forRow(
      splat(0.0), [&](Index expert, Index position, Flag mask, F32 before) {
        F32 score = isKept ? emitter.loadVector(values, position, lanes)
                           : loadOrPad(expert, mask);
        F32 power = expOfDifference(score, rowLargest);
        emitter.storeVector(power, values, position);
        return before + power;
      });
  return emitter.splat(emitter.sum(sum), lanes);
}

Flag TopKStored::readRow(Index token) {
  // The largest key, if it is needed.
  SmallVector<I32> largest;
  if (hasDeadRows())
    largest.push_back(keys.initialLargest());
  if (routing.getSoftmax() == moe::Softmax::All)
    rowSum = softmaxRow(token);
  largest = layout.forRow(largest, [&](Index expert, Index position, Flag mask,
                                       SmallVector<I32> before) {
    F32 score =
        rowSum ? emitter.loadVector(values, position, layout.lanes) / rowSum
               : loadScores(token, expert, mask);
    Scored scored = finishScore(score, loadBias(expert, mask), mask);
    emitter.storeVector(scored.value, values, position);
    if (scored.key)
      keys.store(scored.key, position, mask);
    for (I32 &key : before)
      key = keys.nextLargest(key, scored.key, mask);
    return before;
  });
  return hasDeadRows() ? KeyTable::isAboveMinusInfinity(emitter, largest[0])
                       : Flag();
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

void TopKStored::selectExperts(Index token) {
  if (givenIds)
    return takeGiven(token);
  Index zero = emitter.index(0);
  switch (routing.getSelect()) {
  case moe::Select::TopK:
    if (layout.numGroups > 1)
      keys.keepBestGroups(routing.getGroupScore(), routing.getTopkGroups());
    return selectBest(
        token, zero, topK, zero,
        emitter.index(llvm::alignTo(layout.size(), layout.lanes)));
  case moe::Select::PerGroup: {
    int64_t share = topK / layout.numGroups;
    emitter.loop(zero, emitter.index(layout.numGroups), 1, [&](Index group) {
      Index begin = group * layout.stride;
      Index firstSlot = group * share;
      selectBest(token, firstSlot, share, begin, begin + layout.stride);
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
void TopKStored::take(Index token, Index slot, Index position, F32 value) {
  Index expert = layout.expertAt(position);
  storeId(expert.toI32(), token, slot);
  emitter.storeF32(value, chosen, slot);
  if (expertScale)
    emitter.storeF32(emitter.loadF32(expertScale, expert), scales, slot);
  keys.remove(position);
}

void TopKStored::selectBest(Index token, Index firstSlot, int64_t count,
                            Index begin, Index end) {
  emitter.loop(emitter.index(0), emitter.index(count), 1, [&](Index i) {
    Index position = keys.argmax(begin, end);
    Index slot = firstSlot + i;
    take(token, slot, position, emitter.loadF32(values, position));
  });
}

void TopKStored::selectByHash(Index token) {
  HashRow row = loadHashRow(token);
  emitter.loop(emitter.index(0), emitter.index(topK), 1, [&](Index slot) {
    storeId(emitter.i32(-1), token, slot);
    emitter.storeF32(emitter.f32(kNaN), chosen, slot);
    emitter.storeF32(emitter.f32(1.0), scales, slot);
    emitter.ifThen(row.hasRow,
                   [&] { takeId(token, slot, loadHashId(row, slot)); });
  });
}

void TopKStored::takeGiven(Index token) {
  emitter.loop(emitter.index(0), emitter.index(topK), 1, [&](Index slot) {
    emitter.storeF32(emitter.f32(kNaN), chosen, slot);
    emitter.storeF32(emitter.f32(1.0), scales, slot);
    takeId(token, slot, loadGivenId(token, slot));
  });
}

void TopKStored::takeId(Index token, Index slot, I32 id) {
  storeId(id, token, slot);
  emitter.ifThen(isExpert(id), [&] {
    Index expert = id.toIndex();
    F32 value = emitter.loadF32(values, layout.positionOf(expert));
    emitter.storeF32(value, chosen, slot);
    if (expertScale)
      emitter.storeF32(emitter.loadF32(expertScale, expert), scales, slot);
  });
}

/// The sum of exp(value - largest) over the experts near the largest.
F32 TopKStored::mixerSum(F32 largest) {
  int64_t lanes = layout.lanes;
  F32 top = emitter.splat(largest, lanes);
  F32 sum =
      layout.forRow(splat(0.0), [&](Index, Index position, Flag, F32 before) {
        F32 value = emitter.loadVector(values, position, lanes);
        return before + mixerTerm(value, top);
      });
  return emitter.sum(sum);
}

void TopKStored::selectSparseMixer(Index token) {
  Index zero = emitter.index(0);
  Index end = emitter.index(layout.size());
  emitter.loop(zero, emitter.index(topK), 1, [&](Index slot) {
    Index position = keys.argmax(zero, end);
    F32 largest = KeyTable::toFloat(keys.load(position));
    F32 weight = 1.0 / mixerSum(largest);
    F32 value = emitter.loadF32(values, position);
    take(token, slot, position, select(value.isNumber(), weight, kNaN));
    // The next round is without it.
    emitter.storeF32(emitter.f32(kNaN), values, position);
  });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

void TopKStored::weighRow(Index token) {
  Index zero = emitter.index(0);
  F32 scale;
  if (expertScale)
    scale = emitter.loadVector(scales, zero, slotLanes);
  F32 result =
      weightsOf(emitter.loadVector(chosen, zero, slotLanes), scale, slotLanes);
  Flag mask;
  if (topK != slotLanes)
    mask = emitter.mask(emitter.index(topK), slotLanes);
  emitter.storeVector(result, weights, {token, zero}, mask);
}
