//===- Variants.h - the token ranges of a plan ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_VARIANTS_H
#define MOEC_LIB_TRANSFORMS_TILE_VARIANTS_H

#include "moec/Dialect/Plan/Plan.h"

namespace moec {

/// Splits each variant at the token count from which on one of its launches
/// would be different; `firstTokens` returns that count, or nothing.
void splitVariants(
    mlir::ModuleOp module,
    llvm::function_ref<std::optional<int64_t>(plan::LaunchOp)> firstTokens);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_VARIANTS_H
