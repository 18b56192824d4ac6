//===- Sm80Products.h - a tile of products on a CTA -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80PRODUCTS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80PRODUCTS_H

#include "../Float8.h"
#include "../ThreadEmitter.h"
#include "moec/Analysis/Sm80.h"

namespace moec {

/// The dot products of `m` input rows with the weight rows of a CTA.
///
/// Three buffers of shared memory hold `k` elements of each row; while one is
/// multiplied, copies fill the others. 16-bit elements are multiplied by tensor
/// cores, a warp for a quarter of the tile; f32 by single FMAs, a thread for
/// every 8th row and every 16th column. Where rows are not on multiples of 16
/// bytes, elements are copied one by one.
///
/// e4m3 becomes f16 on its way from shared memory to tensor cores. A step is a
/// block of the scales: its sums, times their scales, are added to those of the
/// steps before.
class Sm80Products {
public:
  /// Calls made once per CTA, with what does not depend on the rows:
  /// `weightAddress(r)` is the address of weight row r of the CTA, `r` being an
  /// i32 for the thread and a whole plane for the compiler: r = plane * n +
  /// column.
  using RowAddress =
      llvm::function_ref<mlir::Value(int64_t plane, mlir::Value row)>;

  /// e4m3: `weightScales` are the addresses of the weights' scales, one per
  /// plane.
  Sm80Products(ThreadEmitter &emitter, const sm80::Contract &shape,
               mlir::Type element, Float8 floats, RowAddress weightAddress,
               mlir::ValueRange weightScales);

  /// Multiplies, and leaves the sums in shared memory, where `loadSums` finds
  /// them after it. `inputAddress(0, r)` is the address of input row r of the
  /// tile, `scaleAddress(0, r)` that of its scales (e4m3). `release` has to
  /// follow before the next call.
  void emit(RowAddress inputAddress, RowAddress scaleAddress);
  /// `lanes` neighbours of a row of sums; row and column are of type index.
  mlir::Value loadSums(int64_t plane, mlir::Value row, mlir::Value column,
                       int64_t lanes);
  void release() { emitter.barrier(); }

private:
  /// Of a tensor core's product.
  static constexpr int64_t kCoreRows = 16;
  static constexpr int64_t kCoreColumns = 8;
  static constexpr int64_t kCoreDepth = 16;
  /// Elements of the sums of such a product that one thread holds.
  static constexpr int64_t kCoreSums = 4;

  /// The pieces of a step that a thread copies: where they come from, and how
  /// far behind the first one they go.
  struct Copies {
    llvm::SmallVector<mlir::Value> from;
    llvm::SmallVector<int64_t> to;
  };

  Copies makeCopies(int64_t firstRow, int64_t planes, int64_t rows,
                    RowAddress address);
  /// Copies step `step` into the buffer at `stage`; both are i32.
  void copyStep(mlir::Value step, mlir::Value stage);
  void copyChunks(const Copies &copies, mlir::Value step, mlir::Value stage);
  mlir::Value loadElements(mlir::Value from, mlir::Value first);
  mlir::Value nextStage(mlir::Value stage);

  llvm::SmallVector<mlir::Value>
  multiplyStep(mlir::Value step, mlir::Value stage, mlir::ValueRange sums);
  /// Where the lane's first rows of matrices lie in a stage: of inputs, of
  /// weights.
  std::pair<mlir::Value, mlir::Value> findMatrices(mlir::Value stage);
  llvm::SmallVector<mlir::Value> multiplyOnCores(mlir::Value stage,
                                                 mlir::ValueRange sums);
  /// e4m3, in Sm80Float8.cpp.
  void findScales(RowAddress scaleAddress);
  llvm::SmallVector<mlir::Value>
  multiplyScaled(mlir::Value step, mlir::Value stage, mlir::ValueRange sums);
  llvm::SmallVector<mlir::Value> multiplyFloat8(mlir::Value stage);
  llvm::SmallVector<mlir::Value>
  addFloat8(mlir::Value inputs, mlir::Value weights, mlir::ValueRange before);
  llvm::SmallVector<mlir::Value> multiplyByFma(mlir::Value stage,
                                               mlir::ValueRange sums);
  int64_t getNumSums() const;
  void storeSums(mlir::ValueRange sums);
  mlir::Value sumAddress(int64_t plane, mlir::Value row, mlir::Value column);

  /// Columns of one plane that a warp multiplies, and its rows.
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
  mlir::Type element;
  mlir::Value shared;
  /// The row and the chunk of it that the thread copies first.
  mlir::Value copyRow, copyChunk;
  /// Of the warp: its row and column in the tile of warps.
  mlir::Value warpRow, warpColumn;
  /// FMA: the thread's first row and column.
  mlir::Value threadRow, threadColumn;
  Copies inputCopies, weightCopies;
  /// e4m3: where the scales of the planes lie, and those of the thread's rows
  /// in the order of its sums.
  Float8 floats;
  llvm::SmallVector<mlir::Value> weightScales, inputScales;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80PRODUCTS_H
