//===- InlinePtx.h - machine instructions without an op ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// All inline assembly that emission writes itself, and which op of MLIR 22.1 it
// stands for.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_INLINEPTX_H
#define MOEC_LIB_CONVERSION_TILETONVVM_INLINEPTX_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace moec {

/// The f32 values again, not to be read before this point, and each in a
/// register of its own. No instruction is made.
///
/// Stands for an `nvvm.wgmma.wait.group.sync.aligned` that takes and returns
/// the accumulators: the op has no operands, so that LLVM may move arithmetic
/// on accumulators in front of the wait; and for an op that makes accumulators
/// of zero, in place of constants that LLVM shares.
llvm::SmallVector<mlir::Value> tieSums(mlir::ImplicitLocOpBuilder &b,
                                       mlir::ValueRange sums);

/// The i32 values again, computed before this point. No instruction is made.
///
/// Stands for an op that LLVM does not look through: what a loop carries it
/// would compute where it is used, at the beginning of the next turn.
llvm::SmallVector<mlir::Value> tieWords(mlir::ImplicitLocOpBuilder &b,
                                        mlir::ValueRange words);

/// The same of i64 values. Behind loads: what does not follow from them is not
/// behind what does.
llvm::SmallVector<mlir::Value> tieNumbers(mlir::ImplicitLocOpBuilder &b,
                                          mlir::ValueRange numbers);

/// The same of a global address: what a branch alone needs LLVM would compute
/// there, and of one that is more than a few instructions ptxas makes no
/// predicates.
mlir::Value tieAddress(mlir::ImplicitLocOpBuilder &b, mlir::Value address);

/// Starts a product of 64 rows of e4m3 with `old.size() * 2`, as a wgmma of
/// NVVM does, by the descriptors `a` and `c`: added to `old` where `keeps`
/// (i32) is not 0. The registers are those of `old`, which LLVM may still move
/// there: the fence is behind that. A struct of f32.
///
/// Stands for an `nvvm.wgmma.mma_async` whose scale of the accumulators is a
/// value. Where it is a constant 0, ptxas does not tie a new chain of products
/// to the registers of the one before, moves its start ahead of the arithmetic
/// on that one, and has no registers for both.
mlir::Value multiplyE4M3(mlir::ImplicitLocOpBuilder &b, mlir::ValueRange old,
                         mlir::Value a, mlir::Value c, mlir::Value keeps);

/// Starts adding a product of 64 rows of `element` (bf16, f16 or e4m3), of
/// which `a` (four i32) are the thread's fragments of 32 bytes of the depth,
/// with `old.size() * 2` rows by the descriptor `c`. A struct of f32. The
/// fragments stay as they are until a wait. With `keeps` (i32) as
/// `multiplyE4M3` has it.
///
/// Stands for an `nvvm.wgmma.mma_async` whose first operand is in registers.
mlir::Value multiplyFragments(mlir::ImplicitLocOpBuilder &b, mlir::Type element,
                              mlir::ValueRange old, mlir::ValueRange a,
                              mlir::Value c, mlir::Value keeps = {});

/// Starts a product of 128 rows at `a` with the rows at `c`, descriptors of
/// elements of 8 bits or fewer, whose blocks of 32 are scaled by what lies in
/// tensor memory at `scaleA` and `scaleC` (i32); it is added to the sums at the
/// address `sums` (i32) where `keeps` (i1) is set.
///
/// Stands for an `nvvm.tcgen05.mma.block_scale` that says `scale_vec::1X`: of
/// what the op says, which is nothing or `block32`, ptxas asks for PTX 8.8.
void multiplyScaledBlocks(mlir::ImplicitLocOpBuilder &b, mlir::Value sums,
                          mlir::Value a, mlir::Value c, mlir::Value instruction,
                          mlir::Value keeps, mlir::Value scaleA,
                          mlir::Value scaleC);

/// The thread's number in its CTA (i32), read anew at this point: no register
/// keeps it, and what follows from it, through a loop before.
///
/// Stands for an `nvvm.read.ptx.sreg.tid.x` that LLVM does not merge with the
/// others.
mlir::Value readThread(mlir::ImplicitLocOpBuilder &b);

/// The end of a piece of code that LLVM shall not merge with another's end.
///
/// Stands for an op that is never merged with its like: where the last store of
/// two bodies is made one, their accumulators share a register, and ptxas
/// serializes the products (C7511). No instruction is made.
void endApart(mlir::ImplicitLocOpBuilder &b);

/// What is at the addresses (global pointers) may be new from here on. No
/// instruction is made.
///
/// Stands for an `nvvm.griddepcontrol wait` that says what it makes visible:
/// the op has no operands, so that LLVM would take memory behind `noalias` that
/// the kernel only reads for constant as long as the kernel runs, and load it
/// by ld.global.nc, which a wait does not order.
void renewMemory(mlir::ImplicitLocOpBuilder &b, mlir::ValueRange addresses);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_INLINEPTX_H
