//===- Shape.h - sizes behind the schedule sm100.gemm -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shape, memory map and descriptors of the Blackwell gemm (`sm100.gemm`),
// shared by config selection and code emission.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM100GEMM_SHAPE_H
#define MOEC_LIB_SCHEDULES_SM100GEMM_SHAPE_H

#include "moec/Schedules/ProductTypes.h"
#include "moec/Support/GpuInstructions.h"

#include <string>

namespace moec::sm100 {

/// The block-scaled gemm of Blackwell. A CTA multiplies `n` columns of one
/// group (two weight rows each with a gate/up layout) with all its input rows,
/// up to `m` at a time, or with `m` rows of a dense gemm, in k tiles of 128
/// bytes. Tensor cores scale blocks of 32 elements as they multiply.
///
/// A and B are swapped: 128 weight rows, a *block*, are the M side of
/// tcgen05.mma and input rows the N side, in multiples of 16. A CTA has one
/// block or two: those of gate and up, or neighbours. Weights of 4 bits take a
/// byte each in shared memory: 16 of them lie in the first half of 16 bytes.
///
/// Warp roles: four warps read sums from tensor memory, one lane per thread,
/// which is a result column; four copy rows and scales; one issues copies of
/// weights and one issues the mmas.
///
/// Shared memory: `stages` pipeline stages of one k tile each (weights, then
/// input rows, each a row of the 128-byte swizzle); their scales; barriers; the
/// address of the tensor memory. Tensor memory, in columns of 32 bits: the
/// accumulators of one tile or, if they fit, of two; then the scales of each
/// stage.
struct GemmShape {
  GemmShape(tile::GemmOp op, tile::ConfigAttr config);

  static constexpr int64_t kWarp = moec::kWarp;
  static constexpr int64_t kSumThreads = 128, kCopyThreads = 128;
  /// Warps that issue copies of weights, and mmas.
  static constexpr int64_t kBoxWarp = 8, kProductWarp = 9;
  static constexpr int64_t kThreads = (kProductWarp + 1) * kWarp;

  /// M of the mma, and the multiple and maximum of its N.
  static constexpr int64_t kBlockRows = 128, kRowUnit = 16, kMaxRows = 128;
  /// A k tile is one row of the 128-byte swizzle, in bytes.
  static constexpr int64_t kStep = kScaledStep, kStepBytes = kStep;
  static constexpr int64_t kChunkBytes = 16;
  /// mmas per k tile, and bytes of K of each.
  static constexpr int64_t kProductBytes = kScaledColumns;
  static constexpr int64_t kStepProducts = kStepBytes / kProductBytes;
  static constexpr int64_t kMinStages = 2, kMaxStages = 8;
  static constexpr int64_t kBarrierBytes = 8;
  /// 8-bit scales of 128 rows of a k tile.
  static constexpr int64_t kScaleBlockBytes = kBlockRows * kStepProducts;
  /// Columns of tensor memory: all, the smallest allocation, and those of the
  /// scales of 128 rows.
  static constexpr int64_t kTensorColumns = 512, kMinTensorColumns = 32;
  static constexpr int64_t kScaleBlockColumns = 4;

  bool isGrouped;
  int64_t groups, sizeK, columns;
  /// 2 with a layout (gate and up), else 1.
  int64_t weightsPerColumn;
  /// Stored weights have 8 bits; else 4.
  bool areBytes;
  int64_t m, n, stages;

  int64_t getNTiles() const { return (columns + n - 1) / n; }
  int64_t getSteps() const { return sizeK / kStep; }
  int64_t getBlocks() const { return weightsPerColumn * n / kBlockRows; }
  /// Blocks of neighbouring columns.
  int64_t getColumnBlocks() const { return n / kBlockRows; }

  /// Whether a tensor map copies the weights; threads copy weights of fewer
  /// bits than they have in shared memory.
  static bool mapsWeights(moe::QuantAttr quant);
  /// Stored bytes of the weights in a chunk of shared memory, and in a row.
  int64_t getChunkWeightBytes() const {
    return areBytes ? kChunkBytes : kChunkBytes / 2;
  }
  int64_t getWeightRowBytes() const { return areBytes ? sizeK : sizeK / 2; }

  //===--- Shared memory ---===//

  int64_t getBlockBytes() const { return kBlockRows * kStepBytes; }
  int64_t getWeightBytes() const { return getBlocks() * getBlockBytes(); }
  int64_t getStageBytes() const { return getWeightBytes() + m * kStepBytes; }
  /// Scales of a stage: of each block of weights, then of input rows.
  int64_t getScaleBytes() const { return (getBlocks() + 1) * kScaleBlockBytes; }
  int64_t getScaleOffset() const { return stages * getStageBytes(); }
  /// Barriers: full and empty of each stage, full and empty of each set of
  /// accumulators.
  int64_t getBarrierOffset() const {
    return getScaleOffset() + stages * getScaleBytes();
  }
  int64_t getSumBarrierOffset() const {
    return getBarrierOffset() + stages * 2 * kBarrierBytes;
  }
  int64_t getTensorAddressOffset() const {
    return getSumBarrierOffset() + getSumSets() * 2 * kBarrierBytes;
  }
  int64_t getSharedBytes() const {
    return getTensorAddressOffset() + kChunkBytes;
  }

  //===--- Tensor memory ---===//

  /// Accumulators of a tile: one column per input row and block.
  int64_t getSumColumns() const { return getBlocks() * m; }
  int64_t getScaleColumns() const {
    return (getBlocks() + 1) * kScaleBlockColumns;
  }
  /// Sets of accumulators: with two, one is accumulated while the other is
  /// read.
  int64_t getSumSets() const { return getColumns(2) <= kTensorColumns ? 2 : 1; }
  int64_t getFirstScaleColumn() const { return getSumSets() * getSumColumns(); }
  /// Required columns; allocations are powers of two.
  int64_t getUsedColumns() const { return getColumns(getSumSets()); }
  int64_t getAllocatedColumns() const;

private:
  int64_t getColumns(int64_t sets) const {
    return sets * getSumColumns() + stages * getScaleColumns();
  }
};

/// Reason why no config runs the gemm; empty if one may.
std::string declineGemm(tile::GemmOp op);

/// The tensor map of weights, with boxes of one block, if `areBytes`.
tile::TensorMapAttr getWeightMap(tile::GemmOp op, const GemmShape &shape);

//===----------------------------------------------------------------------===//
// Bit fields, by the PTX ISA, "TensorCore 5th Generation Family Instructions"
//===----------------------------------------------------------------------===//

/// Offset of the scales of a row of a k tile (a word of four) among those of
/// 128 rows. tcgen05.cp.32x128b copies 32 lanes of 16 bytes, and an mma expects
/// those of row r in lane r % 32, column r / 32 ("Scale factor layout",
/// scale_vec::1X).
constexpr int64_t getScaleWordOffset(int64_t row) {
  return row % 32 * 16 + row / 32 * 4;
}

/// The shared memory descriptor without the address, which is in the lowest 14
/// bits in units of 16 bytes ("Shared memory descriptor"). Stride between
/// groups of 8 rows in the same units from bit 32 on, 1 from bit 46 on, the
/// swizzle from bit 61 on.
constexpr uint64_t makeDescriptor(uint64_t swizzle, uint64_t strideBytes) {
  return strideBytes / kDescriptorUnit << 32 | uint64_t(1) << 46 |
         swizzle << 61;
}
/// Descriptors of operands (rows of 128 swizzled bytes) and of scales (rows of
/// 16 bytes).
inline constexpr uint64_t kMatrixDescriptor = makeDescriptor(2, 8 * 128);
inline constexpr uint64_t kScaleDescriptor = makeDescriptor(0, 8 * 16);

/// Instruction descriptor of an mma of 128 weight rows with some input rows,
/// both e4m3 with e8m0 scales ("Instruction descriptor", kind mxf8f6f4): types
/// at bits 7 and 10, 0 for e4m3; rows / 8 from bit 17 on; 1 at bit 23 for e8m0;
/// 128 / 16 from bit 24 on.
inline constexpr uint32_t kInstruction = uint32_t(1) << 23 | uint32_t(128 / 16)
                                                                 << 24;
/// Added for weights of e2m1: 5 at bit 7.
inline constexpr uint32_t kInstructionE2M1 = uint32_t(5) << 7;
inline constexpr unsigned kInstructionRowBit = 17;
inline constexpr uint32_t kInstructionRowUnit = 8;
/// Added for mma `i` of a k tile: the byte of each word of scales to multiply
/// with, for input rows from bit 4 on, for weights from bit 29 on.
constexpr uint32_t getScaleIds(uint32_t i) { return i << 4 | i << 29; }

/// One lane of tensor memory in an address, whose lower half is the column.
inline constexpr int64_t kTensorLane = int64_t(1) << 16;

} // namespace moec::sm100

#endif // MOEC_LIB_SCHEDULES_SM100GEMM_SHAPE_H
