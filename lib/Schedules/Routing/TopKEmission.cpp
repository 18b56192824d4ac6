//===- TopKEmission.cpp - routing of rows of experts ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Code shared by all ways to route a row, and formula 5 of docs/use/layers.md.

#include "TopKEmission.h"

using namespace mlir;
using namespace moec;

TopKEmission::TopKEmission(tile::TopKOp op, KernelEmitter &emitter,
                           int64_t lanes)
    : op(op), emitter(emitter), b(emitter.b), routing(op.getRouting()),
      numRoutes(getColumns(op.getLogits())), topK(routing.getTopK()),
      layout(emitter, routing.getNumGroups(),
             numRoutes / routing.getNumGroups(), lanes),
      logits(emitter.operand(op.getLogits())),
      selectionBias(emitter.operand(op.getSelectionBias())),
      expertScale(emitter.operand(op.getExpertScale())),
      givenIds(emitter.operand(op.getGivenIds())),
      ids(emitter.operand(op.getIds())),
      weights(emitter.operand(op.getWeights())),
      recordedIds(emitter.operand(op.getRecordedIds())) {}

LogicalResult TopKEmission::run(RowRange range, int64_t step) {
  Index valid;
  if (op.getNumValidTokens())
    valid = emitter.validTokens(op.getNumValidTokens());
  Value isPadding = emitter.operand(op.getIsPadding());
  emitter.loop(range.begin, range.end, step, [&](Index token) {
    auto route = [&] { routeRow(token); };
    auto clear = [&] { clearRow(token); };
    if (!valid && !isPadding)
      return route();
    Flag isValid;
    if (valid)
      isValid = token < valid;
    if (isPadding) {
      Flag isToken = ~emitter.loadFlag(isPadding, token);
      isValid = valid ? isValid & isToken : isToken;
    }
    emitter.ifThen(isValid, route, clear);
  });
  return status;
}

void TopKEmission::clearRow(Index token) {
  emitter.loop(emitter.index(0), emitter.index(topK), 1, [&](Index slot) {
    storeId(emitter.i32(-1), token, slot);
    emitter.storeF32(emitter.f32(0.0), weights, {token, slot});
  });
}

void TopKEmission::routeRow(Index token) {
  Flag isAlive = readRow(token);
  auto route = [&] {
    selectExperts(token);
    weighRow(token);
  };
  if (isAlive.isNull())
    return route();
  emitter.ifThen(isAlive, route, [&] {
    F32 weight = emitter.f32(1.0 / topK);
    emitter.loop(emitter.index(0), emitter.index(topK), 1, [&](Index slot) {
      storeId(givenIds ? loadGivenId(token, slot) : slot.toI32(), token, slot);
      emitter.storeF32(weight, weights, {token, slot});
    });
  });
}

//===----------------------------------------------------------------------===//
// Ids
//===----------------------------------------------------------------------===//

void TopKEmission::storeId(I32 id, Index token, Index slot, bool isOfLane) {
  for (Value to : {ids, recordedIds}) {
    if (!to)
      continue;
    // An id without an expert must not become that of one.
    bool isWild = to == recordedIds && isHash();
    I32 stored = isWild ? select(isExpert(id), id, -1) : id;
    if (isOfLane)
      emitter.KernelEmitter::storeI32(stored, to, {token, slot});
    else
      emitter.storeI32(stored, to, {token, slot});
  }
}

I32 TopKEmission::loadGivenId(Index token, Index slot) {
  I32 id = emitter.loadI32(givenIds, {token, slot});
  return select(isExpert(id), id, -1);
}

//===----------------------------------------------------------------------===//
// Hash
//===----------------------------------------------------------------------===//

// Unsigned, so that negative rows and ids are out of range too.

TopKEmission::HashRow TopKEmission::loadHashRow(Index token) {
  Value table = emitter.operand(op.getHashTable());
  Index row = emitter.loadIndex(emitter.operand(op.getInputIds()), token);
  return {row, row.isBelow(cast<MemRefType>(table.getType()).getDimSize(0))};
}

I32 TopKEmission::loadHashId(const HashRow &row, Index slot) {
  return emitter.loadI32(emitter.operand(op.getHashTable()), {row.row, slot});
}

Flag TopKEmission::isExpert(I32 id) { return id.isBelow(numRoutes); }

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

F32 TopKEmission::weightOf(F32 chosen) {
  FailureOr<Value> weight = emitter.inlineRegion(op.getWeight(), chosen);
  if (succeeded(weight))
    return {b, *weight};
  status = failure();
  return chosen;
}

/// Divisor that renormalizes weights whose sum is `sum`.
F32 TopKEmission::denominatorOf(F32 sum) {
  F32 total = sum + routing.getEpsilonValue();
  Flag isUsable =
      isFinite(total) & total.compare(Predicate::ONE, total.like(0.0));
  return select(isUsable, total, 1.0);
}

F32 TopKEmission::scaled(F32 weight) {
  return routing.getScale() ? weight * routing.getScaleValue() : weight;
}

F32 TopKEmission::weightsOf(F32 values, F32 scales, int64_t lanes) {
  Flag counts = values.isNumber();
  F32 result = select(counts, weightOf(values), 0.0);
  if (routing.getSoftmax() == moe::Softmax::Selected)
    result = softmaxSelected(result, counts, lanes);
  if (routing.getRenormalize())
    result = result / emitter.splat(denominatorOf(emitter.sum(result)), lanes);
  if (scales)
    result = result * scales;
  return scaled(result);
}

F32 TopKEmission::softmaxSelected(F32 result, Flag counts, int64_t lanes) {
  F32 left = select(counts, result, -kInfinity);
  F32 largest = emitter.splat(emitter.maximum(left), lanes);
  F32 power = select(counts, expOfDifference(result, largest), 0.0);
  F32 quotient = power / emitter.splat(emitter.sum(power), lanes);
  return select(counts, quotient, 0.0);
}
