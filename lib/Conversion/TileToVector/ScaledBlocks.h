//===- ScaledBlocks.h - blocks of quantized operands as f32 -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETOVECTOR_SCALEDBLOCKS_H
#define MOEC_LIB_CONVERSION_TILETOVECTOR_SCALEDBLOCKS_H

#include "Emit.h"

namespace moec {

/// The operands of a product of which one or both are quantized, one block of
/// contracted elements that share scales after the other: as f32 in memory of
/// the CTA, so that each element is decoded once and meets all rows and columns
/// of the CTA from a near cache.
class ScaledBlocks {
public:
  struct Sizes {
    /// Input rows, columns and weights per column (gate and up) of a CTA.
    int64_t rows, columns, weightsPerColumn, lanes;
  };

  ScaledBlocks(KernelEmitter &emitter, tile::ContractOp op, Sizes sizes);

  /// `rows x block`, and `weightsPerColumn * columns x block` of f32: what the
  /// dot products of a block read. Behind the last element of a row there are
  /// zeros.
  mlir::Value getInput() const { return input; }
  mlir::Value getWeight() const { return weight; }
  /// The row of a column of the CTA's in `getWeight()`.
  mlir::Value getWeightRow(int64_t projection, mlir::Value column);

  /// Calls `body` with each block in memory, for `count` input rows (`getRow`
  /// maps them) and the CTA's columns. `group` leads the weight's indices, null
  /// for none.
  void forBlocks(mlir::Value group, mlir::Value count, RowRange columns,
                 llvm::function_ref<mlir::Value(mlir::Value)> getRow,
                 llvm::function_ref<void()> body);

  /// The scales of `length` neighbouring columns with that of an input row; 1
  /// where elements have become what they stand for.
  mlir::Value getFactors(mlir::Value row, int64_t projection,
                         mlir::Value column, int64_t length);

private:
  using Index = llvm::SmallVector<mlir::Value, 3>;

  void loadInput(mlir::Value block, int64_t size, mlir::Value count,
                 llvm::function_ref<mlir::Value(mlir::Value)> getRow);
  void loadWeight(mlir::Value block, int64_t size, mlir::Value group,
                  RowRange columns);
  /// The scale at an index, with the global one of the projection.
  mlir::Value loadWeightScale(mlir::Value scales, const Index &at,
                              mlir::Value group, int64_t projection);
  /// Whether weights become what they stand for, scales and all: minima are
  /// subtracted behind the scale.
  bool hasMinima();
  /// What elements are multiplied by, and less by then, in each lane; null for
  /// nothing.
  struct Line {
    mlir::Value factor, less;
  };
  /// The `size` elements of a row from `first` on, then zeros. `quant` is null
  /// for what stands for itself.
  void convertRow(mlir::Value from, moe::QuantAttr quant, Line line,
                  const Index &row, mlir::Value first, int64_t size,
                  mlir::Value to, mlir::Value toRow);
  /// The column of scales of an operand that a block has.
  mlir::Value getScaleColumn(moe::QuantAttr quant, mlir::Value number);
  mlir::Value decode(mlir::Value from, moe::QuantAttr quant, const Index &row,
                     mlir::Value first, int64_t count);
  mlir::Value loadBytes(mlir::Value from, const Index &row, mlir::Value first,
                        int64_t length, int64_t count);

  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  tile::ContractOp op;
  Sizes sizes;
  int64_t depth;
  /// Contracted elements of a block.
  int64_t block;
  /// Scales are null where the operand has none.
  mlir::Value input, weight, rowScales, columnScales;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETOVECTOR_SCALEDBLOCKS_H
