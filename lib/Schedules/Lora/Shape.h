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

/// Sizes that the choice and the code of both schedules share.
struct LoraShape {
  explicit LoraShape(tile::LoraShrinkOp op)
      : LoraShape(op.getMatrices(), /*rankDimension=*/2) {}
  explicit LoraShape(tile::LoraExpandOp op)
      : LoraShape(op.getMatrices(), /*rankDimension=*/3) {}

  /// CTAs for the columns of one matrix.
  int64_t getShrinkTiles(tile::GpuLoraShrinkAttr config) const {
    return llvm::divideCeil(rank,
                            config.getWarps() * config.getColumnsPerWarp());
  }
  int64_t getExpandTiles(tile::GpuLoraExpandAttr config) const {
    return llvm::divideCeil(width, config.getThreads() *
                                       config.getColumnsPerThread() /
                                       config.getThreadsPerColumn());
  }

  int64_t matrices, rank, width;
  /// The most elements of a row of a matrix that a thread may load at once.
  int64_t maxLanes;

private:
  LoraShape(mlir::ValueRange operands, unsigned rankDimension)
      : matrices(int64_t(operands.size())) {
    auto type = mlir::cast<mlir::MemRefType>(operands.front().getType());
    rank = type.getDimSize(rankDimension);
    width = type.getDimSize(5 - rankDimension);
    constexpr int64_t bits = 128;
    int64_t row = type.getDimSize(3);
    maxLanes =
        std::min<int64_t>(bits / type.getElementTypeBitWidth(), row & -row);
  }
};

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_SHAPE_H
