//===- ContractTile.h - dot products in registers ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETOVECTOR_CONTRACTTILE_H
#define MOEC_LIB_CONVERSION_TILETOVECTOR_CONTRACTTILE_H

#include "Emit.h"

namespace moec {

/// A register tile of the CPU gemm: dot products of a few input rows with a few
/// weight rows.
///
/// Both operands are read along their contiguous dimension, so that a dot
/// product may take its terms in any order that is equal for both. bf16 uses
/// that: the even elements of a vector of pairs become f32 by a shift and the
/// odd ones by a mask, without lane crossing. Lane l of an accumulator sums the
/// terms of its residue class in order; the lanes are added last, by a fixed
/// tree.
class ContractTile {
public:
  using Index = llvm::SmallVector<mlir::Value, 3>;

  /// `turn`: elements along K per iteration of the loop, a multiple of
  /// `getStep`.
  ContractTile(KernelEmitter &emitter, mlir::Value input, mlir::Value weight,
               int64_t lanes, int64_t turn);

  /// Elements of a row, of that type, per step.
  static int64_t getStep(mlir::Type element, int64_t lanes);

  /// The dot products of each of `inputRows` with each of `weightRows` (leading
  /// indices of the memrefs), as vectors of 4 adjacent columns: result `r *
  /// columns / 4 + q` has columns `4 q .. 4 q + 3` of row r. The number of
  /// weight rows is a multiple of 4. Prefetches the elements of `nextRows`,
  /// which the next tile will read.
  llvm::SmallVector<mlir::Value> emit(llvm::ArrayRef<Index> inputRows,
                                      llvm::ArrayRef<Index> weightRows,
                                      llvm::ArrayRef<Index> nextRows);

private:
  /// f32 vectors of one step: one, or two for bf16.
  using Parts = llvm::SmallVector<mlir::Value, 2>;

  Parts load(mlir::Value memref, const Index &row, mlir::Value k, int64_t skip);
  llvm::SmallVector<mlir::Value> step(llvm::ArrayRef<Index> inputRows,
                                      llvm::ArrayRef<Index> weightRows,
                                      mlir::ValueRange sums, mlir::Value k,
                                      int64_t skip);
  llvm::SmallVector<mlir::Value> shortRows(llvm::ArrayRef<Index> inputRows,
                                           llvm::ArrayRef<Index> weightRows,
                                           mlir::ValueRange sums);
  llvm::SmallVector<mlir::Value> multiply(llvm::ArrayRef<Parts> inputs,
                                          llvm::ArrayRef<Parts> weights,
                                          mlir::ValueRange sums);
  mlir::Value sumLanes(mlir::ValueRange four);
  llvm::SmallVector<mlir::Value> sumAll(mlir::ValueRange sums);

  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value input, weight;
  mlir::Type element;
  int64_t depth, lanes, turn, stepSize;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETOVECTOR_CONTRACTTILE_H
