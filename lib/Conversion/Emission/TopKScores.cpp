//===- TopKScores.cpp - from logits to values and keys ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Formulas 2 and 3 of docs/use/layers.md.

#include "TopKEmission.h"

using namespace mlir;
using namespace moec;

static constexpr double kLowestKey = -1e30;
/// Twice the epsilon of sparsemixer.
static constexpr double kMixerThreshold = 0.02;

Value TopKEmission::loadScores(Value token, Value expert, Value mask) {
  return scoreOf(
      emitter.loadVector(logits, {token, expert}, layout.lanes, mask));
}

Value TopKEmission::scoreOf(Value logit) {
  FailureOr<Value> score = emitter.inlineRegion(op.getScore(), logit);
  if (succeeded(score))
    return *score;
  status = failure();
  return logit;
}

Value TopKEmission::keyOf(Value score, Value bias) {
  SmallVector<Value> args{score};
  if (bias)
    args.push_back(bias);
  FailureOr<Value> key = emitter.inlineRegion(op.getKey(), args);
  if (succeeded(key))
    return *key;
  status = failure();
  return score;
}

Value TopKEmission::loadBias(Value expert, Value mask) {
  if (!selectionBias)
    return {};
  return emitter.loadVector(selectionBias, expert, layout.lanes, mask);
}

/// Corrects for the rounding error of the difference, since keys are compared
/// to a few ulps.
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

/// The rule for scores that are not finite.
TopKEmission::Scored TopKEmission::finishScore(Value score, Value bias,
                                               Value mask) {
  Value infinity = splat(kInfinity);
  bool isZeroRule = routing.getNonfinite() == moe::NonFinite::Zero;
  // A score that is not finite makes a key that is not, whatever the bias.
  Value counts = isFinite(score, infinity);
  Value key = isZeroRule ? choose(counts, score, splat(0.0)) : score;
  bool hasRegion = !op.getKey().empty() && !isHash();
  if (bias || hasRegion) {
    key = hasRegion ? keyOf(key, bias)
                    : arith::AddFOp::create(b, key, bias).getResult();
    // Only a bias can still be NaN, or what a region makes; the order stays
    // total.
    if (isZeroRule)
      key = choose(compare(Predicate::ORD, key, key), key, splat(-kInfinity));
    else
      counts = isFinite(key, infinity);
  }
  Value value = maskOrNaN(choose(counts, score, splat(kNaN)), mask);
  if (isHash())
    return {value, {}};
  if (!isZeroRule)
    key = choose(counts, key,
                 splat(routing.getNonfinite() == moe::NonFinite::NegInf
                           ? -kInfinity
                           : kLowestKey));
  return {value, KeyTable::fromFloat(emitter, key)};
}

Value TopKEmission::softmaxOf(Value logit) {
  Value score = scoreOf(logit);
  if (routing.getSoftmax() != moe::Softmax::All)
    return score;
  return arith::DivFOp::create(b, expOfDifference(score, rowLargest), rowSum);
}

Value TopKEmission::valueAt(Value token, Value expert) {
  Value bias = selectionBias ? emitter.loadF32(selectionBias, expert) : Value();
  Value logit = emitter.loadF32(logits, {token, expert});
  return finishScore(softmaxOf(logit), bias, /*mask=*/{}).value;
}

/// exp(value - largest) where the value is near the largest.
Value TopKEmission::mixerTerm(Value value, Value top) {
  Value difference = arith::SubFOp::create(b, top, value);
  Value distance = arith::DivFOp::create(
      b, difference, largerOf(math::AbsFOp::create(b, value), top));
  // 0 / 0 is near.
  Value isNear = compare(Predicate::ULE, distance, splat(kMixerThreshold));
  Value counts = arith::AndIOp::create(b, isNear, countsOf(value));
  Value power = math::ExpOp::create(b, arith::SubFOp::create(b, value, top));
  return choose(counts, power, splat(0.0));
}
