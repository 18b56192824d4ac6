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

/// What the warps of a CTA share: where things lie, and which rows there are.
class Sm100Contract {
public:
  Sm100Contract(tile::ContractOp op, TensorEmitter &emitter);

  tile::ContractOp op;
  TensorEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm100::Contract shape;
  /// Of type index; the group is null for a dense product.
  mlir::Value group, firstColumn;
  /// Of the CTA's tensor memory, i32; behind the barrier that tells it.
  mlir::Value tensor;

  mlir::LogicalResult emit();

  /// Input rows that are multiplied together, at least one: the position of the
  /// first (index), and how many (i32).
  struct Tile {
    mlir::Value firstRow, rows;
  };
  /// Calls `body` for the CTA's tiles, with values that it carries from tile to
  /// tile.
  using TileBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      Tile, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> forTiles(mlir::ValueRange init, TileBody body);

  //===--- Rings ---===//

  RingPlace getFirstPlace() { return {emitter.i32(0), emitter.i32(0)}; }
  RingPlace next(RingPlace place, int64_t size) {
    return nextPlace(emitter, place, size);
  }
  /// The parity of the turn before, which is over at first.
  mlir::Value getTurnBefore(RingPlace place);
  /// The buffer of a stage, and `offset` bytes on; its scales, of block
  /// `block`, behind those of weights that of input rows.
  mlir::Value stageAddress(mlir::Value stage, int64_t offset = 0);
  mlir::Value scaleAddress(mlir::Value stage, int64_t block);
  /// Full: copies are there. Empty: products have read them.
  mlir::Value fullBarrier(mlir::Value stage) {
    return barrier(shape.getBarrierOffset(), /*before=*/0, stage);
  }
  mlir::Value emptyBarrier(mlir::Value stage) {
    return barrier(shape.getBarrierOffset(), shape.stages, stage);
  }
  /// Full: sums of a tile are there. Empty: they have been taken out.
  mlir::Value fullSums(mlir::Value set) {
    return barrier(shape.getSumBarrierOffset(), /*before=*/0, set);
  }
  mlir::Value emptySums(mlir::Value set) {
    return barrier(shape.getSumBarrierOffset(), shape.getSumSets(), set);
  }
  /// In tensor memory: the sums of a block, and the scales of a stage.
  mlir::Value sumsOf(mlir::Value set, int64_t block);
  mlir::Value scalesOf(mlir::Value stage, int64_t block);

  //===--- Columns ---===//

  /// The first column of a block (index), and its projection.
  mlir::Value getBlockColumn(int64_t block);
  int64_t getProjection(int64_t block) const {
    return shape.weightsPerColumn == 2 ? block : 0;
  }
  /// Whether all columns of all CTAs are there.
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
  /// Rows of a dense product that do not count become zeros.
  void storeZeroRows(mlir::Value block);
  mlir::LogicalResult emitRoles();

  mlir::Value shared;
  /// The CTA's rows, of type index.
  mlir::Value begin, end;
};

/// The warps that copy rows and scales, the one that starts copies of weights,
/// and the one that starts products.
void emitSm100RowCopies(Sm100Contract &contract);
void emitSm100WeightCopies(Sm100Contract &contract);
void emitSm100Products(Sm100Contract &contract);
/// Those that take sums out. Fails with a diagnostic on an epilogue that cannot
/// be emitted.
mlir::LogicalResult emitSm100Epilogue(Sm100Contract &contract);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM100_SM100CONTRACT_H
