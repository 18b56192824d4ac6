//===- Kernel.h - the parts of sm100.gemm -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM100GEMM_KERNEL_H
#define MOEC_LIB_SCHEDULES_SM100GEMM_KERNEL_H

#include "KernelBuilder/RingCopies.h"
#include "KernelBuilder/TensorEmitter.h"
#include "Shape.h"

namespace moec {

/// State that the warps of a CTA share: the layout of shared and tensor memory,
/// and the rows.
class Sm100Gemm {
public:
  Sm100Gemm(tile::GemmOp op, TensorEmitter &emitter);

  tile::GemmOp op;
  TensorEmitter &emitter;
  sm100::GemmShape shape;
  /// Dynamic shared memory.
  mlir::Value shared;
  /// Stages of one k tile, which mmas empty; and sets of accumulators in tensor
  /// memory, which mmas fill and the epilogue empties.
  Pipeline pipeline, accumulators;
  /// The group is null for a dense gemm.
  Index group, firstColumn;
  /// Address of the CTA's tensor memory; valid after the barrier that publishes
  /// it.
  I32 tensor;

  mlir::LogicalResult emit();

  /// Input rows that are multiplied together, at least one: the first position
  /// and their number.
  struct Tile {
    Index firstRow;
    I32 rows;
  };
  /// Calls `body(tile, state)`, which returns the next state, for the CTA's
  /// tiles. Returns the last state.
  template <typename State, typename Body>
  State forTiles(State state, Body body) {
    return emitter.loop(begin, end, shape.m, state,
                        [&](Index row, State state) {
                          I32 rows = emitter.toI32(min(end - row, shape.m));
                          return body(Tile{row, rows}, state);
                        });
  }

  /// The address of the scales of block `block` of a stage; the block behind
  /// those of weights is that of input rows.
  mlir::Value scaleAddress(I32 stage, int64_t block);
  /// In tensor memory: the accumulators of a block, and the scales of a stage.
  I32 sumsOf(I32 set, int64_t block);
  I32 scalesOf(I32 stage, int64_t block);

  //===--- Columns ---===//

  /// The first column of a block, and its projection.
  Index getBlockColumn(int64_t block);
  int64_t getProjection(int64_t block) const {
    return shape.weightsPerColumn == 2 ? block : 0;
  }
  /// Whether no CTA has columns past the end.
  bool areWhole() const { return shape.columns % shape.n == 0; }
  llvm::SmallVector<mlir::Value> getLeading(mlir::Value last) {
    return group ? llvm::SmallVector<mlir::Value>{group, last}
                 : llvm::SmallVector<mlir::Value>{last};
  }

private:
  void initBarriers();
  void findRows(Index block);
  /// Zeroes the rows of a dense gemm that are not valid.
  void storeZeroRows(Index block);
  mlir::LogicalResult emitRoles();

  /// The CTA's range of rows.
  Index begin, end;
};

/// Producer warps for rows and scales, the warp that issues copies of weights,
/// and the warp that issues mmas.
void emitSm100RowCopies(Sm100Gemm &gemm);
void emitSm100WeightCopies(Sm100Gemm &gemm);
void emitSm100Products(Sm100Gemm &gemm);
/// Epilogue warps. Fails with a diagnostic on an epilogue that cannot be
/// emitted.
mlir::LogicalResult emitSm100Epilogue(Sm100Gemm &gemm);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM100GEMM_KERNEL_H
