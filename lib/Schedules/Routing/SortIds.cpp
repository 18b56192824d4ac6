//===- SortIds.cpp - what rank makes of an expert's id ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SortIds.h"

using namespace mlir;
using namespace moec;

int64_t SortIds::getNumLocal(RankExperts all) {
  return all.local ? all.local->size() : all.numExperts;
}

SmallVector<int32_t> SortIds::getLocalTable(RankExperts all) {
  SmallVector<int32_t> table(all.numExperts, getNumLocal(all));
  for (auto [local, expert] : llvm::enumerate(*all.local))
    table[expert] = local;
  return table;
}

// Unsigned, so that negative ids and numbers are out of range too.

Flag SortIds::isHere(Value local) {
  return I32(emitter.b, local).isBelow(getNumLocal(all));
}

I32 SortIds::localOf(Value slotId) {
  I32 id(emitter.b, slotId);
  Flag isExpert = id.isBelow(all.numExperts);
  I32 absent = emitter.i32(getNumLocal(all));
  if (!localTable)
    return select(isExpert, id, absent);
  Index safe = select(isExpert, id, 0).toIndex();
  return select(isExpert, emitter.loadI32(localTable, safe), absent);
}

I32 SortIds::positionOfOther(I32 id) {
  I32 nothing = emitter.i32(-1);
  if (all.numZero == 0)
    return nothing;
  Flag isZero = (id - all.numExperts).isBelow(all.numZero);
  return select(isZero, emitter.i32(-2), nothing);
}
