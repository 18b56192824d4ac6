//===- RowCodes.h - rows that an exchange quantizes itself ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_ROWCODES_H
#define MOEC_DIALECT_ROWCODES_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/ValueRange.h"
#include "llvm/ADT/STLExtras.h"

namespace moec {

/// Operands `codes_of` and `coded` of plan.collective and tile.exchange: two of
/// the gathered pairs are the quantized values and scales of the rank's own
/// rows, as a quantize makes them.
struct RowCodes {
  /// The rows to quantize; null for none.
  mlir::Value uncoded;
  /// Indices of the pair of quantized values and of the pair of scales; empty
  /// for none.
  llvm::ArrayRef<int64_t> coded;

  /// Elements of a row per scale; no value if it is not one of the group sizes
  /// 32, 64 and 128, for which part of a warp has each group.
  static std::optional<int64_t> getGroup(mlir::MemRefType codes,
                                         mlir::MemRefType scales) {
    if (codes.getRank() != 2 || scales.getRank() != 2 ||
        codes.isDynamicDim(1) || scales.isDynamicDim(1) ||
        scales.getDimSize(1) == 0 ||
        codes.getDimSize(1) % scales.getDimSize(1) != 0)
      return std::nullopt;
    int64_t group = codes.getDimSize(1) / scales.getDimSize(1);
    if (group != 32 && group != 64 && group != 128)
      return std::nullopt;
    return group;
  }

  /// Whether each row has one scale and is a multiple of 16 bytes.
  static bool areRows(mlir::MemRefType codes, mlir::MemRefType scales) {
    constexpr int64_t pieceBytes = 16;
    return codes.getRank() == 2 && scales.getRank() == 2 &&
           !codes.isDynamicDim(1) && codes.getDimSize(1) > 0 &&
           codes.getDimSize(1) % pieceBytes == 0 && scales.getDimSize(1) == 1;
  }

  /// Whether the exchange kernel supports this quantization: e4m3 by group or
  /// row, or int8 by row.
  static bool areMade(mlir::MemRefType codes, mlir::MemRefType scales) {
    bool areFloats = mlir::isa<mlir::Float8E4M3FNType>(codes.getElementType());
    if (!scales.getElementType().isF32() ||
        (!areFloats && !codes.getElementType().isInteger(8)))
      return false;
    return areRows(codes, scales) ||
           (areFloats && getGroup(codes, scales).has_value());
  }
};

/// Verifies `given` for an op that moves `ins`, those in `owned` only to
/// destination ranks, by a gather or a sum.
inline mlir::LogicalResult
verifyRowCodes(mlir::Operation *op, const RowCodes &given, mlir::ValueRange ins,
               llvm::ArrayRef<int64_t> owned, bool gathers) {
  using namespace mlir;
  if (!given.uncoded && given.coded.empty())
    return success();
  if (!given.uncoded || given.coded.empty())
    return op->emitOpError("has one of 'codes_of' and 'coded'; give both, or "
                           "drop them");
  if (!gathers)
    return op->emitOpError("sums rows and gathers none; drop 'codes_of'");
  auto isPair = [&](int64_t number) {
    return number >= 0 && number < int64_t(ins.size());
  };
  if (given.coded.size() != 2 || !llvm::all_of(given.coded, isPair) ||
      given.coded[0] == given.coded[1])
    return op->emitOpError("has [")
           << given.coded << "] as 'coded'; give the numbers of the codes and "
           << "of their scales among " << ins.size() << " 'ins'";
  auto codes = cast<MemRefType>(ins[size_t(given.coded[0])].getType());
  auto scales = cast<MemRefType>(ins[size_t(given.coded[1])].getType());
  auto rows = cast<MemRefType>(given.uncoded.getType());
  if (!RowCodes::areMade(codes, scales) || !codes.isDynamicDim(0) ||
      !scales.isDynamicDim(0))
    return op->emitOpError("has codes of type ")
           << codes << " with scales of type " << scales
           << "; give any number of rows of f8E4M3FN, with an f32 for each 32, "
              "64 or 128 of a row, or of f8E4M3FN or i8 with an f32 for each "
              "row of a multiple of 16";
  if (rows.getShape() != codes.getShape() ||
      (!rows.getElementType().isBF16() && !rows.getElementType().isF16()))
    return op->emitOpError("has rows of type ")
           << rows << " for codes of type " << codes
           << "; give as many bf16 or f16";
  if (llvm::is_contained(owned, given.coded[0]) !=
      llvm::is_contained(owned, given.coded[1]))
    return op->emitOpError("has one of 'coded' in 'owned'; give both or none, "
                           "since scales go where their codes do");
  return success();
}

} // namespace moec

#endif // MOEC_DIALECT_ROWCODES_H
