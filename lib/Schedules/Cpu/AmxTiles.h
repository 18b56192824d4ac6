//===- AmxTiles.h - products in AMX tile registers --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_CPU_AMXTILES_H
#define MOEC_LIB_SCHEDULES_CPU_AMXTILES_H

#include "Emit.h"

namespace moec {

/// Products of input rows with weight rows, of bf16 or int8, in AMX tile
/// registers of 16 rows of 64 bytes.
///
/// Weight rows are the first operand, straight from checkpoint layout: an
/// instruction takes as many clocks as that operand has rows, so that few input
/// rows cost no more than their weights. The second operand needs its rows in
/// words of 32 bits along K, input rows adjacent. It is copied to that order
/// once per CTA, padded to whole tiles with copies of the last row. Sums come
/// out transposed, and are transposed back.
///
///     weight rows x K   *   K x input rows   =   weight rows x input rows
class AmxTiles {
public:
  using Indices = llvm::SmallVector<mlir::Value, 3>;

  /// `rows`: the most input rows at a time, a multiple of 16. `unrolledK`:
  /// elements along K per iteration of the loop.
  AmxTiles(KernelEmitter &emitter, mlir::Value input, mlir::Value weight,
           int64_t rows, int64_t unrolledK);

  /// Sets the tile registers for input tiles of 1 or of 16 rows.
  void configure(int64_t inputRows);
  /// The CTA's last instruction about tiles.
  void release();

  /// Copies `count` input rows, numbered by `getRow`.
  void packRows(Index count, llvm::function_ref<Index(Index)> getRow);

  /// Stores dot products with 16 weight rows from each of `weightRows` on
  /// (leading indices; `stride` rows apart). `store(i, j, r, sums)` has the 16
  /// columns of weight tile i for row r of input tile j.
  using Store = llvm::function_ref<void(int64_t, int64_t, int64_t, F32)>;
  /// The rows are those of `numInputTiles` packed tiles (1 or 2) from
  /// `inputTile` on.
  void multiply(Index inputTile, int64_t numInputTiles,
                llvm::ArrayRef<Indices> weightRows, int64_t stride,
                Store store);
  /// The row is one input row, a tile of one row as it lies in memory.
  void multiplyRow(Index inputRow, llvm::ArrayRef<Indices> weightRows,
                   int64_t stride, Store store);

private:
  /// Elements between neighbours, by dimension.
  llvm::SmallVector<Index> getStrides(mlir::Value memref);
  /// The address of an element, as llvm.ptr.
  mlir::Value getAddress(mlir::Value memref, mlir::ValueRange indices);
  void call(llvm::StringRef intrinsic, mlir::ValueRange operands);
  mlir::Value tileNumber(int64_t number);
  mlir::Value bytes(int64_t count);
  /// Adds up products in tile registers. Rows of input tiles are
  /// `inputRowBytes` apart; `getInput(j, k)` is the first of tile j from K = k
  /// on.
  void addProducts(int64_t numInputTiles, int64_t inputRowBytes,
                   llvm::function_ref<mlir::Value(int64_t, Index)> getInput,
                   llvm::ArrayRef<Indices> weightRows, int64_t stride);
  /// Stores the sums of weight tile i and input tile j to `sums`.
  void storeSums(int64_t i, int64_t j, int64_t rowBytes);
  /// The 16 values from the start of a row of `sums` on, as stored.
  mlir::Value loadSums(int64_t row);
  F32 convertSums(mlir::Value values);
  /// The transpose of 16 vectors of 16 elements.
  llvm::SmallVector<mlir::Value>
  transpose(llvm::SmallVector<mlir::Value> vectors);

  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value input, weight;
  mlir::Type element;
  int64_t sizeK, step, unrolledK;
  /// `tiles x words along K x 16 rows` of i32.
  mlir::Value packed;
  /// One tile of sums: f32, or i32 of int8.
  mlir::Value sums;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_CPU_AMXTILES_H
