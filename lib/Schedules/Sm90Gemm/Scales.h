//===- Scales.h - block scales of sm90.gemm ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_SCALES_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_SCALES_H

#include "Gemm.h"

namespace moec {

/// Scales of block fp8 in shared memory; a k tile is one scale block. Each
/// stage has the scales of all input rows of the largest BLOCK_M, then those of
/// every 64 weight rows (one, or with a layout gate and up).
class Sm90Scales {
public:
  explicit Sm90Scales(Sm90Gemm &gemm);

  //===--- The producer: `number` is the thread's, of `kRowThreads` ---===//

  /// The rows whose scales the thread copies in each k tile.
  llvm::SmallVector<I32> find(const Sm90Tile &tile, I32 number);
  /// Issues the copies for a k tile, which join the thread's open cp.async
  /// group.
  void copy(const Sm90Tile &tile, llvm::ArrayRef<I32> from, I32 number,
            I32 step, I32 stage);

  /// Stores the scale of a row that the thread has quantized.
  void storeRow(I32 stage, I32 row, F32 scale);

  //===--- Consumers ---===//

  /// Address in the first stage of the scales of the thread's rows, for BLOCK_M
  /// `blockM`.
  mlir::Value findRows(int64_t blockM, I32 consumer);
  /// Scales of the thread's rows: two of every 8 rows, or of 64.
  llvm::SmallVector<F32> loadRows(mlir::Value rows, I32 stage, int64_t blockM);
  /// Scales of a consumer's block for BLOCK_M `blockM`, one per projection.
  llvm::SmallVector<F32> loadWeights(I32 stage, int64_t blockM, I32 consumer,
                                     int64_t block);
  /// Whether all blocks of a consumer share their scales, for BLOCK_M `blockM`.
  bool areSame(int64_t blockM) const;

private:
  /// Rows whose scales are in memory.
  int64_t countCopiedRows() const {
    return shape.problem().quantizesInput ? 0 : shape.tile().getMaxBlockM();
  }
  /// Address of a scale of a stage.
  mlir::Value address(I32 stage, int64_t scale);
  I32 findWeights(const Sm90Tile &tile, I32 number);

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::GemmShape &shape;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_SCALES_H
