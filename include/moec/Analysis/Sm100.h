//===- Sm100.h - sizes behind the schedule sm100.contract -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the choice of a config and the emission of its code both have to know.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SM100_H
#define MOEC_ANALYSIS_SM100_H

#include "moec/Analysis/ProductTypes.h"

#include <string>

namespace moec::sm100 {

/// sm100.contract: a CTA multiplies `n` columns of one group (each of them two
/// weight rows, with a layout) with all input rows of it, up to `m` at a time,
/// or with `m` rows of a dense product, in steps of 128 bytes. Tensor cores
/// scale blocks of 32 elements as they multiply.
///
/// Weight rows are on the side of 128 of the tensor cores' tile, a *block* of
/// them, and input rows on the other, as many as there are, in multiples of 16.
/// A CTA has one block or two: those of gate and up, or neighbours. Weights of
/// 4 bits have a byte each in shared memory: 16 of them lie in the first half
/// of 16 bytes.
///
/// Four warps take sums out of tensor memory, a lane of it each, which is a
/// column of the result; four copy rows and scales; one starts the copies of
/// weights, and one the products.
///
/// Shared memory: `stages` buffers of one step each, first the weights, then
/// the input rows, each a row of the 128-byte swizzle; their scales; barriers;
/// the address of the tensor memory. Tensor memory, by columns of 32 bits: sums
/// of one tile or, where there is room, of two; then the scales of each stage.
struct Contract {
  Contract(tile::ContractOp op, tile::ConfigAttr config);

  static constexpr int64_t kWarp = 32;
  static constexpr int64_t kSumThreads = 128, kCopyThreads = 128;
  /// The warps that start copies of weights, and products.
  static constexpr int64_t kBoxWarp = 8, kProductWarp = 9;
  static constexpr int64_t kThreads = (kProductWarp + 1) * kWarp;

  /// The fixed side of the tensor cores' tile, and what the other one is a
  /// multiple of.
  static constexpr int64_t kBlockRows = 128, kRowUnit = 16, kMaxRows = 128;
  /// A step is one row of the 128-byte swizzle, of bytes.
  static constexpr int64_t kStep = kScaledStep, kStepBytes = kStep;
  static constexpr int64_t kChunkBytes = 16;
  /// Products of a step, and bytes of a row that each multiplies.
  static constexpr int64_t kProductBytes = kScaledColumns;
  static constexpr int64_t kStepProducts = kStepBytes / kProductBytes;
  static constexpr int64_t kMinStages = 2, kMaxStages = 8;
  static constexpr int64_t kBarrierBytes = 8;
  /// Scales of 128 rows of a step, of 8 bits each.
  static constexpr int64_t kScaleBlockBytes = kBlockRows * kStepProducts;
  /// Columns of tensor memory: all, the fewest that can be had, and those of
  /// the scales of 128 rows.
  static constexpr int64_t kTensorColumns = 512, kMinTensorColumns = 32;
  static constexpr int64_t kScaleBlockColumns = 4;

  bool isGrouped;
  int64_t groups, depth, columns;
  /// 2 with a layout: gate and up.
  int64_t weightsPerColumn;
  /// Weights have 8 bits in memory, or 4.
  bool areBytes;
  int64_t m, n, stages;

  int64_t getPanels() const { return (columns + n - 1) / n; }
  int64_t getSteps() const { return depth / kStep; }
  int64_t getBlocks() const { return weightsPerColumn * n / kBlockRows; }
  /// Blocks of neighbouring columns.
  int64_t getColumnBlocks() const { return n / kBlockRows; }

  /// Whether weights come by a tensor map; of fewer bits than they have in
  /// shared memory threads copy them.
  static bool mapsWeights(moe::QuantAttr quant);
  /// Bytes of a chunk in shared memory that weights have in memory, and those
  /// of a row.
  int64_t getChunkWeightBytes() const {
    return areBytes ? kChunkBytes : kChunkBytes / 2;
  }
  int64_t getWeightRowBytes() const { return areBytes ? depth : depth / 2; }

  //===--- Shared memory ---===//

  int64_t getBlockBytes() const { return kBlockRows * kStepBytes; }
  int64_t getWeightBytes() const { return getBlocks() * getBlockBytes(); }
  int64_t getStageBytes() const { return getWeightBytes() + m * kStepBytes; }
  /// Those of a stage: of each block of weights, then of input rows.
  int64_t getScaleBytes() const { return (getBlocks() + 1) * kScaleBlockBytes; }
  int64_t getScaleOffset() const { return stages * getStageBytes(); }
  /// Barriers: of each stage full and empty, of each set of sums full and
  /// empty.
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

  /// Sums of a tile, a column for each input row and block.
  int64_t getSumColumns() const { return getBlocks() * m; }
  int64_t getScaleColumns() const {
    return (getBlocks() + 1) * kScaleBlockColumns;
  }
  /// Sets of sums: one is multiplied into while another is taken out.
  int64_t getSumSets() const { return getColumns(2) <= kTensorColumns ? 2 : 1; }
  int64_t getFirstScaleColumn() const { return getSumSets() * getSumColumns(); }
  /// Needed columns; a power of two of them can be had.
  int64_t getUsedColumns() const { return getColumns(getSumSets()); }
  int64_t getAllocatedColumns() const;

private:
  int64_t getColumns(int64_t sets) const {
    return sets * getSumColumns() + stages * getScaleColumns();
  }
};

/// Why no config runs the product; empty if one may.
std::string declineContract(tile::ContractOp op);

/// The map by which weights are read, a block at a time, where
/// `areBytes`.
tile::TensorMapAttr getWeightMap(tile::ContractOp op, const Contract &shape);

//===----------------------------------------------------------------------===//
// Bits, by the PTX ISA, "TensorCore 5th Generation Family Instructions"
//===----------------------------------------------------------------------===//

/// Where the scales of a row of a step lie among those of 128 rows: a word of
/// four. What tcgen05.cp.32x128b copies is 32 lanes of 16 bytes, and a product
/// finds those of row r in lane r % 32, column r / 32 ("Scale factor layout",
/// scale_vec::1X).
constexpr int64_t getScaleWordOffset(int64_t row) {
  return row % 32 * 16 + row / 32 * 4;
}

/// The shared memory descriptor but for the address, which is in its lowest 14
/// bits in units of 16 bytes ("Shared memory descriptor"): the distance of
/// groups of 8 rows in the same units from bit 32 on, 1 from bit 46 on, the
/// swizzle from bit 61 on.
constexpr uint64_t makeDescriptor(uint64_t swizzle, uint64_t strideBytes) {
  return strideBytes / 16 << 32 | uint64_t(1) << 46 | swizzle << 61;
}
/// Rows of 128 swizzled bytes, and scales: rows of 16 bytes.
inline constexpr uint64_t kMatrixDescriptor = makeDescriptor(2, 8 * 128);
inline constexpr uint64_t kScaleDescriptor = makeDescriptor(0, 8 * 16);
inline constexpr uint64_t kDescriptorUnit = 16;

/// The instruction descriptor of a product of 128 weight rows with some input
/// rows, both of e4m3, whose scales are e8m0 ("Instruction descriptor", kind
/// mxf8f6f4): types at bits 7 and 10, 0 for e4m3; rows / 8 from bit 17 on; 1 at
/// bit 23 for e8m0; 128 / 16 from bit 24 on.
inline constexpr uint32_t kInstruction = uint32_t(1) << 23 | uint32_t(128 / 16)
                                                                 << 24;
/// What is added where weights are e2m1, 5 at bit 7.
inline constexpr uint32_t kInstructionE2M1 = uint32_t(5) << 7;
inline constexpr unsigned kInstructionRowBit = 17;
inline constexpr uint32_t kInstructionRowUnit = 8;
/// What product `i` of a step adds: which of the four bytes of a word of scales
/// is multiplied, of input rows from bit 4 on, and of weights from bit 29 on.
constexpr uint32_t getScaleIds(uint32_t i) { return i << 4 | i << 29; }

/// A lane of tensor memory in an address, whose lower half is the column.
inline constexpr int64_t kTensorLane = int64_t(1) << 16;

} // namespace moec::sm100

#endif // MOEC_ANALYSIS_SM100_H
