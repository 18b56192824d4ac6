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

SmallVector<Value>
GatherReduce::choose(Value condition, TypeRange types,
                     function_ref<SmallVector<Value>()> then,
                     function_ref<SmallVector<Value>()> otherwise) {
  auto branch = scf::IfOp::create(b, types, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.thenBlock());
  scf::YieldOp::create(b, then());
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, otherwise());
  return SmallVector<Value>(branch.getResults());
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
      return choose(
          isIdentity, types,
          [&] { return addIdentity(sums, token, j, column, mask); }, unchanged);
    };
    return choose(
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
