//===- RankIds.cpp - what rank makes of an expert's id ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankIds.h"

using namespace mlir;
using namespace moec;

int64_t RankIds::getNumLocal(RankExperts all) {
  return all.local ? all.local->size() : all.numExperts;
}

SmallVector<int32_t> RankIds::getLocalTable(RankExperts all) {
  SmallVector<int32_t> table(all.numExperts, getNumLocal(all));
  for (auto [local, expert] : llvm::enumerate(*all.local))
    table[expert] = local;
  return table;
}

/// As an unsigned number, a negative one is out of range too.
Value RankIds::isBelow(Value x, int64_t bound) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, x,
                               emitter.i32(bound));
}

Value RankIds::choose(Value condition, Value x, Value y) {
  return arith::SelectOp::create(b, condition, x, y);
}

Value RankIds::isHere(Value local) { return isBelow(local, getNumLocal(all)); }

Value RankIds::localOf(Value id) {
  Value isExpert = isBelow(id, all.numExperts);
  Value absent = emitter.i32(getNumLocal(all));
  if (!localTable)
    return choose(isExpert, id, absent);
  Value safe = choose(isExpert, id, emitter.i32(0));
  Value at = arith::IndexCastOp::create(b, b.getIndexType(), safe);
  return choose(isExpert, emitter.loadI32(localTable, at), absent);
}

Value RankIds::positionOfOther(Value id) {
  Value nothing = emitter.i32(-1);
  if (all.numZero == 0)
    return nothing;
  Value number = arith::SubIOp::create(b, id, emitter.i32(all.numExperts));
  return choose(isBelow(number, all.numZero), emitter.i32(-2), nothing);
}
