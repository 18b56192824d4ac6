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
  auto type = MemRefType::get({ShapedType::kDynamic}, getElementType(memref));
  Value size = emitter.mul(emitter.tokens(), getColumns(memref));
  return memref::ReinterpretCastOp::create(
      emitter.b, type, memref, emitter.b.getIndexAttr(0),
      ArrayRef<OpFoldResult>{size},
      ArrayRef<OpFoldResult>{emitter.b.getIndexAttr(1)});
}

SlotCounters::SlotCounters(ThreadEmitter &emitter, RankExperts all,
                           int64_t panel)
    : emitter(emitter), b(emitter.b), numLocal(RankIds::getNumLocal(all)),
      panel(panel), experts(all, emitter, makeLocalTable(emitter, all)) {}

void SlotCounters::forPanels(function_ref<void()> body) {
  Value all = emitter.index(numLocal);
  if (!hasPanels()) {
    numCounters = all;
    return body();
  }
  emitter.forLoop(emitter.index(0), all, panel, [&](Value first) {
    emitter.barrier();
    firstLocal = first;
    numCounters =
        emitter.min(arith::SubIOp::create(b, all, first), emitter.index(panel));
    body();
  });
}

Value SlotCounters::localOf(Value counter) {
  return firstLocal ? emitter.add(firstLocal, counter) : counter;
}

SlotChoice SlotCounters::choose(Value id, Value exists) {
  Value local = experts.localOf(id);
  if (exists)
    local = arith::SelectOp::create(b, exists, local, emitter.i32(numLocal));
  Value isLocal = experts.isHere(local);
  if (!firstLocal)
    return {local, isLocal, exists};
  // An expert before the panel becomes too large as an unsigned number.
  Value number = arith::SubIOp::create(b, local, emitter.toI32(firstLocal));
  Value none = emitter.i32(panel);
  Value isInPanel =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, none);
  Value isHere = arith::AndIOp::create(b, isLocal, isInPanel);
  Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  Value isElsewhere = arith::XOrIOp::create(b, isLocal, yes);
  if (exists)
    isElsewhere = arith::AndIOp::create(b, exists, isElsewhere);
  return {arith::SelectOp::create(b, isHere, number, none), isHere,
          isElsewhere};
}

void SlotCounters::count(const SlotChoice &choice, Value table, Value row,
                         Value nowhere) {
  Value at = emitter.add(row, emitter.toIndex(choice.counter));
  emitter.addAtomically(emitter.i32(1), table,
                        arith::SelectOp::create(b, choice.isHere, at, nowhere));
}
