//===- Parts.h - rows of an expert with one adapter -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_LORA_PARTS_H
#define MOEC_LIB_SCHEDULES_LORA_PARTS_H

#include "KernelBuilder/ThreadEmitter.h"
#include "Shape.h"

namespace moec::lora {

/// Rows of a group with one adapter, -1 for none.
struct Part {
  Index group;
  I32 adapter, count;
};

/// Finds parts of up to 16 rows of one expert and adapter, in the order of
/// rows. A part belongs to the window of positions with its first row; its
/// other rows may lie behind. All warps find the same.
class PartTable {
public:
  template <typename OpT>
  PartTable(OpT op, ThreadEmitter &emitter, int64_t warps)
      : emitter(emitter), offsets(emitter.operand(op.getOffsets())),
        source(emitter.operand(op.getSource())),
        adapterIds(emitter.operand(op.getAdapterIds())),
        adapters(LoraShape(op).adapters), topK(op.getTopK()),
        rowTable(emitter.scratch({warps * kRows}, emitter.b.getI32Type())) {}

  /// Calls `body` for each part of a window. Branches are uniform in a CTA.
  void forParts(Index window, llvm::function_ref<void(const Part &)> body);
  /// The position of row `i` of the part.
  Index getRow(I32 i);

private:
  I32 loadAdapter(Index row);
  I32 countBefore(Index begin, Index position, I32 adapter);
  I32 findRows(Index position, Index end, I32 adapter);
  void emitPosition(Index position,
                    llvm::function_ref<void(const Part &)> body);

  static constexpr int64_t kRows = LoraShape::kTileRows;

  ThreadEmitter &emitter;
  mlir::Value offsets, source, adapterIds;
  int64_t adapters, topK;
  /// The rows of a part, once for each warp.
  mlir::Value rowTable;
};

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_PARTS_H
