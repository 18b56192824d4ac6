//===- CollectiveQuantization.h - rows that a gather quantizes --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_COLLECTIVEQUANTIZATION_H
#define MOEC_LIB_TRANSFORMS_TILE_COLLECTIVEQUANTIZATION_H

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Schedules/Schedules.h"

#include <array>

namespace moec {

/// A quantization that the kernel of a gather may do itself: quantized values
/// and scales (by group or row), two of its inputs, are the only results of an
/// earlier launch on its stream, of a single quantize, and have no other use.
struct CollectiveQuantization {
  /// The rows to quantize; null for none.
  mlir::Value unquantized;
  /// Indices of the pair of quantized values and of the pair of scales.
  std::array<int64_t, 2> quantized;
};
CollectiveQuantization findQuantization(plan::CollectiveOp collective,
                                        mlir::SymbolTable &symbols,
                                        const Target &target);

/// Makes the collective quantize the rows.
void setQuantization(plan::CollectiveOp collective,
                     const CollectiveQuantization &values);

/// The quant of the collective's `unquantized`; null without.
moe::QuantAttr getCollectiveQuant(plan::CollectiveOp collective,
                                  mlir::SymbolTable &symbols);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_COLLECTIVEQUANTIZATION_H
