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

/// Mainloop of sm80.contract: the dot products of `m` input rows with the
/// weight rows of a CTA.
///
/// Three pipeline stages in shared memory hold `k` elements of each row; while
/// one is multiplied, copies fill the others. 16-bit elements are multiplied by
/// tensor cores, a quarter of the tile per warp; f32 by FMAs, with every 8th
/// row and every 16th column per thread. If rows are not aligned to 16 bytes,
/// elements are copied one by one.
///
/// Quantized elements are converted to the compute type as they are read from
/// shared memory. With scales inside the loop, the sums of each part of a k
/// tile, times their scales, are added to those of the parts before.
class Sm80Products {
public:
  /// Called once per CTA, for addresses that do not depend on the input rows:
  /// `weightAddress(projection, row)` is the address of a weight row of the
  /// CTA. `row` is a thread's i32, the projection a constant.
  using RowAddress =
      llvm::function_ref<mlir::Value(int64_t projection, mlir::Value row)>;

  Sm80Products(ThreadEmitter &emitter, tile::ContractOp op,
               const sm80::Contract &shape, Float8 floats,
               RowAddress weightAddress, Sm80Scales &scales);

  /// Multiplies, and leaves the sums in shared memory for `loadSums`.
  /// `inputAddress(0, r)` is the address of input row r of the tile,
  /// `scaleAddress(0, r)` that of its scales, if those are applied inside the
  /// loop. `release` must follow before the next call.
  void emit(RowAddress inputAddress, RowAddress scaleAddress);
  /// `lanes` adjacent elements of a row of sums; row and column are of type
  /// index.
  mlir::Value loadSums(int64_t projection, mlir::Value row, mlir::Value column,
                       int64_t lanes);
  void release() { emitter.barrier(); }

private:
  /// M and N of mma.sync.
  static constexpr int64_t kCoreRows = 16;
  static constexpr int64_t kCoreColumns = 8;
  static constexpr int64_t kCoreDepth = 16;
  /// Accumulators per thread of one mma.
  static constexpr int64_t kCoreSums = 4;

  /// An operand: its elements, and the chunks of a k tile that a thread copies.
  struct Operand {
    sm80::Contract::Rows rows;
    /// Offset in a stage, in rows.
    int64_t firstRow;
    OperandDecoder decoder;
    /// The thread's first row to copy, and its chunk in that row.
    mlir::Value copyRow, copyChunk;
    /// Sources of the chunks, and offsets of their destinations from the first.
    llvm::SmallVector<mlir::Value> from;
    llvm::SmallVector<int64_t> to;
  };

  Operand makeOperand(const sm80::Contract::Rows &rows, int64_t firstRow,
                      moe::QuantAttr quant, Float8 floats,
                      OperandDecoder::Side side);
  /// Bytes of `elements` (i32) adjacent elements.
  mlir::Value getBytes(const Operand &operand, mlir::Value elements);
  /// Gives `scales` the rows of weights of a projection that the thread
  /// decodes.
  void findElementRows();
  void makeCopies(Operand &operand, int64_t projections, int64_t rows,
                  RowAddress address);
  /// Address of a row of an operand in a stage, plus `bytes` (null: 0).
  mlir::Value stageAddress(mlir::Value stage, const Operand &operand,
                           mlir::Value row, mlir::Value bytes = {});
  /// Copies k tile `step` into the buffer at `stage`; both are i32.
  void copyStep(mlir::Value step, mlir::Value stage);
  void copyChunks(const Operand &operand, mlir::Value step, mlir::Value stage);
  mlir::Value loadElements(const Operand &operand, mlir::Value from,
                           mlir::Value first);
  mlir::Value nextStage(mlir::Value stage);

  llvm::SmallVector<mlir::Value>
  multiplyStep(mlir::Value step, mlir::Value stage, mlir::ValueRange sums);
  /// Multiplies part `part` of a k tile; all of it, if scales are not applied
  /// inside the loop.
  llvm::SmallVector<mlir::Value> multiplyPart(mlir::Value step,
                                              mlir::Value stage, int64_t part,
                                              mlir::ValueRange sums);
  /// Addresses in a stage at which the lane begins to read inputs and weights:
  /// its rows of matrices, or its chunks.
  std::pair<mlir::Value, mlir::Value> findRows(mlir::Value stage,
                                               bool asMatrices);
  llvm::SmallVector<mlir::Value> multiplyOnCores(mlir::Value stage,
                                                 mlir::ValueRange sums);
  /// Implemented in Sm80Decoded.cpp.
  llvm::SmallVector<mlir::Value> multiplyDecoded(mlir::Value step,
                                                 mlir::Value stage,
                                                 int64_t part,
                                                 mlir::ValueRange sums);
  /// Range of the mmas whose elements are decoded at once.
  struct Halves {
    int64_t begin, end;
  };
  /// `firstElement` (i32): index along K of the first element.
  llvm::SmallVector<mlir::Value> addDecoded(mlir::Value firstElement,
                                            mlir::Value inputs,
                                            mlir::Value weights, Halves halves,
                                            mlir::ValueRange before);
  /// Sums the elements of a block of rows.
  void addRow(int64_t block, llvm::ArrayRef<mlir::Value> elements,
              llvm::MutableArrayRef<mlir::Value> sums);
  llvm::SmallVector<mlir::Value> multiplyByFma(mlir::Value step,
                                               mlir::Value stage, int64_t part,
                                               mlir::ValueRange sums);
  int64_t getNumSums() const;
  /// Number of sums of rows' elements, for minima, that follow the accumulators
  /// of a part.
  int64_t getNumRowSums() const;
  /// The sum of elements of each of the thread's rows.
  llvm::SmallVector<mlir::Value> getRowSums(mlir::ValueRange sums) const;
  /// Location of the thread's accumulator `i`: its projection, and its index
  /// among the thread's rows and among its columns of a projection.
  Sm80Scales::Place getPlace(int64_t i) const;
  /// The thread's first row and column of the tile (i32), and the distances of
  /// its others.
  mlir::Value getFirstRow();
  mlir::Value getFirstColumn();
  int64_t getRowDistance(int64_t row) const;
  int64_t getColumnDistance(int64_t column) const;
  int64_t getNumThreadRows() const;
  int64_t getNumThreadColumns() const;
  void storeSums(mlir::ValueRange sums);
  mlir::Value sumAddress(int64_t projection, mlir::Value row,
                         mlir::Value column);

  /// Columns of one projection, and rows, per warp.
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
  /// The type that tensor cores or FMAs multiply.
  mlir::Type element;
  mlir::Value shared;
  Operand input, weight;
  /// The warp's row and column among the CTA's warps.
  mlir::Value warpRow, warpColumn;
  /// FMA: the thread's first row and column.
  mlir::Value threadRow, threadColumn;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80PRODUCTS_H
