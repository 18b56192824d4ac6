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

/// The scales of a step of e4m3, which is a block of them. Each stage has a
/// place for them: of all input rows of the highest tile, then of every 64
/// weight rows (one with one projection, else gate and up).
class Sm90Scales {
public:
  explicit Sm90Scales(Sm90Contract &contract);

  //===--- The producer: `number` is the thread's, of `kRowThreads` ---===//

  /// The rows of the scales that the thread copies in each step of a tile; i32.
  llvm::SmallVector<mlir::Value> find(const ContractTile &tile,
                                      mlir::Value number);
  /// Starts the copies of a step, which belong to the thread's open group.
  void copy(const ContractTile &tile, mlir::ValueRange from, mlir::Value number,
            mlir::Value step, mlir::Value stage);

  //===--- Consumers ---===//

  /// Where those of the thread's rows in a tile of that height begin in the
  /// first stage.
  mlir::Value findRows(int64_t height, mlir::Value consumer);
  /// They: of two of every 8 rows, or of 64.
  llvm::SmallVector<mlir::Value> loadRows(mlir::Value rows, mlir::Value stage,
                                          int64_t height);
  /// Those of a consumer's block in a tile of that height, one per projection.
  llvm::SmallVector<mlir::Value> loadWeights(mlir::Value stage, int64_t height,
                                             mlir::Value consumer,
                                             int64_t block);
  /// Whether all blocks of a consumer have the same ones in a tile of that
  /// height.
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
