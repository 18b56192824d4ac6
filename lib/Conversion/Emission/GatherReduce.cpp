//===- GatherReduce.cpp - the sum of a token's rows -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GatherReduce.h"

using namespace mlir;
using namespace moec;

SmallVector<Value> GatherReduce::addRow(ValueRange sums, Value row,
                                        Value column, Value mask) {
  SmallVector<Value> next;
  for (auto [i, sum] : llvm::enumerate(sums))
    next.push_back(
        arith::AddFOp::create(b, sum, load(rows, row, column, i, mask)));
  return next;
}

SmallVector<Value> GatherReduce::addIdentity(ValueRange sums, Value token,
                                             Value j, Value column,
                                             Value mask) {
  Value weight =
      emitter.splat(emitter.loadF32(identityWeights, {token, j}), lanes);
  SmallVector<Value> next;
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value x = load(identity, token, column, i, mask);
    next.push_back(
        arith::AddFOp::create(b, sum, arith::MulFOp::create(b, x, weight)));
  }
  return next;
}

void GatherReduce::emitColumns(Value token, Value column, int64_t vectors,
                               Value mask) {
  SmallVector<Value> zeros(vectors, emitter.splat(0.0, lanes));
  SmallVector<Type> types(vectors, emitter.vectorType(b.getF32Type(), lanes));
  auto body = [&](Value j, ValueRange sums) {
    Value slot = emitter.loadI32(position, {token, j});
    Value isRow = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, slot,
                                        emitter.i32(0));
    auto unchanged = [&] { return SmallVector<Value>(sums); };
    auto other = [&] {
      if (!identity)
        return unchanged();
      Value isIdentity = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                               slot, emitter.i32(-2));
      return emitter.choose(
          isIdentity, types,
          [&] { return addIdentity(sums, token, j, column, mask); }, unchanged);
    };
    return emitter.choose(
        isRow, types,
        [&] {
          Value row = arith::IndexCastOp::create(b, b.getIndexType(), slot);
          return addRow(sums, row, column, mask);
        },
        other);
  };
  SmallVector<Value> sums =
      emitter.forLoop(emitter.index(0), emitter.index(topK), 1, zeros, body);
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value total = sum;
    if (addend)
      total =
          arith::AddFOp::create(b, total, load(addend, token, column, i, mask));
    emitter.storeVector(total, result, {token, emitter.add(column, i * lanes)},
                        mask);
  }
}

SmallVector<Value> GatherReduce::loadSlots(Value token, Value first,
                                           int64_t count) {
  SmallVector<Value> slots;
  for (int64_t i = 0; i < count; ++i)
    slots.push_back(emitter.loadI32(position, {token, emitter.add(first, i)}));
  return slots;
}

Value GatherReduce::addAhead(Value sum, Value token, Value first,
                             ValueRange slots, Value column, Value self) {
  // A slot that has no row loads the begin of another one's, in all threads the
  // same, and does not add it: a branch would have to wait for the row before.
  Value some = slots.front();
  for (Value slot : slots.drop_front())
    some = arith::MaxSIOp::create(b, some, slot);
  auto isRow = [&](Value slot) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::sge, slot,
                                 emitter.i32(0));
  };
  auto loadRows = [&] {
    return llvm::map_to_vector(slots, [&](Value slot) {
      Value safe = arith::SelectOp::create(b, isRow(slot), slot, some);
      Value row = arith::IndexCastOp::create(b, b.getIndexType(), safe);
      Value from =
          arith::SelectOp::create(b, isRow(slot), column, emitter.index(0));
      return emitter.loadElements(rows, {row, from}, lanes);
    });
  };
  // As they lie in memory: in f32 they would take twice the registers, and
  // whoever makes them f32 waits for them.
  auto type = VectorType::get(lanes, getElementType(rows));
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  // Nobody reads these. Of constants LLVM would make f32 in both branches.
  auto noRows = [&] {
    Type element = type.getElementType();
    Type bits = b.getIntegerType(element.getIntOrFloatBitWidth());
    Value any = some;
    if (bits != some.getType())
      any = arith::TruncIOp::create(b, bits, some);
    Value value = arith::BitcastOp::create(b, element, any);
    Value all = vector::BroadcastOp::create(b, type, value);
    return SmallVector<Value>(slots.size(), all);
  };
  SmallVector<Type> types(slots.size(), type);
  SmallVector<Value> loaded =
      emitter.choose(isRow(some), types, loadRows, noRows);
  for (auto [i, slot, elements] : llvm::enumerate(slots, loaded)) {
    // A sum is never -0, so that adding 0 changes nothing.
    Value own = arith::SelectOp::create(b, isRow(slot), elements, zero);
    Value added =
        arith::AddFOp::create(b, sum, castFloat(b, own, b.getF32Type()));
    if (self) {
      Value j = emitter.add(first, static_cast<int64_t>(i));
      Value weight =
          emitter.splat(emitter.loadF32(identityWeights, {token, j}), lanes);
      Value next =
          arith::AddFOp::create(b, sum, arith::MulFOp::create(b, self, weight));
      Value isIdentity = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                               slot, emitter.i32(-2));
      added = arith::SelectOp::create(b, isIdentity, next, added);
    }
    sum = added;
  }
  return sum;
}

void GatherReduce::emitColumnsAhead(Value token, Value column,
                                    ValueRange slots) {
  auto loadOnce = [&](Value memref) {
    return memref ? load(memref, token, column, 0, /*mask=*/{}) : Value();
  };
  Value self = loadOnce(identity), last = loadOnce(addend);
  int64_t first = std::min(topK, kRowsAtOnce);
  Value sum = addAhead(emitter.splat(0.0, lanes), token, emitter.index(0),
                       slots, column, self);
  auto addMore = [&](Value before, Value j, int64_t count) {
    return addAhead(before, token, j, loadSlots(token, j, count), column, self);
  };
  int64_t rest = (topK - first) % kRowsAtOnce;
  if (topK - rest > first)
    sum = emitter.forLoop(emitter.index(first), emitter.index(topK - rest),
                          kRowsAtOnce, sum, [&](Value j, ValueRange sums) {
                            return SmallVector<Value>{
                                addMore(sums[0], j, kRowsAtOnce)};
                          })[0];
  if (rest)
    sum = addMore(sum, emitter.index(topK - rest), rest);
  if (last)
    sum = arith::AddFOp::create(b, sum, last);
  emitter.storeVector(sum, result, {token, column});
}
