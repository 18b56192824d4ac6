//===- AccumulatorLayout.h - where sums of sm90.gemm lie --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_ACCUMULATORLAYOUT_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_ACCUMULATORLAYOUT_H

#include "Schedules/Sm90Gemm/Consumer.h"

namespace moec {

/// Operands of the epilogue per row or per column, loaded while wgmmas run. Per
/// operand (for columns, per operand and projection): the values that
/// Sm90AccumulatorLayout loads.
struct Sm90EpilogueOperands {
  llvm::SmallVector<llvm::SmallVector<F32>> rows, columns;
  /// Scales of whole rows: of input rows, and per projection of columns. Empty
  /// if there are none.
  llvm::SmallVector<F32> rowScales;
  llvm::SmallVector<llvm::SmallVector<F32>> columnScales;
};

/// Mapping of accumulators to results. A thread has four accumulators of each
/// 64 x 8 of the wgmma: two of the 64 (8 apart) times two neighbours of the 8.
/// Every 8 results of a column (with rows on M: of a row) are an octet, of
/// which the thread has two neighbours, in one or two columns (two rows): a
/// fragment, with its elements in that order. Gate and up of a result are in
/// one thread.
class Sm90AccumulatorLayout {
public:
  Sm90AccumulatorLayout(Sm90Gemm &gemm, const Sm90Part &part);

  /// Index of the thread, its lane, its warp, and its warp within the consumer.
  I32 getThread() const { return thread; }
  I32 getLane() { return thread % kWarp; }
  I32 getWarp() { return thread / kWarp; }
  I32 getConsumerWarp();
  /// Elements of a fragment; 8 x 8 matrices of two elements each.
  int64_t getSize() const {
    return isOnM ? kSums : kSums / shape.problem().weightsPerColumn;
  }
  int64_t getMatrices() const { return getSize() / 2; }
  /// Index of a projection's accumulator among those of a block.
  int64_t getSum(int64_t projection, int64_t octet, int64_t element) const;
  /// The element's row in the part and its column in the result.
  I32 getRow(int64_t octet, int64_t element);
  I32 getColumn(int64_t block, int64_t octet, int64_t element);
  /// Position and column, clamped to the part.
  Index getSafePosition(int64_t octet, int64_t element);
  Index getSafeColumn(int64_t block, int64_t octet, int64_t element);

  //===--- Operands of rows, and of columns ---===//

  llvm::SmallVector<F32> loadOfRows(mlir::Value operand);
  llvm::SmallVector<F32> loadOfColumns(mlir::Value operand, int64_t projection);
  /// Scales of whole rows, loaded in this mapping.
  llvm::SmallVector<F32> loadRowScales();
  llvm::SmallVector<F32> loadColumnScales(int64_t projection);
  /// Selects an element's value from the loaded ones.
  F32 getOfRow(llvm::ArrayRef<F32> loaded, int64_t octet, int64_t element);
  F32 getOfColumn(llvm::ArrayRef<F32> loaded, int64_t block, int64_t octet,
                  int64_t element);

private:
  static constexpr int64_t kSums = 4, kOctet = 8, kWarp = 32;

  /// Distance of an element from the thread's first one: across octets, and
  /// along them.
  static int64_t getAcross(int64_t element) { return element / 2 * kOctet; }
  static int64_t getAlong(int64_t octet, int64_t element) {
    return octet * kOctet + element % 2;
  }
  Index toPosition(I32 row);
  Index toSafeColumn(I32 column);
  /// Loads, in each lane, the values at the lane's index in every 32 up to
  /// `count`.
  llvm::SmallVector<F32> spread(int64_t count,
                                llvm::function_ref<F32(I32)> load);
  /// The value at distance `along` from the thread's first one, by a shuffle.
  F32 getSpread(llvm::ArrayRef<F32> loaded, int64_t along);
  /// Loads a thread's values per row or per column; `load` gets a position or a
  /// result column.
  using Load = llvm::function_ref<F32(Index)>;
  llvm::SmallVector<F32> loadRows(Load load);
  llvm::SmallVector<F32> loadColumns(Load load);
  /// Indices into a matrix of the tile's group.
  llvm::SmallVector<mlir::Value> getIndices(mlir::Value row);

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::GemmShape &shape;
  Sm90Part part;
  bool isOnM;
  I32 thread;
  /// The thread's first element: across octets, and within the first of them.
  I32 ownAcross, ownAlong;
};

Sm90EpilogueOperands loadSm90Operands(Sm90Gemm &gemm, const Sm90Part &part);
/// Adds the scales of whole rows to the operands.
void loadSm90Scales(Sm90Gemm &gemm, const Sm90Part &part,
                    Sm90EpilogueOperands &operands);
/// Computes results from a consumer's accumulators, and stores them. Fails with
/// a diagnostic on an epilogue that cannot be emitted.
mlir::LogicalResult emitSm90Epilogue(Sm90Gemm &gemm, const Sm90Part &part,
                                     const Sm90EpilogueOperands &operands,
                                     const Sm90Sums &sums);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_ACCUMULATORLAYOUT_H
