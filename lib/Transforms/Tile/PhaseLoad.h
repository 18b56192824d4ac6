//===- PhaseLoad.h - how many rows a gemm has -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_PHASELOAD_H
#define MOEC_LIB_TRANSFORMS_TILE_PHASELOAD_H

#include "mlir/IR/SymbolTable.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// The token count passed by a launch in a run of `tokens`.
int64_t getLaunchTokens(plan::LaunchOp launch, int64_t tokens);

/// The load of a launched gemm over all token counts of the variant; null if
/// its groups are unknown.
tile::LoadAttr getPhaseLoad(plan::LaunchOp launch, tile::GemmOp phase,
                            mlir::SymbolTable &symbols);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_PHASELOAD_H
