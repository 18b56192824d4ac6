//===- Problem.h - what a gemm of sm90.gemm computes ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_PROBLEM_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_PROBLEM_H

#include "Adapters.h"
#include "moec/Schedules/ProductTypes.h"
#include "moec/Support/GpuInstructions.h"

#include <optional>

namespace moec::sm90 {

/// Columns of a tile of quantized results, which are also the columns that
/// share a computed scale.
inline constexpr int64_t kQuantizedColumns = 128;

/// Bits of an element of input rows before they are quantized.
inline constexpr int64_t kRawBits = 16;

/// A packed tile of weights: 64 weight rows x 64 of K.
struct PackedTile {
  /// Bytes of quantized values, and of a copy of scales with zero points, which
  /// `scaleTiles` packed tiles along K share.
  int64_t valueBytes, scaleBytes, scaleTiles;
  /// Values are indices into a code book; pairs of its entries are looked up.
  bool hasBook;
};

/// A gemm whatever its config: sizes, types and quantization.
struct GemmProblem {
  explicit GemmProblem(tile::GemmOp op);

  bool isGrouped;
  int64_t groups;
  /// K, and the columns of the result.
  int64_t sizeK, columns;
  /// Columns that one launch computes: whole tiles, if not all columns.
  int64_t launchColumns;
  /// 2 with a layout (gate and up), else 1.
  int64_t weightsPerColumn;
  /// Bits of an element of weights and of input rows in shared memory.
  int64_t storageBits, inputBits;
  /// Input rows have 16-bit elements in memory, and are quantized as they are
  /// copied.
  bool quantizesInput;
  int64_t resultBytes;
  /// Results are quantized to 8 bits; with scales that are computed, not given.
  bool quantizes, findsScales;
  /// The operand type of tensor cores.
  ComputeType compute;
  ScaleTimes scales;
  /// Prepacked weights, which are decoded into registers and multiplied from
  /// there; no value for weights that are multiplied from shared memory.
  std::optional<PackedTile> packed;
  /// Adapters whose matrices are further k tiles; no value without.
  std::optional<AdapterTiles> adapters;
  /// Each k tile is accumulated separately and added in f32: where scales are
  /// applied per k tile, or where tensor cores would lose too many digits over
  /// a whole row.
  bool promotes;
  /// Bytes of a swizzle row of the input rows: a k tile, or the K of a packed
  /// tile.
  int64_t swizzleBytes = kSwizzleBytes;
  /// Limits of the sizes of groups that have tiles; no value: no limit.
  std::optional<uint64_t> minGroupRows, maxGroupRows;

  bool isPrepacked() const { return packed.has_value(); }
  bool hasBook() const { return packed && packed->hasBook; }
  /// Scales are copied with each k tile.
  bool copiesScales() const { return scales.areInLoop(); }
  /// Bytes of a weight row, with its scales where these are copied with it.
  int64_t getRowBytes() const {
    int64_t bytes = sizeK * storageBits / 8;
    if (!packed)
      return bytes;
    return bytes + bytes * packed->scaleBytes /
                       (packed->valueBytes * packed->scaleTiles);
  }
  /// Bytes of an input row in memory.
  int64_t getInputRowBytes() const {
    return sizeK * (quantizesInput ? kRawBits : inputBits) / 8;
  }
  /// Tensor maps of the weights. Prepacked weights have two: quantized values
  /// and scales.
  int64_t getWeightMaps() const { return packed ? 2 : 1; }
};

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_PROBLEM_H
