//===- Sm80Products.h - a tile of products on a CTA -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80PRODUCTS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80PRODUCTS_H

#include "../../OperandDecoder.h"
#include "Sm80Scales.h"

namespace moec {

/// The dot products of `m` input rows with the weight rows of a CTA.
///
/// Three buffers of shared memory hold `k` elements of each row; while one is
/// multiplied, copies fill the others. 16-bit elements are multiplied by tensor
/// cores, a warp for a quarter of the tile; f32 by single FMAs, a thread for
/// every 8th row and every 16th column. Where rows are not on multiples of 16
/// bytes, elements are copied one by one.
///
/// Quantized elements become the compute type on their way from shared memory.
/// With scales inside the loop, the sums of each part of a step, times their
/// scales, are added to those of the parts before.
class Sm80Products {
public:
  /// Calls made once per CTA, with what does not depend on the rows:
  /// `weightAddress(projection, row)` is the address of a weight row of the
  /// CTA: `row` is an i32 of the thread, the projection a number that the
  /// compiler knows.
  using RowAddress =
      llvm::function_ref<mlir::Value(int64_t projection, mlir::Value row)>;

  Sm80Products(ThreadEmitter &emitter, tile::ContractOp op,
               const sm80::Contract &shape, Float8 floats,
               RowAddress weightAddress, Sm80Scales &scales);

  /// Multiplies, and leaves the sums in shared memory, where `loadSums` finds
  /// them after it. `inputAddress(0, r)` is the address of input row r of the
  /// tile, `scaleAddress(0, r)` that of its scales, where those are applied
  /// inside the loop. `release` has to follow before the next call.
  void emit(RowAddress inputAddress, RowAddress scaleAddress);
  /// `lanes` neighbours of a row of sums; row and column are of type index.
  mlir::Value loadSums(int64_t projection, mlir::Value row, mlir::Value column,
                       int64_t lanes);
  void release() { emitter.barrier(); }

private:
  /// Sizes of a tensor core's product.
  static constexpr int64_t kCoreRows = 16;
  static constexpr int64_t kCoreColumns = 8;
  static constexpr int64_t kCoreDepth = 16;
  /// Elements of the sums of such a product that one thread holds.
  static constexpr int64_t kCoreSums = 4;

  /// An operand: its elements, and the pieces of a step that a thread copies.
  struct Operand {
    sm80::Contract::Rows rows;
    /// The first of them in a stage.
    int64_t firstRow;
    OperandDecoder decoder;
    /// The row and the chunk of it that the thread copies first.
    mlir::Value copyRow, copyChunk;
    /// Where the pieces come from, and how far behind the first one they go.
    llvm::SmallVector<mlir::Value> from;
    llvm::SmallVector<int64_t> to;
  };

  Operand makeOperand(const sm80::Contract::Rows &rows, int64_t firstRow,
                      moe::QuantAttr quant, Float8 floats,
                      OperandDecoder::Side side);
  /// Bytes of `elements` (i32) neighbours.
  mlir::Value getBytes(const Operand &operand, mlir::Value elements);
  /// Tells `scales` which rows of weights of a projection the thread decodes.
  void findElementRows();
  void makeCopies(Operand &operand, int64_t projections, int64_t rows,
                  RowAddress address);
  /// Where a row of an operand lies in a stage, and `bytes` on (null: 0).
  mlir::Value stageAddress(mlir::Value stage, const Operand &operand,
                           mlir::Value row, mlir::Value bytes = {});
  /// Copies step `step` into the buffer at `stage`; both are i32.
  void copyStep(mlir::Value step, mlir::Value stage);
  void copyChunks(const Operand &operand, mlir::Value step, mlir::Value stage);
  mlir::Value loadElements(const Operand &operand, mlir::Value from,
                           mlir::Value first);
  mlir::Value nextStage(mlir::Value stage);

  llvm::SmallVector<mlir::Value>
  multiplyStep(mlir::Value step, mlir::Value stage, mlir::ValueRange sums);
  /// The elements of part `part` of a step; all of it, where scales are not
  /// applied inside the loop.
  llvm::SmallVector<mlir::Value> multiplyPart(mlir::Value step,
                                              mlir::Value stage, int64_t part,
                                              mlir::ValueRange sums);
  /// Where the lane begins to read in a stage, of inputs and of weights: its
  /// rows of matrices, or its pieces.
  std::pair<mlir::Value, mlir::Value> findRows(mlir::Value stage,
                                               bool asMatrices);
  llvm::SmallVector<mlir::Value> multiplyOnCores(mlir::Value stage,
                                                 mlir::ValueRange sums);
  /// In Sm80Decoded.cpp.
  llvm::SmallVector<mlir::Value> multiplyDecoded(mlir::Value step,
                                                 mlir::Value stage,
                                                 int64_t part,
                                                 mlir::ValueRange sums);
  /// Which of the products of elements that are decoded at once.
  struct Halves {
    int64_t begin, end;
  };
  /// `firstElement` (i32) is the first contracted one.
  llvm::SmallVector<mlir::Value> addDecoded(mlir::Value firstElement,
                                            mlir::Value inputs,
                                            mlir::Value weights, Halves halves,
                                            mlir::ValueRange before);
  /// Adds up the elements of a block of rows.
  void addRow(int64_t block, llvm::ArrayRef<mlir::Value> elements,
              llvm::MutableArrayRef<mlir::Value> sums);
  llvm::SmallVector<mlir::Value> multiplyByFma(mlir::Value step,
                                               mlir::Value stage, int64_t part,
                                               mlir::ValueRange sums);
  int64_t getNumSums() const;
  /// Sums of a part that follow those: of the elements of rows, for minima.
  int64_t getNumRowSums() const;
  /// The one of each of the thread's rows.
  llvm::SmallVector<mlir::Value> getRowSums(mlir::ValueRange sums) const;
  /// Where the thread's sum `i` belongs: its projection, and its number among
  /// the thread's rows and among the thread's columns of a projection.
  Sm80Scales::Place getPlace(int64_t i) const;
  /// The thread's first row and column of the tile (i32), and how far on its
  /// others are.
  mlir::Value getFirstRow();
  mlir::Value getFirstColumn();
  int64_t getRowDistance(int64_t row) const;
  int64_t getColumnDistance(int64_t column) const;
  int64_t getNumThreadRows() const;
  int64_t getNumThreadColumns() const;
  void storeSums(mlir::ValueRange sums);
  mlir::Value sumAddress(int64_t projection, mlir::Value row,
                         mlir::Value column);

  /// Columns of one projection that a warp multiplies, and its rows.
  int64_t getWarpColumns() const {
    return shape.n / sm80::Contract::kWarpColumns;
  }
  int64_t getWarpRows() const { return shape.m / sm80::Contract::kWarpRows; }
  mlir::Value addI32(mlir::Value x, mlir::Value y) {
    return b.createOrFold<mlir::arith::AddIOp>(x, y);
  }

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm80::Contract shape;
  Sm80Scales &scales;
  /// What tensor cores, or FMAs, multiply.
  mlir::Type element;
  mlir::Value shared;
  Operand input, weight;
  /// The warp's row and column in the tile of warps.
  mlir::Value warpRow, warpColumn;
  /// FMA: the thread's first row and column.
  mlir::Value threadRow, threadColumn;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80PRODUCTS_H
