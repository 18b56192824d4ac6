//===- CollectiveCodes.h - codes that a collective may make -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_COLLECTIVECODES_H
#define MOEC_LIB_TRANSFORMS_TILE_COLLECTIVECODES_H

#include "moec/Analysis/Schedules.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Plan/Plan.h"

#include <array>

namespace moec {

/// A quantization that the kernel of a gather may do itself: quantized values
/// and scales (by group or row), two of its inputs, are the only results of an
/// earlier launch on its stream, of a single quantize, and have no other use.
struct CollectiveCodes {
  /// The rows to quantize; null for none.
  mlir::Value uncoded;
  /// Indices of the pair of quantized values and of the pair of scales.
  std::array<int64_t, 2> coded;
};
CollectiveCodes findCodes(plan::CollectiveOp collective,
                          mlir::SymbolTable &symbols, const Target &target);

/// Makes the collective quantize the rows.
void setCodes(plan::CollectiveOp collective, const CollectiveCodes &codes);

/// The quant of the collective's `codes_of`; null without.
moe::QuantAttr getCodesQuant(plan::CollectiveOp collective,
                             mlir::SymbolTable &symbols);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_COLLECTIVECODES_H
