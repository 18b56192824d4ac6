//===- Sm90Fragments.h - where sums of sm90.contract lie --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90FRAGMENTS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90FRAGMENTS_H

#include "Sm90Products.h"

namespace moec {

/// Operands of the epilogue that rows or columns have one of, which arrive
/// while products run: per operand, and of columns per projection, what
/// Sm90Fragments loads.
struct ContractOperands {
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> rows, columns;
  /// Scales of whole rows: of input rows, and per projection of columns. Empty
  /// where there are none.
  llvm::SmallVector<mlir::Value> rowScales;
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> columnScales;
};

/// Which results a thread has. Of 64 by 8 of the tensor cores' tile it has four
/// sums: of two of the 64, 8 apart, times two neighbours of the 8. So of every
/// 8 results of a column, or with rows on M of every 8 of a row (an octet), it
/// has two neighbours, in one or two columns or two rows: a fragment, whose
/// elements come in that order. Gate and up of a result are in one thread.
class Sm90Fragments {
public:
  Sm90Fragments(Sm90Contract &contract, const ContractPart &part);

  /// The thread's number, its lane, its warp, and its warp's number among the
  /// consumer's; i32.
  mlir::Value getThread() const { return thread; }
  mlir::Value getLane() { return emitter.remainder(thread, kWarp); }
  mlir::Value getWarp() { return emitter.divide(thread, kWarp); }
  mlir::Value getConsumerWarp();
  /// Elements of a fragment; matrices of 8 by 8, which have two each.
  int64_t getSize() const {
    return isOnM ? kSums : kSums / shape.weightsPerColumn;
  }
  int64_t getMatrices() const { return getSize() / 2; }
  /// The number of the sum of a projection among those of a block.
  int64_t getSum(int64_t projection, int64_t octet, int64_t element) const;
  /// The element's row of the part, and its column of the result; i32.
  mlir::Value getRow(int64_t octet, int64_t element);
  mlir::Value getColumn(int64_t block, int64_t octet, int64_t element);
  /// The same, moved into the part where it lies outside; of type index.
  mlir::Value getSafePosition(int64_t octet, int64_t element);
  mlir::Value getSafeColumn(int64_t block, int64_t octet, int64_t element);

  //===--- Operands of rows, and of columns ---===//

  llvm::SmallVector<mlir::Value> loadOfRows(mlir::Value operand);
  llvm::SmallVector<mlir::Value> loadOfColumns(mlir::Value operand,
                                               int64_t projection);
  /// The same of scales of whole rows.
  llvm::SmallVector<mlir::Value> loadRowScales();
  llvm::SmallVector<mlir::Value> loadColumnScales(int64_t projection);
  /// An element's, of what was loaded.
  mlir::Value getOfRow(llvm::ArrayRef<mlir::Value> loaded, int64_t octet,
                       int64_t element);
  mlir::Value getOfColumn(llvm::ArrayRef<mlir::Value> loaded, int64_t block,
                          int64_t octet, int64_t element);

private:
  static constexpr int64_t kSums = 4, kOctet = 8, kWarp = 32;

  /// How far an element is from the thread's first one: across octets, and
  /// along them.
  static int64_t getAcross(int64_t element) { return element / 2 * kOctet; }
  static int64_t getAlong(int64_t octet, int64_t element) {
    return octet * kOctet + element % 2;
  }
  mlir::Value toPosition(mlir::Value row);
  mlir::Value toSafeColumn(mlir::Value column);
  /// The index of the lane's number among every 32 up to `count`.
  llvm::SmallVector<mlir::Value>
  spread(int64_t count, llvm::function_ref<mlir::Value(mlir::Value)> load);
  /// The one at `along` from the thread's first.
  mlir::Value getSpread(llvm::ArrayRef<mlir::Value> loaded, int64_t along);
  /// What a thread has of rows, or of columns: `load` gets a position, or a
  /// column of the result, of type index.
  using Load = llvm::function_ref<mlir::Value(mlir::Value)>;
  llvm::SmallVector<mlir::Value> loadRows(Load load);
  llvm::SmallVector<mlir::Value> loadColumns(Load load);
  /// Indices of a matrix of the tile's group.
  llvm::SmallVector<mlir::Value> getIndices(mlir::Value row);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  ContractPart part;
  bool isOnM;
  mlir::Value thread;
  /// The thread's first element: across octets, and in the first of them; i32.
  mlir::Value ownAcross, ownAlong;
};

ContractOperands loadSm90Operands(Sm90Contract &contract,
                                  const ContractPart &part);
/// Adds the scales of whole rows.
void loadSm90Scales(Sm90Contract &contract, const ContractPart &part,
                    ContractOperands &operands);
/// Makes results of a consumer's sums, and writes them. Fails with a diagnostic
/// on an epilogue that cannot be emitted.
mlir::LogicalResult emitSm90Epilogue(Sm90Contract &contract,
                                     const ContractPart &part,
                                     const ContractOperands &operands,
                                     const ContractSums &sums);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90FRAGMENTS_H
