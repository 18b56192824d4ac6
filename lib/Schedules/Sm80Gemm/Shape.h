//===- Shape.h - shape of the schedule sm80.gemm ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM80GEMM_SHAPE_H
#define MOEC_LIB_SCHEDULES_SM80GEMM_SHAPE_H

#include "moec/Schedules/ProductTypes.h"
#include "moec/Schedules/PtxasLimits.h"
#include "moec/Schedules/Schedules.h"
#include "llvm/Support/MathExtras.h"

namespace moec::sm80 {

/// The gemm with mma.sync or FMAs. A CTA of 4 warps multiplies `m` rows with
/// `n` columns (two weight rows each with a gate/up layout) in k tiles of `k`.
///
/// Quantized operands are converted to the compute type as they are read from
/// shared memory, with zero points, and with those scales that fewer elements
/// share than are decoded at once. Scales of a whole row, and global ones, are
/// applied after the loop. For other scales a k tile consists of one or more
/// parts, each accumulated separately. Minima are multiplied with the sums of
/// the rows' own elements.
///
/// Copies go in chunks of 16 bytes through `kStages` buffers of shared memory,
/// in which a row is padded by one chunk, so that reading a column of chunks
/// hits all banks. The sums reach the epilogue through the same memory.
struct GemmShape {
  GemmShape(tile::GemmOp op, tile::ConfigAttr config);

  static constexpr int64_t kThreads = 128;
  static constexpr int64_t kStages = 3;
  static constexpr int64_t kChunkBytes = 16;
  /// Warps of a CTA: along rows, along columns.
  static constexpr int64_t kWarpRows = 2;
  static constexpr int64_t kWarpColumns = 2;

  /// Rows of an operand, in memory and in a stage's buffer.
  struct Rows {
    /// Bits of an element; elements of a row (K), and of a k tile.
    int64_t bits, sizeK, k;

    /// Bytes of a number of elements, which fill whole bytes.
    int64_t getBytes(int64_t elements) const { return elements * bits / 8; }
    int64_t getChunkElements() const { return kChunkBytes * 8 / bits; }
    /// Chunks of a row per k tile.
    int64_t getChunks() const { return k / getChunkElements(); }
    /// Rows that the CTA's threads copy at once, one chunk each.
    int64_t getRowsPerCopy() const { return kThreads / getChunks(); }
    int64_t getStride() const { return getBytes(k) + kChunkBytes; }
    /// Rows of the global tensor are aligned to a chunk.
    bool isAligned() const { return sizeK * bits % (kChunkBytes * 8) == 0; }
  };

  bool isGrouped;
  int64_t groups, sizeK, columns;
  /// 2 with a layout (gate and up), else 1.
  int64_t weightsPerColumn;
  int64_t m, n, k, lanes;
  Rows input, weight;
  ComputeType compute;
  ScaleTimes scales;
  /// Elements along K that share the scales applied in the loop: a divisor of
  /// `k`, or all of it.
  int64_t partK;
  /// Each gate or up column has its own scale inside the loop.
  bool hasColumnScales;
  /// Weights have scales or zero points per element, applied before the mma.
  bool hasElementFactors;
  /// Scales applied inside the loop have minima beside them, for which the
  /// elements of input rows are summed.
  bool hasMinima;

  /// No tensor core has f32 precision.
  bool usesTensorCores() const { return compute != ComputeType::F32; }
  int64_t getNTiles() const { return (columns + n - 1) / n; }
  int64_t getSteps() const { return (sizeK + k - 1) / k; }
  /// Parts of a k tile.
  int64_t getParts() const { return k / partK; }
  int64_t getWeightRows() const { return weightsPerColumn * n; }
  /// Offset of the weights in a stage, behind the input rows, in weight rows.
  int64_t getFirstWeightRow() const {
    return llvm::divideCeil(m * input.getStride(), weight.getStride());
  }
  int64_t getStageBytes() const {
    return (getFirstWeightRow() + getWeightRows()) * weight.getStride();
  }
  /// Accumulators of a thread: those of a part are separate.
  int64_t getAccumulators() const {
    return m * getWeightRows() / kThreads * (scales.areInLoop() ? 2 : 1);
  }
  int64_t getMaxAccumulators() const {
    return ptxas::getMaxFragmentSums(hasColumnScales);
  }
  /// Stride of a row of sums, in f32.
  int64_t getSumStride() const { return n + 8; }
  int64_t getSharedBytes() const;
};

} // namespace moec::sm80

#endif // MOEC_LIB_SCHEDULES_SM80GEMM_SHAPE_H
