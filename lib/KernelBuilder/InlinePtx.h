//===- InlinePtx.h - machine instructions without an op ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// All inline assembly of emission, each with the op that MLIR 22.1 lacks.

#ifndef MOEC_LIB_KERNELBUILDER_INLINEPTX_H
#define MOEC_LIB_KERNELBUILDER_INLINEPTX_H

#include "Values.h"

namespace moec {

/// Copies of the f32 values that may not be read before this point, each in a
/// register of its own. Emits no instruction.
///
/// Stands for an `nvvm.wgmma.wait.group.sync.aligned` that takes and returns
/// the accumulators: the op has no operands, so that LLVM may move arithmetic
/// on accumulators in front of the wait; and for an op that makes accumulators
/// of zero, in place of constants that LLVM shares.
llvm::SmallVector<mlir::Value> tieSums(mlir::ImplicitLocOpBuilder &b,
                                       mlir::ValueRange sums);

/// Copies of the i32 values, computed before this point. Emits no instruction.
///
/// Stands for an op that is opaque to LLVM, which would otherwise sink the
/// computation of loop-carried values to their use in the next iteration.
llvm::SmallVector<mlir::Value> tieWords(mlir::ImplicitLocOpBuilder &b,
                                        mlir::ValueRange words);

/// Replaces typed values by such copies: `T` is F32 or I32.
template <typename T>
void tieValues(mlir::ImplicitLocOpBuilder &b, llvm::MutableArrayRef<T> values) {
  llvm::SmallVector<mlir::Value> plain(values);
  plain = std::is_same_v<T, F32> ? tieSums(b, plain) : tieWords(b, plain);
  for (auto [value, tied] : llvm::zip(values, plain))
    value = {b, tied};
}

/// Copies of i64 values. Used after loads: computations that do not depend on
/// the copies are not ordered after them.
llvm::SmallVector<mlir::Value> tieNumbers(mlir::ImplicitLocOpBuilder &b,
                                          mlir::ValueRange numbers);

/// A copy of one such value.
inline I32 tieWord(I32 word) {
  mlir::Value value = word;
  return {word.builder(), tieWords(word.builder(), value).front()};
}
inline I64 tieNumber(I64 number) {
  mlir::Value value = number;
  return {number.builder(), tieNumbers(number.builder(), value).front()};
}

/// Copy of a global address. LLVM would otherwise sink the computation of an
/// address into the only branch that needs it, and ptxas predicates no branch
/// of more than a few instructions.
mlir::Value tieAddress(mlir::ImplicitLocOpBuilder &b, mlir::Value address);

/// Issues a wgmma of 64 rows of e4m3 with `old.size() * 2`, by the descriptors
/// `a` and `c`, added to `old` if `keeps` (i32) is not 0. Results are in the
/// registers of `old`; the fence is included, because LLVM may still move
/// values there. A struct of f32.
///
/// Stands for an `nvvm.wgmma.mma_async` whose scale-d is a value. With a
/// constant 0, ptxas does not tie a new chain of wgmmas to the registers of the
/// one before, moves its start ahead of the arithmetic on that one, and lacks
/// registers for both.
mlir::Value multiplyE4M3(mlir::ImplicitLocOpBuilder &b, mlir::ValueRange old,
                         mlir::Value a, mlir::Value c, mlir::Value keeps);

/// Issues a wgmma of 64 rows of `element` (bf16, f16 or e4m3), whose fragments
/// of 32 bytes of K the thread has in `a` (four i32), with `old.size() * 2`
/// rows by the descriptor `c`. A struct of f32. The fragments must not change
/// until a wait. `keeps` is as in `multiplyE4M3`.
///
/// Stands for an `nvvm.wgmma.mma_async` with its first operand in registers.
mlir::Value multiplyFragments(mlir::ImplicitLocOpBuilder &b, mlir::Type element,
                              mlir::ValueRange old, mlir::ValueRange a,
                              mlir::Value c, mlir::Value keeps = {});

/// Issues a block-scaled tcgen05.mma of 128 rows at `a` with the rows at `c`,
/// descriptors of elements of 8 bits or fewer. Scales of blocks of 32 are in
/// tensor memory at `scaleA` and `scaleC` (i32). The result is added to the
/// accumulators at the address `sums` (i32) if `keeps` (i1) is set.
///
/// Stands for an `nvvm.tcgen05.mma.block_scale` with `scale_vec::1X`: the op
/// emits no qualifier or `block32`, for which ptxas requires PTX 8.8.
void multiplyScaledBlocks(mlir::ImplicitLocOpBuilder &b, mlir::Value sums,
                          mlir::Value a, mlir::Value c, mlir::Value instruction,
                          mlir::Value keeps, mlir::Value scaleA,
                          mlir::Value scaleC);

/// Stores a word at an address of shared memory of a CTA of the cluster, whose
/// mbarrier at `barrier` counts the 4 bytes. Both are `!llvm.ptr<7>`.
///
/// Stands for an `nvvm.st.async`, with PTX 8.1.
void storeAsync(mlir::ImplicitLocOpBuilder &b, mlir::Value to, I32 word,
                mlir::Value barrier);
/// The same of four words, i32 or f32.
void storeAsync(mlir::ImplicitLocOpBuilder &b, mlir::Value to,
                mlir::ArrayRef<mlir::Value> words, mlir::Value barrier);

/// The thread's index in its CTA, read again at this point, so that
/// neither it nor values derived from it occupy registers through a loop
/// before.
///
/// Stands for an `nvvm.read.ptx.sreg.tid.x` that LLVM does not merge with
/// others.
I32 readThread(mlir::ImplicitLocOpBuilder &b);

/// Marks the end of a block that LLVM must not tail-merge with another's.
///
/// Stands for an op that is never merged: if the last store of two bodies is
/// merged, their accumulators share a register, and ptxas serializes the wgmmas
/// (C7511). Emits no instruction.
void endApart(mlir::ImplicitLocOpBuilder &b);

/// Memory at the addresses (global pointers) may have changed at this point.
/// Emits no instruction.
///
/// Stands for an `nvvm.griddepcontrol wait` that says what memory it makes
/// visible: the op has no operands, so that LLVM would consider `noalias`
/// memory that the kernel only reads constant for the whole kernel, and load it
/// by ld.global.nc, which a wait does not order.
void renewMemory(mlir::ImplicitLocOpBuilder &b, mlir::ValueRange addresses);

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_INLINEPTX_H
