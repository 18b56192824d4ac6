//===- TopKScores.cpp - from logits to values and keys ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Formulas 2 and 3 of docs/layers.md.

#include "TopKEmission.h"

using namespace mlir;
using namespace moec;

static constexpr double kLowestKey = -1e30;

Value TopKEmission::loadScores(Value token, Value expert, Value mask) {
  Value logit = emitter.loadVector(logits, {token, expert}, layout.lanes, mask);
  FailureOr<Value> score = emitter.inlineRegion(op.getScore(), logit);
  if (succeeded(score))
    return *score;
  status = failure();
  return logit;
}

/// What the difference loses to rounding counts too: keys are compared to a few
/// ulps.
Value TopKEmission::expOfDifference(Value x, Value largest) {
  auto sub = [&](Value p, Value q) -> Value {
    return arith::SubFOp::create(b, p, q);
  };
  Value difference = sub(x, largest);
  Value minusLargest = sub(difference, x);
  Value error = sub(sub(x, sub(difference, minusLargest)),
                    arith::AddFOp::create(b, largest, minusLargest));
  // Infinities make it NaN.
  error = choose(compare(Predicate::ORD, error, error), error,
                 emitter.constant(x.getType(), b.getF32FloatAttr(0.0f)));
  Value power = math::ExpOp::create(b, difference);
  return math::FmaOp::create(b, power, error, power);
}

/// Leaves exp(score - max) in `values` and returns the sum, in all lanes. A NaN
/// in the row reaches all of it through the sum.
Value TopKEmission::softmaxRow(Value token) {
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
  Value rowLargest = emitter.splat(largestOf(largest[0]), lanes);
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

/// Leaves the row's values and keys in scratch memory. Returns whether a key is
/// left, or null where it does not matter.
Value TopKEmission::finishRow(Value token) {
  SmallVector<Value> init;
  if (hasDeadRows())
    init.push_back(keys.initialLargest());
  Value rowSum;
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
        Value next = finishVector(score, expert, position, mask,
                                  carried.empty() ? Value() : carried[0]);
        return next ? SmallVector<Value>{next} : SmallVector<Value>();
      });
  return hasDeadRows() ? keys.isAboveMinusInfinity(largest[0]) : Value();
}

/// The rule for scores that are not finite. Returns the next `largest`.
Value TopKEmission::finishVector(Value score, Value expert, Value position,
                                 Value mask, Value largest) {
  Value infinity = splat(kInfinity);
  bool isZeroRule = routing.getNonfinite() == moe::NonFinite::Zero;
  // A score that is not finite makes a key that is not, whatever the bias.
  Value counts = isFinite(score, infinity);
  Value key = isZeroRule ? choose(counts, score, splat(0.0)) : score;
  if (selectionBias) {
    Value bias = emitter.loadVector(selectionBias, expert, layout.lanes, mask);
    key = arith::AddFOp::create(b, key, bias);
    // Only a bias can still be NaN; the order stays total.
    if (isZeroRule)
      key = choose(compare(Predicate::ORD, key, key), key, splat(-kInfinity));
    else
      counts = isFinite(key, infinity);
  }
  emitter.storeVector(maskOrNaN(choose(counts, score, splat(kNaN)), mask),
                      values, position);
  if (isHash())
    return {};
  if (!isZeroRule)
    key = choose(counts, key,
                 splat(routing.getNonfinite() == moe::NonFinite::NegInf
                           ? -kInfinity
                           : kLowestKey));
  Value ordered = KeyTable::fromFloat(emitter, key);
  keys.store(ordered, position, mask);
  return largest ? keys.nextLargest(largest, ordered, mask) : Value();
}
