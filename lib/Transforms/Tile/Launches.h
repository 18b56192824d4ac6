//===- Launches.h - what launches of a plan run and pass --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_LAUNCHES_H
#define MOEC_LIB_TRANSFORMS_TILE_LAUNCHES_H

#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// The kernel of a launch; null if there is none of its name.
tile::KernelOp getKernel(plan::LaunchOp launch, mlir::SymbolTable &symbols);

/// The one phase of a launch's kernel, if it is an `OpTy`.
template <typename OpTy>
OpTy getPhase(plan::LaunchOp launch, mlir::SymbolTable &symbols) {
  tile::KernelOp kernel = getKernel(launch, symbols);
  if (!kernel)
    return nullptr;
  auto phases = kernel.getBody().front().without_terminator();
  return llvm::hasSingleElement(phases) ? mlir::dyn_cast<OpTy>(*phases.begin())
                                        : nullptr;
}

/// The first phase of a kernel, which is a product.
tile::ContractOp getProduct(tile::KernelOp kernel);

/// The launches of all variants.
llvm::SmallVector<plan::LaunchOp> getVariantLaunches(mlir::ModuleOp module);

/// What a launch passes, in the order of its kernel's arguments.
llvm::SmallVector<mlir::Value> getOperands(plan::LaunchOp launch);

/// What a launch passes for an argument of its kernel; null for none.
mlir::Value getPassed(plan::LaunchOp launch, mlir::Value argument);

/// The last launch before another one that writes a value; null if there is
/// none.
plan::LaunchOp findWriter(plan::LaunchOp launch, mlir::Value value);

/// Whether a launch that reads `ins` and writes `outs` may run beside another
/// one. Tensors of the caller's may lie anywhere.
bool isIndependent(mlir::ValueRange ins, mlir::ValueRange outs,
                   plan::LaunchOp other);

/// A slot that no buffer of the program has.
int64_t makeSlot(plan::ProgramOp program);

/// A buffer behind the others of the program, in a slot of its own if those
/// have slots.
mlir::Value addBuffer(plan::ProgramOp program, mlir::Location loc,
                      mlir::Type type, llvm::StringRef name);

/// The counter that a launch of a `tile.rank` sets to 0: as one more of what
/// all launches of its kernel write, in a slot of its own. Products behind it
/// that need one share it, for they leave 0 there or are the last that do.
mlir::Value getCounter(plan::LaunchOp ranking, mlir::SymbolTable &symbols);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_LAUNCHES_H
