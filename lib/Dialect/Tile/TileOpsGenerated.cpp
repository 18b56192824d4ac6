//===- TileOpsGenerated.cpp - generated half of tile's ops ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Alone in its file: it takes longest to compile and changes least.

#include "ScheduleOperands.h"
#include "moec/Dialect/Moe/ScalarRegion.h"
#include "moec/Dialect/Tile/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace moec::tile;
using moec::moe::parseScalarRegion;
using moec::moe::printScalarRegion;

#define GET_OP_CLASSES
#include "dialects/Tile/TileOps.cpp.inc"
