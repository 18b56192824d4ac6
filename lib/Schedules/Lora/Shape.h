//===- Shape.h - sizes of a product with adapters ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_LORA_SHAPE_H
#define MOEC_LIB_SCHEDULES_LORA_SHAPE_H

#include "moec/Dialect/Tile/Tile.h"
#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

namespace moec::lora {

/// Sizes that the choice and the code share.
struct LoraShape {
  template <typename OpT>
  explicit LoraShape(OpT op) : matrices(int64_t(op.getMatrices().size())) {
    constexpr int64_t bits = 128;
    auto type =
        mlir::cast<mlir::MemRefType>(op.getMatrices().front().getType());
    adapters = type.getDimSize(0);
    groups = type.getDimSize(1);
    rank = type.getDimSize(2);
    width = type.getDimSize(3);
    maxLanes =
        std::min<int64_t>(bits / type.getElementTypeBitWidth(), width & -width);
  }

  /// CTAs for the columns of one matrix.
  int64_t getTiles(tile::GpuLoraShrinkAttr config) const {
    return llvm::divideCeil(rank,
                            config.getWarps() * config.getColumnsPerWarp());
  }

  /// Tiles of 8 columns of a matrix.
  int64_t getColumnTiles() const {
    constexpr int64_t columns = 8;
    return llvm::divideCeil(rank, columns);
  }
  /// Columns of the results of a gpu.lora_update.
  static int64_t getColumns(tile::LoraUpdateOp op) {
    return mlir::cast<mlir::MemRefType>(op.getSecond().front().getType())
        .getDimSize(2);
  }
  /// The rank, and zeros up to K of a product of tensor cores.
  int64_t getPaddedRank() const { return llvm::alignTo(rank, kProductDepth); }
  static constexpr int64_t kProductDepth = 16;
  /// The most columns of the shrunk rows that a CTA keeps.
  static constexpr int64_t kMaxShrunk = 256;

  /// Rows of a product of tensor cores.
  static constexpr int64_t kTileRows = 16;
  /// Up to so many positions, a CTA of gpu.lora_tile has so many of them, and
  /// 16 of more: many CTAs for few, and matrices read by few CTAs for many.
  struct Window {
    int64_t positions, rows;
  };
  static constexpr Window kWindows[] = {{256, 1}, {2048, 4}};

  /// The most rows of a part of gpu.lora_parts; one of gpu.lora_update has up
  /// to kTileRows.
  static constexpr int64_t kPartRows = 2 * kTileRows;
  /// Up to so many positions, a CTA of gpu.lora_parts has 8 columns of one row.
  static constexpr int64_t kFewPositions = 128;
  /// The most adapters of a layer whose CTAs count rows of each.
  static constexpr int64_t kMaxCounted = 1023;
  /// Kinds of rows: one for each adapter, and those without.
  int64_t getKinds() const { return adapters + 1; }

  int64_t matrices, adapters, groups, rank, width;
  /// The most elements of a row of a matrix that a thread may load at once.
  int64_t maxLanes;
};

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_SHAPE_H
