//===- Products.h - a tile of products on a CTA -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM80GEMM_PRODUCTS_H
#define MOEC_LIB_SCHEDULES_SM80GEMM_PRODUCTS_H

#include "KernelBuilder/OperandDecoder.h"
#include "Scales.h"

namespace moec {

/// Mainloop of sm80.gemm: the dot products of `m` input rows with the
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
  /// CTA. The row differs per thread, the projection is a constant.
  using RowAddress =
      llvm::function_ref<mlir::Value(int64_t projection, I32 row)>;

  Sm80Products(ThreadEmitter &emitter, tile::GemmOp op,
               const sm80::GemmShape &shape, Float8 floats,
               RowAddress weightAddress, Sm80Scales &scales);

  /// Multiplies, and leaves the sums in shared memory for `loadSums`.
  /// `inputAddress(0, r)` is the address of input row r of the tile,
  /// `scaleAddress(0, r)` that of its scales, if those are applied inside the
  /// loop. `release` must follow before the next call.
  void emit(RowAddress inputAddress, RowAddress scaleAddress);
  /// `lanes` adjacent elements of a row of sums.
  F32 loadSums(int64_t projection, Index row, Index column, int64_t lanes);
  void release() { emitter.barrier(); }

private:
  /// M and N of mma.sync.
  static constexpr int64_t kCoreRows = 16;
  static constexpr int64_t kCoreColumns = 8;
  static constexpr int64_t kCoreK = 16;
  /// Accumulators per thread of one mma.
  static constexpr int64_t kCoreSums = 4;

  using Sums = llvm::SmallVector<F32>;

  /// An operand: its elements, and the chunks of a k tile that a thread copies.
  struct Operand {
    sm80::GemmShape::Rows rows;
    /// Offset in a stage, in rows.
    int64_t firstRow;
    OperandDecoder decoder;
    /// The thread's first row to copy, and its chunk in that row.
    I32 copyRow, copyChunk;
    /// Sources of the chunks, and offsets of their destinations from the first.
    llvm::SmallVector<mlir::Value> from;
    llvm::SmallVector<int64_t> to;
  };

  Operand makeOperand(const sm80::GemmShape::Rows &rows, int64_t firstRow,
                      moe::QuantAttr quant, Float8 floats,
                      OperandDecoder::Side side);
  /// Bytes of some adjacent elements.
  I32 getBytes(const Operand &operand, I32 elements);
  /// Gives `scales` the rows of weights of a projection that the thread
  /// decodes.
  void findElementRows();
  void makeCopies(Operand &operand, int64_t projections, int64_t rows,
                  RowAddress address);
  /// Address of a row of an operand in a stage, plus `bytes` (null: 0).
  mlir::Value stageAddress(I32 stage, const Operand &operand, I32 row,
                           I32 bytes = {});
  /// Copies a k tile into the buffer at the offset `stage`.
  void copyTile(I32 kTile, I32 stage);
  void copyChunks(const Operand &operand, I32 kTile, I32 stage);
  mlir::Value loadElements(const Operand &operand, mlir::Value from, I32 first);
  I32 nextStage(I32 stage);

  Sums multiplyTile(I32 kTile, I32 stage, Sums sums);
  /// Multiplies part `part` of a k tile; all of it, if scales are not applied
  /// inside the loop.
  Sums multiplyPart(I32 kTile, I32 stage, int64_t part, Sums sums);
  /// Addresses in a stage at which the lane begins to read inputs and weights:
  /// its rows of matrices, or its chunks.
  struct StageRows {
    mlir::Value inputs, weights;
  };
  StageRows findRows(I32 stage, bool asMatrices);
  Sums multiplyOnCores(I32 stage, Sums sums);
  /// Implemented in Decoded.cpp.
  Sums multiplyDecoded(I32 kTile, I32 stage, int64_t part, Sums sums);
  /// Range of the mmas whose elements are decoded at once.
  struct Halves {
    int64_t begin, end;
  };
  /// `firstElement`: index along K of the first element.
  Sums addDecoded(I32 firstElement, StageRows rows, Halves halves, Sums sums);
  /// Sums the elements of a block of rows.
  void addRow(int64_t block, mlir::ValueRange elements, Sums &sums);
  /// Adds an mma to `kCoreSums` of the sums, from `first` on.
  void addProduct(mlir::ValueRange a, mlir::ValueRange w, Sums &sums,
                  int64_t first);
  Sums multiplyByFma(I32 kTile, I32 stage, int64_t part, Sums sums);
  int64_t getNumSums() const;
  /// Number of sums of rows' elements, for minima, that follow the accumulators
  /// of a part.
  int64_t getNumRowSums() const;
  /// The sum of elements of each of the thread's rows.
  Sums getRowSums(llvm::ArrayRef<F32> sums) const;
  /// Location of the thread's accumulator `i`: its projection, and its index
  /// among the thread's rows and among its columns of a projection.
  Sm80Scales::SumIndex getIndex(int64_t i) const;
  /// The thread's first row and column of the tile, and the distances of its
  /// others.
  I32 getFirstRow();
  I32 getFirstColumn();
  int64_t getRowDistance(int64_t row) const;
  int64_t getColumnDistance(int64_t column) const;
  int64_t getNumThreadRows() const;
  int64_t getNumThreadColumns() const;
  void storeSums(llvm::ArrayRef<F32> sums);
  mlir::Value sumAddress(int64_t projection, I32 row, I32 column);

  /// Columns of one projection, and rows, per warp.
  int64_t getWarpColumns() const {
    return shape.n / sm80::GemmShape::kWarpColumns;
  }
  int64_t getWarpRows() const { return shape.m / sm80::GemmShape::kWarpRows; }

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm80::GemmShape shape;
  Sm80Scales &scales;
  /// The type that tensor cores or FMAs multiply.
  mlir::Type element;
  mlir::Value shared;
  Operand input, weight;
  /// The warp's row and column among the CTA's warps.
  I32 warpRow, warpColumn;
  /// FMA: the thread's first row and column.
  I32 threadRow, threadColumn;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM80GEMM_PRODUCTS_H
