//===- PackedExchange.h - kernels of an all-to-all --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_PACKEDEXCHANGE_H
#define MOEC_LIB_TRANSFORMS_TILE_PACKEDEXCHANGE_H

#include "moec/Dialect/Tile/Exchange.h"
#include "moec/Schedules/Schedules.h"

#include "mlir/IR/SymbolTable.h"

namespace moec {

/// Makes the kernels that let a gather of rows, and the sum that returns them,
/// run as an all-to-all.
class PackedExchangeMaker {
public:
  PackedExchangeMaker(mlir::ModuleOp module, mlir::SymbolTable &symbols,
                      const Target &target)
      : module(module), symbols(symbols), target(target) {}

  /// Handles all eligible gathers of the variant. Fails if a schedule refuses
  /// its own config.
  mlir::LogicalResult run(plan::VariantOp variant);

private:
  struct Made {
    tile::KernelOp kernel;
    moert::Expr rows;
  };

  mlir::LogicalResult addRoute(plan::CollectiveOp collective, int64_t ranks,
                               mlir::Value numValidTokens);
  mlir::LogicalResult addPack(plan::CollectiveOp gather, int64_t ranks);
  mlir::LogicalResult addSum(plan::CollectiveOp combine, int64_t ranks);
  mlir::LogicalResult
  add(plan::CollectiveOp collective, llvm::StringRef attribute,
      llvm::StringRef name, llvm::ArrayRef<mlir::Type> types,
      llvm::function_ref<mlir::Operation *(mlir::OpBuilder &, mlir::ValueRange,
                                           mlir::Value)>
          makePhase);

  mlir::ModuleOp module;
  mlir::SymbolTable &symbols;
  const Target &target;
  llvm::SmallVector<Made> made;
};

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_PACKEDEXCHANGE_H
