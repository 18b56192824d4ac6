//===- TopKEmission.cpp - routing of rows of experts -------------*- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Formulas 4 and 5 of docs/layers.md: from keys to ids, from values to weights.

#include "TopKEmission.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

/// Twice the epsilon of sparsemixer.
static constexpr double kMixerThreshold = 0.02;

TopKEmission::TopKEmission(tile::TopKOp op, KernelEmitter &emitter,
                           int64_t lanes)
    : op(op), emitter(emitter), b(emitter.b), routing(op.getRouting()),
      numRoutes(getColumns(op.getLogits())), topK(routing.getTopK()),
      layout(emitter, routing.getNumGroups(),
             numRoutes / routing.getNumGroups(), lanes),
      keys(layout), slotLanes(llvm::alignTo(topK, lanes)),
      logits(emitter.operand(op.getLogits())),
      selectionBias(emitter.operand(op.getSelectionBias())),
      expertScale(emitter.operand(op.getExpertScale())),
      ids(emitter.operand(op.getIds())),
      weights(emitter.operand(op.getWeights())) {
  values = emitter.scratch(layout.size(), b.getF32Type());
  chosen = emitter.scratch(slotLanes, b.getF32Type());
  scales = emitter.scratch(slotLanes, b.getF32Type());
  // Slots beyond top_k stay as they are here.
  Value zero = emitter.index(0);
  emitter.storeVector(emitter.splat(kNaN, slotLanes), chosen, zero);
  emitter.storeVector(emitter.splat(1.0, slotLanes), scales, zero);
}

LogicalResult TopKEmission::run(int64_t rows) {
  Value valid = emitter.validTokens(op.getNumValidTokens());
  RowRange range = emitter.rowsOfCta(rows);
  Value end = emitter.min(range.end, valid);
  emitter.forLoop(range.begin, end, 1, [&](Value token) { routeRow(token); });
  if (op.getNumValidTokens())
    emitter.forLoop(emitter.max(range.begin, valid), range.end, 1,
                    [&](Value token) { clearRow(token); });
  return status;
}

void TopKEmission::clearRow(Value token) {
  emitter.forLoop(emitter.index(0), emitter.index(topK), 1, [&](Value slot) {
    emitter.storeI32(emitter.i32(-1), ids, {token, slot});
    emitter.storeF32(emitter.f32(0.0), weights, {token, slot});
  });
}

void TopKEmission::routeRow(Value token) {
  Value isAlive = finishRow(token);
  if (!isAlive) {
    select(token);
    weighRow(token);
    return;
  }
  emitter.ifThen(
      isAlive,
      [&] {
        select(token);
        weighRow(token);
      },
      [&] {
        Value weight = emitter.f32(1.0 / topK);
        emitter.forLoop(emitter.index(0), emitter.index(topK), 1,
                        [&](Value slot) {
                          emitter.storeI32(toI32(slot), ids, {token, slot});
                          emitter.storeF32(weight, weights, {token, slot});
                        });
      });
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

void TopKEmission::select(Value token) {
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
void TopKEmission::take(Value token, Value slot, Value position, Value value) {
  Value expert = layout.expertAt(position);
  emitter.storeI32(toI32(expert), ids, {token, slot});
  emitter.storeF32(value, chosen, slot);
  if (expertScale)
    emitter.storeF32(emitter.loadF32(expertScale, expert), scales, slot);
  keys.remove(position);
}

void TopKEmission::selectBest(Value token, Value firstSlot, int64_t count,
                              Value begin, Value end) {
  emitter.forLoop(emitter.index(0), emitter.index(count), 1, [&](Value i) {
    Value position = keys.argmax(begin, end);
    take(token, emitter.add(firstSlot, i), position,
         emitter.loadF32(values, position));
  });
}

void TopKEmission::selectByHash(Value token) {
  Value table = emitter.operand(op.getHashTable());
  Value row = emitter.loadI32(emitter.operand(op.getInputIds()), token);
  // As unsigned numbers, negative ones are out of range too.
  auto isBelow = [&](Value x, Value bound) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, x, bound);
  };
  Value tableRows =
      emitter.index(cast<MemRefType>(table.getType()).getDimSize(0));
  Value hasRow = isBelow(toIndex(row), tableRows);
  emitter.forLoop(emitter.index(0), emitter.index(topK), 1, [&](Value slot) {
    emitter.storeI32(emitter.i32(-1), ids, {token, slot});
    emitter.storeF32(emitter.f32(kNaN), chosen, slot);
    emitter.storeF32(emitter.f32(1.0), scales, slot);
    emitter.ifThen(hasRow, [&] {
      Value id = emitter.loadI32(table, {toIndex(row), slot});
      emitter.storeI32(id, ids, {token, slot});
      Value isExpert = isBelow(id, emitter.i32(numRoutes));
      emitter.ifThen(isExpert, [&] {
        Value expert = toIndex(id);
        emitter.storeF32(emitter.loadF32(values, expert), chosen, slot);
        if (expertScale)
          emitter.storeF32(emitter.loadF32(expertScale, expert), scales, slot);
      });
    });
  });
}

/// The sum of exp(value - largest) over the experts near the largest.
Value TopKEmission::mixerSum(Value largest) {
  int64_t lanes = layout.lanes;
  Value top = emitter.splat(largest, lanes);
  SmallVector<Value> sum = layout.forRow(
      splat(0.0),
      [&](Value, Value position, Value,
          ValueRange carried) -> SmallVector<Value> {
        Value value = emitter.loadVector(values, position, lanes);
        Value difference = arith::SubFOp::create(b, top, value);
        Value distance = arith::DivFOp::create(
            b, difference, largerOf(math::AbsFOp::create(b, value), top));
        // 0 / 0 is near.
        Value isNear =
            compare(Predicate::ULE, distance, splat(kMixerThreshold));
        Value isLeft = compare(Predicate::ORD, value, value);
        Value counts = arith::AndIOp::create(b, isNear, isLeft);
        Value power =
            math::ExpOp::create(b, arith::SubFOp::create(b, value, top));
        return {arith::AddFOp::create(b, carried[0],
                                      choose(counts, power, splat(0.0)))};
      });
  return sumOf(sum[0]);
}

void TopKEmission::selectSparseMixer(Value token) {
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

void TopKEmission::weighRow(Value token) {
  Value zero = emitter.index(0);
  Value value = emitter.loadVector(chosen, zero, slotLanes);
  Value counts = compare(Predicate::ORD, value, value);
  FailureOr<Value> weighted = emitter.inlineRegion(op.getWeight(), value);
  if (failed(weighted)) {
    status = failure();
    return;
  }
  Value none = emitter.splat(0.0, slotLanes);
  Value result = choose(counts, *weighted, none);
  if (routing.getSoftmax() == moe::Softmax::Selected)
    result = softmaxSelected(result, counts);
  if (routing.getRenormalize())
    result = renormalize(result);
  if (expertScale)
    result = arith::MulFOp::create(b, result,
                                   emitter.loadVector(scales, zero, slotLanes));
  if (routing.getScale())
    result = arith::MulFOp::create(
        b, result, emitter.splat(routing.getScaleValue(), slotLanes));
  Value mask;
  if (topK != slotLanes)
    mask = emitter.mask(emitter.index(topK), slotLanes);
  emitter.storeVector(result, weights, {token, zero}, mask);
}

Value TopKEmission::softmaxSelected(Value result, Value counts) {
  Value none = emitter.splat(0.0, slotLanes);
  Value left = choose(counts, result, emitter.splat(-kInfinity, slotLanes));
  Value largest = emitter.splat(largestOf(left), slotLanes);
  Value power = expOfDifference(result, largest);
  power = choose(counts, power, none);
  Value quotient =
      arith::DivFOp::create(b, power, emitter.splat(sumOf(power), slotLanes));
  return choose(counts, quotient, none);
}

Value TopKEmission::renormalize(Value result) {
  Value sum = arith::AddFOp::create(b, sumOf(result),
                                    emitter.f32(routing.getEpsilonValue()));
  Value isUsable =
      arith::AndIOp::create(b, isFinite(sum, emitter.f32(kInfinity)),
                            compare(Predicate::ONE, sum, emitter.f32(0.0)));
  Value denominator = choose(isUsable, sum, emitter.f32(1.0));
  return arith::DivFOp::create(b, result,
                               emitter.splat(denominator, slotLanes));
}
