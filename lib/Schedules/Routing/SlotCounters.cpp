//===- SlotCounters.cpp - chunks of slots, counters of them -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SlotCounters.h"

using namespace mlir;
using namespace moec;

Index moec::emitChunkTokens(ThreadEmitter &emitter, TokenChunks chunks) {
  return max(divideUp(emitter.tokens(), chunks.most), chunks.tokens);
}

Value moec::flattenSlots(ThreadEmitter &emitter, Value memref) {
  auto type =
      MemRefType::get({ShapedType::kDynamic}, getElementType(memref),
                      MemRefLayoutAttrInterface(),
                      cast<MemRefType>(memref.getType()).getMemorySpace());
  Value size = emitter.tokens() * getColumns(memref);
  return memref::ReinterpretCastOp::create(
      emitter.b, type, memref, emitter.b.getIndexAttr(0),
      ArrayRef<OpFoldResult>{size},
      ArrayRef<OpFoldResult>{emitter.b.getIndexAttr(1)});
}

SlotCounters::SlotCounters(ThreadEmitter &emitter, RankExperts all,
                           int64_t expertsAtOnce)
    : emitter(emitter), numLocal(SortIds::getNumLocal(all)),
      expertsAtOnce(expertsAtOnce),
      experts(all, emitter, makeLocalTable(emitter, all)) {}

void SlotCounters::forRounds(function_ref<void()> body) {
  Index all = emitter.index(numLocal);
  if (!hasRounds()) {
    numCounters = all;
    return body();
  }
  emitter.loop(emitter.index(0), all, expertsAtOnce, [&](Index first) {
    emitter.barrier();
    firstLocal = first;
    numCounters = min(all - first, expertsAtOnce);
    body();
  });
}

Index SlotCounters::localOf(Index counter) {
  return firstLocal ? firstLocal + counter : counter;
}

SlotChoice SlotCounters::choose(I32 id, Flag exists) {
  I32 local = experts.localOf(id);
  if (!exists.isNull())
    local = select(exists, local, numLocal);
  Flag isLocal = experts.isHere(local);
  if (!firstLocal)
    return {local, isLocal, exists};
  // Unsigned, so that an expert before those of the round is too large.
  I32 number = local - firstLocal.toI32();
  Flag isHere = isLocal & number.isBelow(expertsAtOnce);
  Flag isElsewhere = ~isLocal;
  if (!exists.isNull())
    isElsewhere = exists & isElsewhere;
  return {select(isHere, number, expertsAtOnce), isHere, isElsewhere};
}

void SlotCounters::count(const SlotChoice &choice, Value table, Index row,
                         Index nowhere) {
  Index at = row + emitter.toIndex(choice.counter);
  emitter.addAtomically(emitter.i32(1), table,
                        select(choice.isHere, at, nowhere));
}
