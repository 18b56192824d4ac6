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
  /// The only row of a part of `ifRow`.
  Index row;
};

/// Finds parts: up to `rows` rows of one expert and adapter, in their order. A
/// group has as many numbers as it may have parts, which follow from the number
/// of its rows. A CTA has one number, and looks at the rows of its group with
/// all threads. All warps find the same.
class PartTable {
public:
  template <typename OpT>
  PartTable(OpT op, ThreadEmitter &emitter, int64_t rows)
      : emitter(emitter), offsets(emitter.operand(op.getOffsets())),
        source(emitter.operand(op.getSource())),
        adapterIds(emitter.operand(op.getAdapterIds())), shape(op), rows(rows),
        counts(emitter.scratch({shape.getKinds()}, emitter.b.getI32Type())),
        warpCounts(emitter.scratch({kAtOnce * emitter.getNumWarps()},
                                   emitter.b.getI32Type())),
        rowTable(emitter.scratch({rows}, emitter.b.getI32Type())) {}

  /// Calls `body` if there is a part `number`, the same in all threads.
  void ifPart(I32 number, llvm::function_ref<void(const Part &)> body);
  /// Calls `body` for a position, the same in all threads, as a part of one row
  /// if it has a row: its loads wait for fewer others.
  void ifRow(I32 position, llvm::function_ref<void(const Part &)> body);
  /// The position of row `i` of a part.
  Index getRow(const Part &part, I32 i);

private:
  /// An item of a list of lists: that of list `number`, `within` from its
  /// start.
  struct Found {
    Flag exists;
    I32 number, within;
  };
  /// A row that a thread looks at; `kind` is the number of its adapter.
  struct Look {
    I32 row, kind;
    Flag exists;
  };

  /// Lane `l` has the sizes of lists `l * sizes.size()` and so on.
  Found find(llvm::ArrayRef<I32> sizes, I32 item);
  I32 scan(I32 own);
  /// Numbers of a lane's groups; parts of a lane's kinds.
  llvm::SmallVector<I32> getNumbers();
  llvm::SmallVector<I32> getParts();
  llvm::SmallVector<Look> look(I32 from, I32 end);
  void count(I32 begin, I32 end);
  /// Writes rows `first` to `first + rows - 1` of a kind to the table.
  void findRows(I32 begin, I32 end, I32 kind, I32 first);

  /// Rows that a thread looks at before any of their loads has to end.
  static constexpr int64_t kAtOnce = 2;

  ThreadEmitter &emitter;
  mlir::Value offsets, source, adapterIds;
  LoraShape shape;
  int64_t rows;
  /// Rows of the group with each adapter and, behind them, with none.
  mlir::Value counts;
  /// Rows of one kind among those that a warp looks at.
  mlir::Value warpCounts;
  mlir::Value rowTable;
};

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_PARTS_H
