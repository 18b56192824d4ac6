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
  explicit LoraShape(tile::LoraShrinkOp op)
      : matrices(int64_t(op.getMatrices().size())) {
    constexpr int64_t bits = 128;
    auto type =
        mlir::cast<mlir::MemRefType>(op.getMatrices().front().getType());
    adapters = type.getDimSize(0);
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

  /// Rows of a product of tensor cores.
  static constexpr int64_t kTileRows = 16;
  /// Up to so many positions, a CTA of gpu.lora_tile has so many of them: many
  /// CTAs for few, and matrices read by few CTAs for many.
  struct Window {
    int64_t positions, rows;
  };
  static constexpr Window kWindows[] = {{256, 1}, {2048, 4}};

  int64_t matrices, adapters, rank, width;
  /// The most elements of a row of a matrix that a thread may load at once.
  int64_t maxLanes;
};

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_SHAPE_H
