//===- Slot.h - slots and their adapters on a GPU ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_LORA_SLOT_H
#define MOEC_LIB_SCHEDULES_LORA_SLOT_H

#include "KernelBuilder/ThreadEmitter.h"

namespace moec::lora {

/// A slot of a CTA: its row, token, the group of its expert and the adapter of
/// its token. All threads hold it.
struct Slot {
  Index row, token, group, adapter;
  /// Whether the token has an adapter.
  Flag isAdapted;
};

/// The number of groups that end at `row` or before it, which all lanes of a
/// warp give: their loads wait for no other.
Index findGroupByLanes(ThreadEmitter &emitter, mlir::Value offsets, Index row);

/// Sets the highest bit of the op's `signals`, if it has that counter: the
/// launches before have ended. At the kernel's start, behind its wait for them.
void signalStart(tile::LoraShrinkOp op, ThreadEmitter &emitter);

/// With `signals`, the launch before is late, so that the sort has ended when
/// the kernel begins: the kernel may look up its rows behind `beginEarly`, and
/// waits for its input by `waitForInput`. All threads call both; a second call
/// of `waitForInput` changes nothing.
void beginEarly(tile::LoraShrinkOp op, ThreadEmitter &emitter);
void waitForInput(tile::LoraShrinkOp op, ThreadEmitter &emitter);

/// The token, expert and adapter of a slot.
class SlotTable {
public:
  template <typename OpT>
  SlotTable(OpT op, ThreadEmitter &emitter)
      : emitter(emitter), offsets(emitter.operand(op.getOffsets())),
        source(emitter.operand(op.getSource())),
        adapterIds(emitter.operand(op.getAdapterIds())),
        adapters(
            mlir::cast<mlir::MemRefType>(op.getMatrices().front().getType())
                .getDimSize(0)) {}

  /// Calls `body` if `row`, the same in all threads, is one of a slot.
  void ifSlot(Index row, llvm::function_ref<void(const Slot &)> body);

private:
  ThreadEmitter &emitter;
  mlir::Value offsets, source, adapterIds;
  int64_t adapters;
};

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_SLOT_H
