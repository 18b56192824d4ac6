//===- GemmTile.h - dot products in registers -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_CPU_GEMMTILE_H
#define MOEC_LIB_SCHEDULES_CPU_GEMMTILE_H

#include "Emit.h"
#include "Instructions.h"

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
class GemmTile {
public:
  using Indices = llvm::SmallVector<mlir::Value, 3>;

  /// `unrolledK`: elements along K per iteration of the loop, a multiple of
  /// `getStep`. `instruction`: how many products it adds to a lane; rows are
  /// bf16 for pairs, and int8 for quads.
  GemmTile(KernelEmitter &emitter, mlir::Value input, mlir::Value weight,
           int64_t lanes, int64_t unrolledK, cpu::InstructionK instruction);

  /// Elements of a row, of that type, per step.
  static int64_t getStep(mlir::Type element, int64_t lanes);

  /// The dot products of each of `inputRows` with each of `weightRows` (leading
  /// indices of the memrefs), as vectors of 4 adjacent columns: result `r *
  /// columns / 4 + q` has columns `4 q .. 4 q + 3` of row r. The number of
  /// weight rows is a multiple of 4. Prefetches the elements of `nextRows`,
  /// which the next tile will read.
  llvm::SmallVector<F32> emit(llvm::ArrayRef<Indices> inputRows,
                              llvm::ArrayRef<Indices> weightRows,
                              llvm::ArrayRef<Indices> nextRows);

private:
  /// f32 vectors of one step: one, or two for bf16. Pairs and quads are one
  /// vector of f32 by their bits.
  using Parts = llvm::SmallVector<F32, 2>;

  Parts load(mlir::Value memref, const Indices &row, Index k, int64_t skip);
  llvm::SmallVector<F32> step(llvm::ArrayRef<Indices> inputRows,
                              llvm::ArrayRef<Indices> weightRows,
                              llvm::ArrayRef<F32> sums, Index k, int64_t skip);
  llvm::SmallVector<F32> shortRows(llvm::ArrayRef<Indices> inputRows,
                                   llvm::ArrayRef<Indices> weightRows,
                                   llvm::ArrayRef<F32> sums);
  llvm::SmallVector<F32> multiply(llvm::ArrayRef<Parts> inputs,
                                  llvm::ArrayRef<Parts> weights,
                                  llvm::ArrayRef<F32> sums);
  F32 multiplyPairs(F32 x, F32 w, F32 sum);
  /// Sums are i32 by their bits. VPDPBUSD takes a first operand without sign:
  /// weights plus 128, so that the sum of 128 times each input has to be
  /// subtracted.
  I32 addQuads(I32 sum, I32 withoutSign, I32 withSign);
  llvm::SmallVector<F32> multiplyQuads(llvm::ArrayRef<Parts> inputs,
                                       llvm::ArrayRef<Parts> weights,
                                       llvm::ArrayRef<F32> sums);
  F32 add(F32 x, F32 y);
  F32 sumLanes(llvm::ArrayRef<F32> four);
  llvm::SmallVector<F32> sumAll(llvm::ArrayRef<F32> sums);

  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value input, weight;
  mlir::Type element;
  int64_t sizeK, lanes, unrolledK, stepSize;
  cpu::InstructionK instruction;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_CPU_GEMMTILE_H
