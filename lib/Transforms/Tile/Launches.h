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

/// The kernel of a launch; null if there is no such symbol.
tile::KernelOp getKernel(plan::LaunchOp launch, mlir::SymbolTable &symbols);

/// The only phase of a launch's kernel, if it is an `OpTy`.
template <typename OpTy>
OpTy getPhase(plan::LaunchOp launch, mlir::SymbolTable &symbols) {
  tile::KernelOp kernel = getKernel(launch, symbols);
  if (!kernel)
    return nullptr;
  auto phases = kernel.getBody().front().without_terminator();
  return llvm::hasSingleElement(phases) ? mlir::dyn_cast<OpTy>(*phases.begin())
                                        : nullptr;
}

/// The first phase of a kernel, which must be a gemm.
tile::GemmOp getProduct(tile::KernelOp kernel);

/// The launches of all variants.
llvm::SmallVector<plan::LaunchOp> getVariantLaunches(mlir::ModuleOp module);

/// Launches right behind another one on their stream, which may begin ahead of
/// its end.
llvm::SmallVector<plan::LaunchOp> findDependent(plan::VariantOp variant);

/// Operands of a launch, in the order of its kernel's arguments.
llvm::SmallVector<mlir::Value> getOperands(plan::LaunchOp launch);

/// The operand of a launch for an argument of its kernel; null for none.
mlir::Value getPassed(plan::LaunchOp launch, mlir::Value argument);

/// The last launch before another one that writes a value; null if there is
/// none.
plan::LaunchOp findWriter(plan::LaunchOp launch, mlir::Value value);

/// Whether a launch that reads `ins` and writes `outs` may overlap another one.
/// The caller's tensors may overlap.
bool isIndependent(mlir::ValueRange ins, mlir::ValueRange outs,
                   plan::LaunchOp other);

/// A slot without buffers.
int64_t makeSlot(plan::ProgramOp program);

/// Adds a buffer after the others of the program, in its own slot if those have
/// slots.
mlir::Value addBuffer(plan::ProgramOp program, mlir::Location loc,
                      mlir::Type type, llvm::StringRef name);

/// The name of the tensor or buffer that a plan passes.
llvm::StringRef getName(mlir::Value memory);

/// Adds a buffer of `topK` rows per token, without a slot, after the others or
/// the tensors; a number makes its name unique.
mlir::Value addRows(plan::ProgramOp program, mlir::Location loc,
                    mlir::Type type, const llvm::Twine &name, int64_t topK);

/// The counter that a launch of a `tile.sort_by_expert` sets to 0: one more of
/// the outs of all launches of its kernel, in its own slot. Later gemms that
/// need a counter share it, since they reset it to 0 or are the last to use it.
mlir::Value getCounter(plan::LaunchOp ranking, mlir::SymbolTable &symbols);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_LAUNCHES_H
