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

F32 TopKEmission::loadScores(Index token, Index expert, Flag mask) {
  return scoreOf(
      emitter.loadVector(logits, {token, expert}, layout.lanes, mask));
}

F32 TopKEmission::scoreOf(F32 logit) {
  FailureOr<Value> score = emitter.inlineRegion(op.getScore(), logit);
  if (succeeded(score))
    return {b, *score};
  status = failure();
  return logit;
}

F32 TopKEmission::keyOf(F32 score, F32 bias) {
  SmallVector<Value> args{score};
  if (bias)
    args.push_back(bias);
  FailureOr<Value> key = emitter.inlineRegion(op.getKey(), args);
  if (succeeded(key))
    return {b, *key};
  status = failure();
  return score;
}

F32 TopKEmission::loadBias(Index expert, Flag mask) {
  if (!selectionBias)
    return {};
  return emitter.loadVector(selectionBias, expert, layout.lanes, mask);
}

/// Corrects for the rounding error of the difference, since keys are compared
/// to a few ulps.
F32 TopKEmission::expOfDifference(F32 x, F32 largest) {
  F32 difference = x - largest;
  F32 minusLargest = difference - x;
  F32 error = (x - (difference - minusLargest)) - (largest + minusLargest);
  // Infinities make it NaN.
  error = select(error.isNumber(), error, 0.0);
  F32 power(b, math::ExpOp::create(b, difference));
  return fma(power, error, power);
}

/// The rule for scores that are not finite.
TopKEmission::Scored TopKEmission::finishScore(F32 score, F32 bias, Flag mask) {
  bool isZeroRule = routing.getNonfinite() == moe::NonFinite::Zero;
  // A score that is not finite makes a key that is not, whatever the bias.
  Flag counts = isFinite(score);
  F32 key = isZeroRule ? select(counts, score, 0.0) : score;
  bool hasRegion = !op.getKey().empty() && !isHash();
  if (bias || hasRegion) {
    key = hasRegion ? keyOf(key, bias) : key + bias;
    // Only a bias can still be NaN, or what a region makes; the order stays
    // total.
    if (isZeroRule)
      key = select(key.isNumber(), key, -kInfinity);
    else
      counts = isFinite(key);
  }
  F32 value = select(counts, score, kNaN);
  if (!mask.isNull())
    value = select(mask, value, kNaN);
  if (isHash())
    return {value, {}};
  if (!isZeroRule)
    key = select(counts, key,
                 routing.getNonfinite() == moe::NonFinite::NegInf ? -kInfinity
                                                                  : kLowestKey);
  return {value, KeyTable::fromFloat(key)};
}

F32 TopKEmission::softmaxOf(F32 logit) {
  F32 score = scoreOf(logit);
  if (routing.getSoftmax() != moe::Softmax::All)
    return score;
  return expOfDifference(score, rowLargest) / rowSum;
}

F32 TopKEmission::valueAt(Index token, Index expert) {
  F32 bias = selectionBias ? emitter.loadF32(selectionBias, expert) : F32();
  F32 logit = emitter.loadF32(logits, {token, expert});
  return finishScore(softmaxOf(logit), bias, /*mask=*/{}).value;
}

/// exp(value - largest) where the value is near the largest.
F32 TopKEmission::mixerTerm(F32 value, F32 top) {
  F32 difference = top - value;
  F32 distance = difference / largerOf(value.abs(), top);
  // 0 / 0 is near.
  Flag isNear =
      distance.compare(Predicate::ULE, distance.like(kMixerThreshold));
  Flag counts = isNear & value.isNumber();
  F32 power(b, math::ExpOp::create(b, value - top));
  return select(counts, power, 0.0);
}
