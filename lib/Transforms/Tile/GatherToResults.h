//===- GatherToResults.h - gathers that nobody takes ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_GATHERTORESULTS_H
#define MOEC_LIB_TRANSFORMS_TILE_GATHERTORESULTS_H

#include "moec/Dialect/Plan/Plan.h"

#include "mlir/IR/SymbolTable.h"

namespace moec {

/// Marks gathers `to_results` whose kernels may write directly into the results
/// of other ranks: buffers that no step uses before, and whose last use
/// precedes a later collective of the axis with a kernel, also in runs without
/// tokens.
void gatherToResults(plan::VariantOp variant, mlir::SymbolTable &symbols);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_GATHERTORESULTS_H
