//===- RowQuantization.h - rows that exchanges quantize ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_ROWQUANTIZATION_H
#define MOEC_DIALECT_ROWQUANTIZATION_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/ValueRange.h"
#include "llvm/ADT/STLExtras.h"

namespace moec {

/// Operands `unquantized` and `quantized` of plan.collective and tile.exchange:
/// two of the gathered pairs are the quantized values and scales of the rank's
/// own rows, as a quantize makes them.
struct RowQuantization {
  /// The rows to quantize; null for none.
  mlir::Value unquantized;
  /// Indices of the pair of quantized values and of the pair of scales; empty
  /// for none.
  llvm::ArrayRef<int64_t> quantized;

  /// Elements of a row per scale; no value except for 32, 64 and 128, where
  /// some lanes of a warp hold a group.
  static std::optional<int64_t> getGroup(mlir::MemRefType values,
                                         mlir::MemRefType scales) {
    if (values.getRank() != 2 || scales.getRank() != 2 ||
        values.isDynamicDim(1) || scales.isDynamicDim(1) ||
        scales.getDimSize(1) == 0 ||
        values.getDimSize(1) % scales.getDimSize(1) != 0)
      return std::nullopt;
    int64_t group = values.getDimSize(1) / scales.getDimSize(1);
    if (group != 32 && group != 64 && group != 128)
      return std::nullopt;
    return group;
  }

  /// Whether each row has one scale and is a multiple of 16 bytes.
  static bool areRows(mlir::MemRefType values, mlir::MemRefType scales) {
    constexpr int64_t chunkBytes = 16;
    return values.getRank() == 2 && scales.getRank() == 2 &&
           !values.isDynamicDim(1) && values.getDimSize(1) > 0 &&
           values.getDimSize(1) % chunkBytes == 0 && scales.getDimSize(1) == 1;
  }

  /// Whether the exchange kernel supports this quantization: e4m3 by group or
  /// row, or int8 by row.
  static bool areMade(mlir::MemRefType values, mlir::MemRefType scales) {
    bool areFloats = mlir::isa<mlir::Float8E4M3FNType>(values.getElementType());
    if (!scales.getElementType().isF32() ||
        (!areFloats && !values.getElementType().isInteger(8)))
      return false;
    return areRows(values, scales) ||
           (areFloats && getGroup(values, scales).has_value());
  }
};

/// Verifies `given` for an op that moves `ins`, those in `routed` only to
/// destination ranks, by a gather or a sum.
inline mlir::LogicalResult verifyRowQuantization(mlir::Operation *op,
                                                 const RowQuantization &given,
                                                 mlir::ValueRange ins,
                                                 llvm::ArrayRef<int64_t> routed,
                                                 bool gathers) {
  using namespace mlir;
  if (!given.unquantized && given.quantized.empty())
    return success();
  if (!given.unquantized || given.quantized.empty())
    return op->emitOpError(
        "has only one of 'unquantized' and 'quantized'; give both or neither");
  if (!gathers)
    return op->emitOpError(
        "sums rows, which cannot be quantized; remove 'unquantized'");
  auto isPair = [&](int64_t number) {
    return number >= 0 && number < int64_t(ins.size());
  };
  if (given.quantized.size() != 2 || !llvm::all_of(given.quantized, isPair) ||
      given.quantized[0] == given.quantized[1])
    return op->emitOpError("has [")
           << given.quantized
           << "] as 'quantized'; give the indices of the quantized values and "
           << "of their scales among " << ins.size() << " 'ins'";
  auto values = cast<MemRefType>(ins[size_t(given.quantized[0])].getType());
  auto scales = cast<MemRefType>(ins[size_t(given.quantized[1])].getType());
  auto rows = cast<MemRefType>(given.unquantized.getType());
  if (!RowQuantization::areMade(values, scales) || !values.isDynamicDim(0) ||
      !scales.isDynamicDim(0))
    return op->emitOpError("has quantized values of type ")
           << values << " with scales of type " << scales
           << "; give rows of f8E4M3FN with an f32 scale for each 32, 64 or "
              "128 elements, or rows of f8E4M3FN or i8 with an f32 scale for "
              "each row of a multiple of 16";
  if (rows.getShape() != values.getShape() ||
      (!rows.getElementType().isBF16() && !rows.getElementType().isF16()))
    return op->emitOpError("has rows of type ")
           << rows << " for quantized values of type " << values
           << "; give rows of bf16 or f16 of the same shape";
  if (llvm::is_contained(routed, given.quantized[0]) !=
      llvm::is_contained(routed, given.quantized[1]))
    return op->emitOpError(
        "has only one of 'quantized' in 'routed'; give both or neither, since "
        "quantized values and their scales go to the same ranks");
  return success();
}

} // namespace moec

#endif // MOEC_DIALECT_ROWQUANTIZATION_H
