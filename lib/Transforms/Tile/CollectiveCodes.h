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

/// What the kernel of a gather may make itself: two of its inputs, codes and
/// scales of groups of rows or of whole rows, are all that a launch before it
/// on its stream makes, by a quantize alone, and nobody else reads them.
struct CollectiveCodes {
  /// The rows; null for none.
  mlir::Value uncoded;
  /// The numbers of the pairs of codes and of scales.
  std::array<int64_t, 2> coded;
};
CollectiveCodes findCodes(plan::CollectiveOp collective,
                          mlir::SymbolTable &symbols, const Target &target);

/// Lets it make these.
void setCodes(plan::CollectiveOp collective, const CollectiveCodes &codes);

/// How a collective that has them makes them; null for one without.
moe::QuantAttr getCodesQuant(plan::CollectiveOp collective,
                             mlir::SymbolTable &symbols);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_COLLECTIVECODES_H
