//===- Sm100Contract.h - the parts of sm100.contract ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM100_SM100CONTRACT_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM100_SM100CONTRACT_H

#include "../../RingCopies.h"
#include "../../TensorEmitter.h"
#include "moec/Analysis/Sm100.h"

namespace moec {

/// State that the warps of a CTA share: the layout of shared and tensor memory,
/// and the rows.
class Sm100Contract {
public:
  Sm100Contract(tile::ContractOp op, TensorEmitter &emitter);

  tile::ContractOp op;
  TensorEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm100::Contract shape;
  /// index; the group is null for a dense gemm.
  mlir::Value group, firstColumn;
  /// Address of the CTA's tensor memory, i32; valid after the barrier that
  /// publishes it.
  mlir::Value tensor;

  mlir::LogicalResult emit();

  /// Input rows that are multiplied together, at least one: the first position
  /// (index) and their number (i32).
  struct Tile {
    mlir::Value firstRow, rows;
  };
  /// Calls `body` for the CTA's tiles, with loop-carried values.
  using TileBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      Tile, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> forTiles(mlir::ValueRange init, TileBody body);

  //===--- Pipelines ---===//

  RingPlace getFirstPlace() { return {emitter.i32(0), emitter.i32(0)}; }
  RingPlace next(RingPlace place, int64_t size) {
    return nextPlace(emitter, place, size);
  }
  /// The parity of the previous round; that before the first one counts as
  /// complete.
  mlir::Value getTurnBefore(RingPlace place);
  /// The address of a stage's buffer plus `offset`, and that of the scales of
  /// block `block`; the block behind those of weights is that of input rows.
  mlir::Value stageAddress(mlir::Value stage, int64_t offset = 0);
  mlir::Value scaleAddress(mlir::Value stage, int64_t block);
  /// Full: copies have arrived. Empty: mmas have read the stage.
  mlir::Value fullBarrier(mlir::Value stage) {
    return barrier(shape.getBarrierOffset(), /*before=*/0, stage);
  }
  mlir::Value emptyBarrier(mlir::Value stage) {
    return barrier(shape.getBarrierOffset(), shape.stages, stage);
  }
  /// Full: accumulators of a tile are complete. Empty: they have been read.
  mlir::Value fullSums(mlir::Value set) {
    return barrier(shape.getSumBarrierOffset(), /*before=*/0, set);
  }
  mlir::Value emptySums(mlir::Value set) {
    return barrier(shape.getSumBarrierOffset(), shape.getSumSets(), set);
  }
  /// In tensor memory: the accumulators of a block, and the scales of a stage.
  mlir::Value sumsOf(mlir::Value set, int64_t block);
  mlir::Value scalesOf(mlir::Value stage, int64_t block);

  //===--- Columns ---===//

  /// The first column of a block (index), and its projection.
  mlir::Value getBlockColumn(int64_t block);
  int64_t getProjection(int64_t block) const {
    return shape.weightsPerColumn == 2 ? block : 0;
  }
  /// Whether no CTA has columns past the end.
  bool areWhole() const { return shape.columns % shape.n == 0; }
  llvm::SmallVector<mlir::Value> getLeading(mlir::Value last) {
    return group ? llvm::SmallVector<mlir::Value>{group, last}
                 : llvm::SmallVector<mlir::Value>{last};
  }

  mlir::Value addI32(mlir::Value x, mlir::Value y) {
    return b.createOrFold<mlir::arith::AddIOp>(x, y);
  }
  mlir::Value isEqual(mlir::Value x, int64_t y) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::eq, x,
                                       emitter.i32(y));
  }

private:
  mlir::Value barrier(int64_t offset, int64_t before, mlir::Value number);
  void initBarriers();
  void findRows(mlir::Value block);
  /// Zeroes the rows of a dense gemm that are not valid.
  void storeZeroRows(mlir::Value block);
  mlir::LogicalResult emitRoles();

  mlir::Value shared;
  /// The CTA's range of rows, index.
  mlir::Value begin, end;
};

/// Producer warps for rows and scales, the warp that issues copies of weights,
/// and the warp that issues mmas.
void emitSm100RowCopies(Sm100Contract &contract);
void emitSm100WeightCopies(Sm100Contract &contract);
void emitSm100Products(Sm100Contract &contract);
/// Epilogue warps. Fails with a diagnostic on an epilogue that cannot be
/// emitted.
mlir::LogicalResult emitSm100Epilogue(Sm100Contract &contract);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM100_SM100CONTRACT_H
