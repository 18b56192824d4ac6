//===- Sm90Scales.h - block scales of sm90.contract -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90SCALES_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90SCALES_H

#include "Sm90Contract.h"

namespace moec {

/// Scales of block fp8 in shared memory; a k tile is one scale block. Each
/// stage has the scales of all input rows of the largest BLOCK_M, then those of
/// every 64 weight rows (one, or with a layout gate and up).
class Sm90Scales {
public:
  explicit Sm90Scales(Sm90Contract &contract);

  //===--- The producer: `number` is the thread's, of `kRowThreads` ---===//

  /// The rows whose scales the thread copies in each k tile; i32.
  llvm::SmallVector<mlir::Value> find(const ContractTile &tile,
                                      mlir::Value number);
  /// Issues the copies for a k tile, which join the thread's open cp.async
  /// group.
  void copy(const ContractTile &tile, mlir::ValueRange from, mlir::Value number,
            mlir::Value step, mlir::Value stage);

  //===--- Consumers ---===//

  /// Address in the first stage of the scales of the thread's rows, for BLOCK_M
  /// `height`.
  mlir::Value findRows(int64_t height, mlir::Value consumer);
  /// Scales of the thread's rows: two of every 8 rows, or of 64.
  llvm::SmallVector<mlir::Value> loadRows(mlir::Value rows, mlir::Value stage,
                                          int64_t height);
  /// Scales of a consumer's block for BLOCK_M `height`, one per projection.
  llvm::SmallVector<mlir::Value> loadWeights(mlir::Value stage, int64_t height,
                                             mlir::Value consumer,
                                             int64_t block);
  /// Whether all blocks of a consumer share their scales, for BLOCK_M `height`.
  bool areSame(int64_t height) const;

private:
  mlir::Value address(mlir::Value stage, int64_t scale);
  mlir::Value findWeights(const ContractTile &tile, mlir::Value number);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90SCALES_H
