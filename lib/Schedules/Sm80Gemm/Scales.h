//===- Scales.h - the scales of sm80.gemm -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM80GEMM_SCALES_H
#define MOEC_LIB_SCHEDULES_SM80GEMM_SCALES_H

#include "KernelBuilder/OperandDecoder.h"
#include "Shape.h"

namespace moec {

/// Applies the scales of a tile: scales of few elements, and zero points, to
/// elements of weights; scales of parts of a row to the sums of a part, inside
/// the loop; scales of whole rows and matrices after the loop.
class Sm80Scales {
public:
  /// `group`: leading index into the weights, null for none. The tile's columns
  /// begin at `firstColumn`.
  Sm80Scales(ThreadEmitter &emitter, tile::GemmOp op,
             const sm80::GemmShape &shape, Float8 floats, Index group,
             Index firstColumn);

  //===--- On elements, in ElementScales.cpp ---===//

  /// Locates the scales of the thread's rows of weights, which are columns of
  /// the tile: the first one, and the distances of all.
  void findElementRows(I32 first, llvm::ArrayRef<int64_t> distances);
  /// Scales and zero points of the rows of a projection, for the thread's
  /// elements among `kDecodedColumns` (among 16 with FMAs) from element
  /// `element` along K on. Empty if there are none.
  llvm::SmallVector<ElementFactors> loadForElements(int64_t projection,
                                                    I32 element);

  //===--- Inside the loop ---===//

  /// Index of a thread's sum: its projection, and its index among the thread's
  /// rows and among its columns of a projection.
  struct SumIndex {
    int64_t projection, row, column;
  };
  /// Scales of a part: of the thread's rows, and per projection of its columns,
  /// or one for all of them. Empty if not applied per part.
  struct Factors {
    llvm::SmallVector<F32> rows;
    llvm::SmallVector<llvm::SmallVector<F32>> columns;
    /// Negated minima of columns.
    llvm::SmallVector<llvm::SmallVector<F32>> minima;
  };
  bool hasRowsInLoop() const { return shape.scales.input == ScaleTime::InLoop; }
  bool hasColumnsInLoop() const {
    return shape.scales.weight == ScaleTime::InLoop;
  }
  /// Locates the scales of the thread's columns of the tile, if columns have
  /// their own.
  void findColumns(llvm::ArrayRef<I32> columns);
  /// Sets the addresses of the scales of the thread's rows.
  void setRows(mlir::ValueRange addresses) {
    rows.assign(addresses.begin(), addresses.end());
  }
  /// Loads the scales of part `part` of a k tile.
  Factors load(I32 kTile, int64_t part);
  /// `sums` plus those of a part, times their scales. `rowSums`: sums of the
  /// elements of each row of the thread, with minima.
  llvm::SmallVector<F32> add(const Factors &factors,
                             llvm::ArrayRef<F32> products,
                             llvm::ArrayRef<F32> rowSums,
                             llvm::ArrayRef<F32> sums,
                             llvm::function_ref<SumIndex(int64_t)> getIndex);

  //===--- After the loop ---===//

  /// Scales the sums of `lanes` columns of a projection from `column` on, for
  /// input row `source`. Unchanged if there are no scales.
  F32 apply(int64_t projection, F32 sums, Index source, Index column);

private:
  /// Address of the scales of a row of weights: a byte offset from an address
  /// that rows share where they can.
  struct ElementRow {
    mlir::Value address;
    int64_t bytes;
  };
  /// Rows per projection.
  using ElementRows = llvm::SmallVector<llvm::SmallVector<ElementRow>>;
  ElementRows findElementRows(mlir::Value memref, I32 first,
                              llvm::ArrayRef<int64_t> distances);

  mlir::Value addressOfColumn(mlir::Value memref, int64_t projection,
                              Index column);
  /// A column of the result from a column of the tile.
  Index getColumn(I32 own);
  llvm::SmallVector<mlir::Value> getIndices(int64_t projection, Index column);
  /// Index of the scale within a row for part `part` of a k tile.
  I32 getNumber(moe::QuantAttr quant, I32 kTile, int64_t part);
  /// Clamps the index for k tiles past the end of the row.
  I32 limit(moe::QuantAttr quant, I32 number);
  /// Loads scale `number` at an address plus `bytes`.
  F32 load(mlir::Type type, mlir::Value address, I32 number, int64_t bytes = 0);
  /// Loads the scale at an address.
  F32 loadAt(mlir::Type type, mlir::Value address);
  /// The scale of a whole row, or tensor, of the weights.
  F32 loadRowScale(int64_t projection, Index column);
  F32 loadGlobalScale(int64_t projection);
  I32 getElementNumber(I32 element);
  /// Converts a factor to the form in which elements are multiplied.
  mlir::Value makeFactor(F32 value);

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  tile::GemmOp op;
  const sm80::GemmShape &shape;
  Float8 floats;
  Index group, firstColumn;
  /// Addresses of scales.
  llvm::SmallVector<mlir::Value> rows;
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> columns;
  /// Distance in bytes from a scale to its minimum; null if there are none.
  I64 toMinima;
  ElementRows elementScales, zeroPoints;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM80GEMM_SCALES_H
