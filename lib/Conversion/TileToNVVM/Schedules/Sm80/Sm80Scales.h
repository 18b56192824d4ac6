//===- Sm80Scales.h - the scales of sm80.contract ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80SCALES_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80SCALES_H

#include "../../ThreadEmitter.h"
#include "moec/Analysis/Sm80.h"

namespace moec {

/// Applies the scales of a tile of products: those of parts of a row inside the
/// loop, to the sums of a part, and those of whole rows behind it.
class Sm80Scales {
public:
  /// `group` leads the weights' indices, null for none; the tile's columns
  /// begin at `firstColumn`.
  Sm80Scales(ThreadEmitter &emitter, tile::ContractOp op,
             const sm80::Contract &shape, mlir::Value group,
             mlir::Value firstColumn);

  //===--- Inside the loop ---===//

  /// Where a sum of the thread belongs: its plane, and its number among the
  /// thread's rows and among its columns of a plane.
  struct Place {
    int64_t plane, row, column;
  };
  /// Scales of a part: of the thread's rows, and per plane of its columns, or
  /// one for all of them. Empty where they are not applied here.
  struct Factors {
    llvm::SmallVector<mlir::Value> rows;
    llvm::SmallVector<llvm::SmallVector<mlir::Value>> columns;
  };
  bool hasRowsInLoop() const { return shape.scales.input == ScaleTime::InLoop; }
  bool hasColumnsInLoop() const {
    return shape.scales.weight == ScaleTime::InLoop;
  }
  /// Of the thread's columns of the tile (i32), with scales of their own.
  void findColumns(mlir::ValueRange columns);
  /// Where the scales of the thread's rows begin.
  void setRows(mlir::ValueRange addresses) {
    rows.assign(addresses.begin(), addresses.end());
  }
  /// Of part `part` of step `step` (i32).
  Factors load(mlir::Value step, int64_t part);
  /// `sums` and those of a part, times their scales.
  llvm::SmallVector<mlir::Value>
  add(const Factors &factors, mlir::ValueRange products, mlir::ValueRange sums,
      llvm::function_ref<Place(int64_t)> placeOf);

  //===--- Behind it ---===//

  /// The sums of `lanes` columns of a plane from `column` on with the row of
  /// the input that is `source`; indices. Unchanged if there are no scales.
  mlir::Value apply(int64_t plane, mlir::Value sums, mlir::Value source,
                    mlir::Value column);

private:
  mlir::Value addressOfColumn(int64_t plane, mlir::Value column);
  llvm::SmallVector<mlir::Value> getIndices(int64_t plane, mlir::Value column);
  /// Bytes from the first scale of a row on; i64.
  mlir::Value getOffset(moe::QuantAttr quant, mlir::Value step, int64_t part);

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  tile::ContractOp op;
  const sm80::Contract &shape;
  mlir::Value group, firstColumn;
  /// Addresses.
  llvm::SmallVector<mlir::Value> rows;
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> columns;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80SCALES_H
