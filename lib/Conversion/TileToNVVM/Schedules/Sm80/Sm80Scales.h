//===- Sm80Scales.h - the scales of sm80.contract ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80SCALES_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80SCALES_H

#include "../../OperandDecoder.h"
#include "moec/Analysis/Sm80.h"

namespace moec {

/// Applies the scales of a tile: scales of few elements, and zero points, to
/// elements of weights; scales of parts of a row to the sums of a part, inside
/// the loop; scales of whole rows and matrices after the loop.
class Sm80Scales {
public:
  /// `group`: leading index into the weights, null for none. The tile's columns
  /// begin at `firstColumn`.
  Sm80Scales(ThreadEmitter &emitter, tile::ContractOp op,
             const sm80::Contract &shape, Float8 floats, mlir::Value group,
             mlir::Value firstColumn);

  //===--- On elements, in Sm80ElementScales.cpp ---===//

  /// Locates the scales of the thread's rows of weights, which are columns of
  /// the tile: the first one (i32), and the distances of all.
  void findElementRows(mlir::Value first, llvm::ArrayRef<int64_t> distances);
  /// Scales and zero points of the rows of a projection, for the thread's
  /// elements among `kDecodedColumns` (among 16 with FMAs) from element
  /// `element` (i32) along K on. Empty if there are none.
  llvm::SmallVector<ElementFactors> loadForElements(int64_t projection,
                                                    mlir::Value element);

  //===--- Inside the loop ---===//

  /// Location of a thread's sum: its projection, and its index among the
  /// thread's rows and among its columns of a projection.
  struct Place {
    int64_t projection, row, column;
  };
  /// Scales of a part: of the thread's rows, and per projection of its columns,
  /// or one for all of them. Empty if not applied per part.
  struct Factors {
    llvm::SmallVector<mlir::Value> rows;
    llvm::SmallVector<llvm::SmallVector<mlir::Value>> columns;
    /// Negated minima of columns.
    llvm::SmallVector<llvm::SmallVector<mlir::Value>> minima;
  };
  bool hasRowsInLoop() const { return shape.scales.input == ScaleTime::InLoop; }
  bool hasColumnsInLoop() const {
    return shape.scales.weight == ScaleTime::InLoop;
  }
  /// Locates the scales of the thread's columns of the tile (i32), if columns
  /// have their own.
  void findColumns(mlir::ValueRange columns);
  /// Sets the addresses of the scales of the thread's rows.
  void setRows(mlir::ValueRange addresses) {
    rows.assign(addresses.begin(), addresses.end());
  }
  /// Loads the scales of part `part` of k tile `step` (i32).
  Factors load(mlir::Value step, int64_t part);
  /// `sums` plus those of a part, times their scales. `rowSums`: sums of the
  /// elements of each row of the thread, with minima.
  llvm::SmallVector<mlir::Value>
  add(const Factors &factors, mlir::ValueRange products,
      mlir::ValueRange rowSums, mlir::ValueRange sums,
      llvm::function_ref<Place(int64_t)> placeOf);

  //===--- Behind it ---===//

  /// Scales the sums of `lanes` columns of a projection from `column` on, for
  /// input row `source`; both index. Unchanged if there are no scales.
  mlir::Value apply(int64_t projection, mlir::Value sums, mlir::Value source,
                    mlir::Value column);

private:
  /// Address of the scales of a row of weights: a byte offset from an address
  /// that rows share where they can.
  struct ElementRow {
    mlir::Value address;
    int64_t bytes;
  };
  /// Rows per projection.
  using ElementRows = llvm::SmallVector<llvm::SmallVector<ElementRow>>;
  ElementRows findElementRows(mlir::Value memref, mlir::Value first,
                              llvm::ArrayRef<int64_t> distances);

  mlir::Value addressOfColumn(mlir::Value memref, int64_t projection,
                              mlir::Value column);
  /// A column of the result (index) from a column of the tile (i32).
  mlir::Value getColumn(mlir::Value own);
  llvm::SmallVector<mlir::Value> getIndices(int64_t projection,
                                            mlir::Value column);
  /// Index of the scale within a row for part `part` of a k tile; i32.
  mlir::Value getNumber(moe::QuantAttr quant, mlir::Value step, int64_t part);
  /// Clamps the index for k tiles past the end of the row.
  mlir::Value limit(moe::QuantAttr quant, mlir::Value number);
  /// Loads scale `number` (i32) at an address plus `bytes`, as f32.
  mlir::Value load(mlir::Type type, mlir::Value address, mlir::Value number,
                   int64_t bytes = 0);
  mlir::Value loadByte(mlir::Value address);
  /// Loads the scale at an address, as f32.
  mlir::Value loadAt(mlir::Type type, mlir::Value address);
  /// The scale of a whole row, or tensor, of the weights.
  mlir::Value loadRowScale(int64_t projection, mlir::Value column);
  mlir::Value loadGlobalScale(int64_t projection);
  mlir::Value getElementNumber(mlir::Value element);
  /// Converts a factor to the form in which elements are multiplied.
  mlir::Value makeFactor(mlir::Value value);

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  tile::ContractOp op;
  const sm80::Contract &shape;
  Float8 floats;
  mlir::Value group, firstColumn;
  /// Addresses of scales.
  llvm::SmallVector<mlir::Value> rows;
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> columns;
  /// Distance in bytes from a scale to its minimum; null if there are none.
  mlir::Value toMinima;
  ElementRows elementScales, zeroPoints;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80SCALES_H
