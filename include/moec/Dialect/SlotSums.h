//===- SlotSums.h - sums over slots made by an exchange ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_SLOTSUMS_H
#define MOEC_DIALECT_SLOTSUMS_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/ValueRange.h"

namespace moec {

/// Operands of plan.collective and tile.exchange that make each row to be
/// summed over ranks from `rows` at the positions of its slots, like a
/// gather_reduce. Null for absent ones.
struct SlotSums {
  mlir::Value rows, position, addend, numValidTokens;

  /// The present operands, in this order.
  llvm::SmallVector<mlir::Value> getValues() const {
    llvm::SmallVector<mlir::Value> values;
    for (mlir::Value value : {rows, position, addend, numValidTokens})
      if (value)
        values.push_back(value);
    return values;
  }
};

/// Verifies `given` for an op that moves `ins`, by a sum or a gather.
inline mlir::LogicalResult verifySlotSums(mlir::Operation *op,
                                          const SlotSums &given,
                                          mlir::ValueRange ins, bool sums) {
  using namespace mlir;
  if (given.getValues().empty())
    return success();
  if (!given.rows || !given.position)
    return op->emitOpError("has 'addend' or 'num_valid_tokens' without "
                           "'sums_of'; give 'sums_of' too, or remove them");
  if (!sums)
    return op->emitOpError("gathers rows and makes no sums; remove 'sums_of'");
  if (ins.size() != 1)
    return op->emitOpError("has ")
           << ins.size() << " 'ins'; with 'sums_of' give one";
  auto moved = cast<MemRefType>(ins.front().getType());
  auto rows = cast<MemRefType>(given.rows.getType());
  if (moved.getRank() != 2 || !moved.isDynamicDim(0) || rows != moved)
    return op->emitOpError("has rows of type ")
           << rows << " for sums of type " << moved
           << "; give both the same type, of rank 2 with a dynamic number of "
              "rows";
  auto position = cast<MemRefType>(given.position.getType());
  if (position.getRank() != 2 || !position.isDynamicDim(0) ||
      position.isDynamicDim(1))
    return op->emitOpError("has 'position' of type ")
           << position << "; give i32 of shape rows x top_k";
  if (given.addend && given.addend.getType() != moved)
    return op->emitOpError("has an 'addend' of type ")
           << given.addend.getType() << "; give one of type " << moved;
  if (!given.numValidTokens)
    return success();
  auto count = cast<MemRefType>(given.numValidTokens.getType());
  if (count.getRank() != 1 || count.getDimSize(0) != 1)
    return op->emitOpError("has 'num_valid_tokens' of type ")
           << count << "; give memref<1xi32>";
  return success();
}

} // namespace moec

#endif // MOEC_DIALECT_SLOTSUMS_H
