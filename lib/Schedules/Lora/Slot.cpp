//===- Slot.cpp - slots and their adapters on a GPU -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Slot.h"

#include "Schedules/Interface/Emit.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

void lora::signalStart(tile::LoraShrinkOp op, ThreadEmitter &emitter) {
  if (!op.getSignals())
    return;
  Value counter = emitter.operand(op.getSignals());
  emitter.ifThen((emitter.cta() == 0) & (emitter.thread() == 0), [&] {
    // Lower bits may count tiles of the gemm before.
    emitter.setHighestBitReleasing(
        emitter.address(counter, {emitter.index(0)}));
  });
}

void lora::beginEarly(tile::LoraShrinkOp op, ThreadEmitter &emitter) {
  if (!op.getSignals())
    return;
  emitter.fenceAcquiring();
  Operation *barrier = emitter.warpBarrier();
  auto yes = UnitAttr::get(op.getContext());
  barrier->setAttr(kBetweenPhasesAttr, yes);
  barrier->setAttr(kEndsAwaitAttr, yes);
}

void lora::waitForInput(tile::LoraShrinkOp op, ThreadEmitter &emitter) {
  if (!op.getSignals())
    return;
  emitter.waitForLaunchBefore();
  signalStart(op, emitter);
}

Index lora::findGroupByLanes(ThreadEmitter &emitter, Value offsets, Index row) {
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  I32 position = emitter.toI32(row), ended = emitter.i32(0);
  for (int64_t first = 1; first <= groups; first += kWarp) {
    // The last offset is behind every slot, so that it may be counted twice.
    I32 group = min(emitter.lane() + first, groups);
    I32 end = emitter.loadI32(offsets, {emitter.toIndex(group)});
    ended = ended + (end <= position).toI32();
  }
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    ended = ended + emitter.shuffleXor(ended, mask);
  return emitter.toIndex(ended);
}

void SlotTable::ifSlot(Index row, function_ref<void(const Slot &)> body) {
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  Slot slot;
  slot.row = row;
  slot.group = findGroupByLanes(emitter, offsets, row);
  Index rows = emitter.loadIndex(offsets, emitter.index(groups));
  emitter.ifThen(row < rows, [&] {
    slot.token = emitter.loadIndex(source, row);
    slot.adapter = emitter.loadIndex(adapterIds, slot.token);
    slot.isAdapted = slot.adapter.isBelow(adapters);
    body(slot);
  });
}
