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

/// Applies the scales of a tile of products: those of few elements, and zero
/// points, to elements of weights, those of parts of a row inside the loop, to
/// the sums of a part, and those of whole rows and matrices behind it.
class Sm80Scales {
public:
  /// `group` leads the weights' indices, null for none; the tile's columns
  /// begin at `firstColumn`.
  Sm80Scales(ThreadEmitter &emitter, tile::ContractOp op,
             const sm80::Contract &shape, Float8 floats, mlir::Value group,
             mlir::Value firstColumn);

  //===--- On elements, in Sm80ElementScales.cpp ---===//

  /// Finds the scales of the thread's rows of weights, which are columns of the
  /// tile: the first one (i32), and how far on all are.
  void findElementRows(mlir::Value first, llvm::ArrayRef<int64_t> distances);
  /// Those of the rows of a projection, for the elements that the thread has of
  /// `kDecodedColumns`, or, where FMAs multiply, of 16, from contracted
  /// `element` (i32) on. Nothing where there are none.
  llvm::SmallVector<ElementFactors> loadForElements(int64_t projection,
                                                    mlir::Value element);

  //===--- Inside the loop ---===//

  /// Where a sum of the thread belongs: its projection, and its number among
  /// the thread's rows and among its columns of a projection.
  struct Place {
    int64_t projection, row, column;
  };
  /// Scales of a part: of the thread's rows, and per projection of its columns,
  /// or one for all of them. Empty where they are not applied here.
  struct Factors {
    llvm::SmallVector<mlir::Value> rows;
    llvm::SmallVector<llvm::SmallVector<mlir::Value>> columns;
    /// Minima of columns, negative.
    llvm::SmallVector<llvm::SmallVector<mlir::Value>> minima;
  };
  bool hasRowsInLoop() const { return shape.scales.input == ScaleTime::InLoop; }
  bool hasColumnsInLoop() const {
    return shape.scales.weight == ScaleTime::InLoop;
  }
  /// Finds the scales of the thread's columns of the tile (i32), which have
  /// some of their own.
  void findColumns(mlir::ValueRange columns);
  /// Where the scales of the thread's rows begin.
  void setRows(mlir::ValueRange addresses) {
    rows.assign(addresses.begin(), addresses.end());
  }
  /// Loads the scales of part `part` of step `step` (i32).
  Factors load(mlir::Value step, int64_t part);
  /// `sums` and those of a part, times their scales; `rowSums` are those of the
  /// elements of each row of the thread, where there are minima.
  llvm::SmallVector<mlir::Value>
  add(const Factors &factors, mlir::ValueRange products,
      mlir::ValueRange rowSums, mlir::ValueRange sums,
      llvm::function_ref<Place(int64_t)> placeOf);

  //===--- Behind it ---===//

  /// The sums of `lanes` columns of a projection from `column` on with the row
  /// of the input that is `source`; indices. Unchanged if there are no scales.
  mlir::Value apply(int64_t projection, mlir::Value sums, mlir::Value source,
                    mlir::Value column);

private:
  /// Where the scales of a row of weights begin: bytes behind an address, which
  /// rows share where they can.
  struct ElementRow {
    mlir::Value address;
    int64_t bytes;
  };
  /// Rows of each projection.
  using ElementRows = llvm::SmallVector<llvm::SmallVector<ElementRow>>;
  ElementRows findElementRows(mlir::Value memref, mlir::Value first,
                              llvm::ArrayRef<int64_t> distances);

  mlir::Value addressOfColumn(mlir::Value memref, int64_t projection,
                              mlir::Value column);
  /// A column of the result (index) from that of the tile (i32).
  mlir::Value getColumn(mlir::Value own);
  llvm::SmallVector<mlir::Value> getIndices(int64_t projection,
                                            mlir::Value column);
  /// The number of the scale of a row that part `part` of a step has; i32.
  mlir::Value getNumber(moe::QuantAttr quant, mlir::Value step, int64_t part);
  /// The last number instead of what steps have behind the row's end.
  mlir::Value limit(moe::QuantAttr quant, mlir::Value number);
  /// Scale `number` (i32) behind an address and `bytes`, f32.
  mlir::Value load(mlir::Type type, mlir::Value address, mlir::Value number,
                   int64_t bytes = 0);
  mlir::Value loadByte(mlir::Value address);
  /// The scale at an address, f32.
  mlir::Value loadAt(mlir::Type type, mlir::Value address);
  /// Scale of a whole row, or tensor, of the weights.
  mlir::Value loadRowScale(int64_t projection, mlir::Value column);
  mlir::Value loadGlobalScale(int64_t projection);
  mlir::Value getElementNumber(mlir::Value element);
  /// As elements are multiplied.
  mlir::Value makeFactor(mlir::Value value);

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  tile::ContractOp op;
  const sm80::Contract &shape;
  Float8 floats;
  mlir::Value group, firstColumn;
  /// Addresses.
  llvm::SmallVector<mlir::Value> rows;
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> columns;
  /// Bytes from a scale to its minimum; null where there are none.
  mlir::Value toMinima;
  ElementRows elementScales, zeroPoints;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80SCALES_H
