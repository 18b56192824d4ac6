//===- TensorMaps.h - what the tensor maps of a kernel obey -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_DIALECT_TILE_TENSORMAPS_H
#define MOEC_LIB_DIALECT_TILE_TENSORMAPS_H

#include "moec/Dialect/Tile/Tile.h"

namespace moec::tile {

/// Verifies that each map fits the argument that it views.
llvm::LogicalResult verifyTensorMaps(KernelOp kernel);

} // namespace moec::tile

#endif // MOEC_LIB_DIALECT_TILE_TENSORMAPS_H
