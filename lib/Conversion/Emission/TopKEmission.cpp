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
      ids(emitter.operand(op.getIds())),
      weights(emitter.operand(op.getWeights())) {}

LogicalResult TopKEmission::run(RowRange range, int64_t step) {
  Value valid;
  if (op.getNumValidTokens())
    valid = emitter.validTokens(op.getNumValidTokens());
  Value isPadding = emitter.operand(op.getIsPadding());
  emitter.forLoop(range.begin, range.end, step, [&](Value token) {
    auto route = [&] { routeRow(token); };
    auto clear = [&] { clearRow(token); };
    if (!valid && !isPadding)
      return route();
    Value isValid;
    if (valid)
      isValid =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, token, valid);
    if (isPadding) {
      Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
      Value isToken =
          arith::XOrIOp::create(b, emitter.loadFlag(isPadding, token), yes);
      isValid = isValid ? arith::AndIOp::create(b, isValid, isToken).getResult()
                        : isToken;
    }
    emitter.ifThen(isValid, route, clear);
  });
  return status;
}

void TopKEmission::clearRow(Value token) {
  emitter.forLoop(emitter.index(0), emitter.index(topK), 1, [&](Value slot) {
    emitter.storeI32(emitter.i32(-1), ids, {token, slot});
    emitter.storeF32(emitter.f32(0.0), weights, {token, slot});
  });
}

void TopKEmission::routeRow(Value token) {
  Value isAlive = readRow(token);
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
// Hash
//===----------------------------------------------------------------------===//

/// As unsigned numbers, negative ones are out of range too.
static Value isBelow(ImplicitLocOpBuilder &b, Value x, Value bound) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, x, bound);
}

TopKEmission::HashRow TopKEmission::loadHashRow(Value token) {
  Value table = emitter.operand(op.getHashTable());
  Value row = emitter.loadI32(emitter.operand(op.getInputIds()), token);
  Value numRows =
      emitter.index(cast<MemRefType>(table.getType()).getDimSize(0));
  return {toIndex(row), isBelow(b, toIndex(row), numRows)};
}

Value TopKEmission::loadHashId(const HashRow &row, Value slot) {
  return emitter.loadI32(emitter.operand(op.getHashTable()), {row.row, slot});
}

Value TopKEmission::isExpert(Value id) {
  return isBelow(b, id, emitter.i32(numRoutes));
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Value TopKEmission::weightOf(Value chosen) {
  FailureOr<Value> weight = emitter.inlineRegion(op.getWeight(), chosen);
  if (succeeded(weight))
    return *weight;
  status = failure();
  return chosen;
}

/// Divisor that renormalizes weights whose sum is `sum`.
Value TopKEmission::denominatorOf(Value sum) {
  Value total =
      arith::AddFOp::create(b, sum, emitter.f32(routing.getEpsilonValue()));
  Value isUsable =
      arith::AndIOp::create(b, isFinite(total, emitter.f32(kInfinity)),
                            compare(Predicate::ONE, total, emitter.f32(0.0)));
  return choose(isUsable, total, emitter.f32(1.0));
}

Value TopKEmission::scaled(Value weight) {
  if (!routing.getScale())
    return weight;
  Value factor = emitter.constant(weight.getType(),
                                  b.getF32FloatAttr(routing.getScaleValue()));
  return arith::MulFOp::create(b, weight, factor);
}

Value TopKEmission::weightsOf(Value values, Value scales, int64_t lanes) {
  Value counts = countsOf(values);
  Value result = choose(counts, weightOf(values), emitter.splat(0.0, lanes));
  if (routing.getSoftmax() == moe::Softmax::Selected)
    result = softmaxSelected(result, counts, lanes);
  if (routing.getRenormalize())
    result = arith::DivFOp::create(
        b, result, emitter.splat(denominatorOf(sumOf(result)), lanes));
  if (scales)
    result = arith::MulFOp::create(b, result, scales);
  return scaled(result);
}

Value TopKEmission::softmaxSelected(Value result, Value counts, int64_t lanes) {
  Value none = emitter.splat(0.0, lanes);
  Value left = choose(counts, result, emitter.splat(-kInfinity, lanes));
  Value largest = emitter.splat(largestOf(left), lanes);
  Value power = expOfDifference(result, largest);
  power = choose(counts, power, none);
  Value quotient =
      arith::DivFOp::create(b, power, emitter.splat(sumOf(power), lanes));
  return choose(counts, quotient, none);
}
