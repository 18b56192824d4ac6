//===- Shape.h - shape of the schedule gpu.gemv -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_GEMV_SHAPE_H
#define MOEC_LIB_SCHEDULES_GEMV_SHAPE_H

#include "moec/Schedules/PtxasLimits.h"
#include "moec/Schedules/Schedules.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace moec::anygpu {

/// Dense gemm of few columns. The `threads` threads of a CTA split K and
/// multiply up to `m` rows with `n` columns. With FMAs, a thread has a sum per
/// row and column; with `k`, each warp has a k tile of the tensor cores.
struct Gemv {
  Gemv(tile::GemmOp op, tile::ConfigAttr config);

  /// Bytes of a row that a thread reads at once.
  static constexpr int64_t kChunkBytes = 16;
  /// Elements of a row that a warp reads at once for the tensor cores.
  static constexpr int64_t kTensorK = 32;

  int64_t sizeK, columns, elementBytes;
  int64_t m, n, k, threads;

  bool usesTensorCores() const { return k > 0; }
  int64_t getNTiles() const { return (columns + n - 1) / n; }
  int64_t getChunkElements() const { return kChunkBytes / elementBytes; }
  /// Chunks of a row.
  int64_t getChunks() const { return sizeK / getChunkElements(); }
  int64_t getTensorSteps() const { return sizeK / kTensorK; }
  int64_t getWarps() const { return threads / kWarp; }
  /// Chunks of a lane per k tile, for one of every 8 rows and columns.
  int64_t getChunksPerStep() const { return (m + n) / 8; }
  /// k tiles that a warp requests at once.
  int64_t getStepsAtOnce() const {
    int64_t most =
        std::max<int64_t>(ptxas::kGemvTensorChunks / getChunksPerStep(), 1);
    return std::clamp<int64_t>(getTensorSteps() / getWarps(), 1, most);
  }

  // Stride of the sums of each warp in shared memory. Those of the tensor cores
  // are padded, so that the lanes of a warp hit all banks.
  int64_t getSumStride() const { return usesTensorCores() ? n + 8 : n; }
  int64_t getWarpSums() const { return m * getSumStride(); }
  /// Rounded up to vectors of 16 bytes.
  int64_t getSumBytes() const {
    return llvm::alignTo(4 * getWarps() * getWarpSums(), 16);
  }
};

} // namespace moec::anygpu

#endif // MOEC_LIB_SCHEDULES_GEMV_SHAPE_H
