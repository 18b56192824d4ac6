//===- ScaledBlocks.h - blocks of quantized operands as f32 -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_CPU_SCALEDBLOCKS_H
#define MOEC_LIB_SCHEDULES_CPU_SCALEDBLOCKS_H

#include "Decode.h"
#include "Emit.h"

namespace moec {

/// Decoded operands of a gemm with one or both operands quantized. One scale
/// block along K after the other is written as f32 to memory of the CTA, so
/// that each element is decoded once and read from a near cache for all rows
/// and columns of the CTA.
class ScaledBlocks {
public:
  struct Sizes {
    /// Input rows, columns and weights per column (gate and up) of a CTA.
    int64_t rows, columns, weightsPerColumn, lanes;
    /// False if operands are multiplied as they are stored, so that only
    /// `loadScales` and `getFactors` are called.
    bool decodes = true;
  };

  ScaledBlocks(KernelEmitter &emitter, tile::GemmOp op, Sizes sizes);

  /// f32 memrefs that the dot products of a block read: `rows x block`, and
  /// `weightsPerColumn * columns x block`. Zeros follow the last element of a
  /// row.
  mlir::Value getInput() const { return input; }
  mlir::Value getWeight() const { return weight; }
  /// Row in `getWeight()` of a column of the CTA.
  Index getWeightRow(int64_t projection, Index column);

  /// Calls `body` with each block in memory, for `count` input rows (`getRow`
  /// maps them) and the CTA's columns. `group`: leading index into the weights,
  /// null for none.
  void forBlocks(Index group, Index count, RowRange columns,
                 llvm::function_ref<Index(Index)> getRow,
                 llvm::function_ref<void()> body);

  /// Loads the scales of whole rows, for arguments as of `forBlocks`.
  void loadScales(Index group, Index count, RowRange columns,
                  llvm::function_ref<Index(Index)> getRow);

  /// The scales of `length` adjacent columns times that of an input row; 1 if
  /// elements are scaled already.
  F32 getFactors(Index row, int64_t projection, Index column, int64_t length);

private:
  using Indices = llvm::SmallVector<mlir::Value, 3>;

  /// Stores the scale of input row `source` for a row of the CTA.
  void storeRowScale(Index source, Index scaleColumn, Index row);
  void loadInput(Index number, int64_t size, Index count,
                 llvm::function_ref<Index(Index)> getRow);
  void loadWeight(Index number, int64_t size, Index group, RowRange columns);
  /// The scale at an index, times the global one of the projection.
  F32 loadWeightScale(mlir::Value scales, const Indices &at, Index group,
                      int64_t projection);
  /// Whether weights are scaled as they are decoded, because minima are
  /// subtracted after the scale.
  bool hasMinima();
  /// Factor of elements in each lane, and the value subtracted afterwards; null
  /// for none.
  struct Line {
    F32 factor, less;
  };
  /// Converts the `size` elements of a row from `first` on, followed by zeros.
  /// `quant` is null for an operand that is not quantized.
  void convertRow(mlir::Value from, moe::QuantAttr quant, Line line,
                  const Indices &row, Index first, int64_t size, mlir::Value to,
                  Index toRow);
  /// The column of an operand's scales for a block.
  Index getScaleColumn(moe::QuantAttr quant, Index number);
  F32 decode(mlir::Value from, moe::QuantAttr quant, const Indices &row,
             Index first, int64_t count);
  I8 loadBytes(mlir::Value from, const Indices &row, Index first,
               int64_t length, int64_t count);

  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  tile::GemmOp op;
  Sizes sizes;
  int64_t sizeK;
  /// Elements of a block along K.
  int64_t block;
  /// Scales are null if the operand has none.
  mlir::Value input, weight, rowScales, columnScales;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_CPU_SCALEDBLOCKS_H
