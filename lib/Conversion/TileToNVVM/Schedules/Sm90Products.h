//===- Sm90Products.h - the sums of sm90.contract ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90PRODUCTS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90PRODUCTS_H

#include "Sm90Contract.h"

namespace moec {

/// The sums of one tile in the thread's registers, and the place in the ring
/// behind it.
struct ContractSums {
  RingPlace end;
  /// The consumer's part of the tile, at most `height` rows: all of them, or
  /// half of those of the body.
  ContractTile tile;
  int64_t height;
  /// For each 64-row block of the consumer's weights `height / 2` f32, as the
  /// tensor cores leave them: four of every 8 input rows.
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> blocks;
};

/// Operands of the epilogue that rows or columns have one of, which arrive
/// while products run.
struct ContractOperands {
  /// Per operand, of every 32 rows of the consumer's part: that of the row of
  /// the lane's number.
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> rows;
  /// Per operand, plane and block: those of the thread's columns.
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> columns;
};

/// What a warpgroup that multiplies reads, and how it says that it has.
class Sm90Products {
public:
  explicit Sm90Products(Sm90Contract &contract);

  /// Multiplies a tile in the body of that width; all steps from `place` on.
  ContractSums emit(int64_t width, const ContractTile &tile, RingPlace place);

  /// The consumer's part of a tile in that body.
  ContractTile getPart(int64_t width, const ContractTile &tile);
  int64_t getPartHeight(int64_t width) const {
    return shape.sharesBlock() ? width / 2 : width;
  }
  /// The number of the consumer, i32.
  mlir::Value getConsumer() const { return consumer; }

private:
  /// The sums of 16-bit elements, and of e4m3 with scales (in Sm90Scales.cpp).
  ContractSums multiply(int64_t width, const ContractTile &tile,
                        RingPlace place);
  ContractSums multiplyScaled(int64_t width, const ContractTile &tile,
                              RingPlace place);
  void addScaled(llvm::MutableArrayRef<mlir::Value> sums,
                 llvm::ArrayRef<mlir::Value> products,
                 llvm::ArrayRef<mlir::Value> rowScales,
                 llvm::ArrayRef<mlir::Value> weightScales);
  /// Products of a step and a block.
  int64_t getStepProducts() const;
  /// For tensor cores: the consumer's blocks of a stage, and its input rows.
  llvm::SmallVector<mlir::Value> describeWeights(mlir::Value stage);
  mlir::Value describeRows(mlir::Value stage);
  /// Gives a stage back, whose products are done.
  void release(mlir::Value stage);
  /// Of consumers that share a block: adds up what both have, the sums of half
  /// of the rows in each.
  void exchange(ContractSums &sums);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  mlir::Type element;
  mlir::Value consumer;
};

/// For a part of at most `height` rows, that the consumer has.
ContractOperands loadSm90Operands(Sm90Contract &contract, mlir::Value consumer,
                                  const ContractTile &part, int64_t height);
/// Makes results of a consumer's sums, and writes them. Fails with a diagnostic
/// on an epilogue that cannot be emitted.
mlir::LogicalResult emitSm90Epilogue(Sm90Contract &contract,
                                     mlir::Value consumer,
                                     const ContractOperands &operands,
                                     const ContractSums &sums);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90PRODUCTS_H
