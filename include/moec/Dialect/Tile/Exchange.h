//===- Exchange.h - phases that several ranks run ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ops of exchanges. Separate from Tile.h, which nearly all files
// of the compiler include.

#ifndef MOEC_DIALECT_TILE_EXCHANGE_H
#define MOEC_DIALECT_TILE_EXCHANGE_H

#include "moec/Dialect/Tile/Tile.h"

#define GET_OP_CLASSES
#include "dialects/Tile/TileExchangeOps.h.inc"

namespace moec {

/// On a plan.collective, FlatSymbolRefAttrs of the kernels that may run it
/// through the memory of other ranks, or pack rows for an all-to-all.
inline constexpr llvm::StringLiteral kExchangeKernelAttr =
    "plan.exchange_kernel";
inline constexpr llvm::StringLiteral kRouteKernelAttr = "plan.route_kernel";
inline constexpr llvm::StringLiteral kPackKernelAttr = "plan.pack_kernel";

} // namespace moec

#endif // MOEC_DIALECT_TILE_EXCHANGE_H
