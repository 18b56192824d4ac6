//===- Tile.h - the tile dialect --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_TILE_TILE_H
#define MOEC_DIALECT_TILE_TILE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Configs.h"

#include "dialects/Tile/TileDialect.h.inc"
#include "dialects/Tile/TileEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Tile/TileAttrs.h.inc"
namespace moec::tile {

/// "[4, ?, 8]" as numbers, `?` as ShapedType::kDynamic.
mlir::FailureOr<llvm::SmallVector<int64_t>>
parseIntegerList(mlir::AsmParser &parser);
void printIntegerList(mlir::AsmPrinter &printer,
                      llvm::ArrayRef<int64_t> values);

} // namespace moec::tile

#define GET_OP_CLASSES
#include "dialects/Tile/TileOps.h.inc"

#endif // MOEC_DIALECT_TILE_TILE_H
