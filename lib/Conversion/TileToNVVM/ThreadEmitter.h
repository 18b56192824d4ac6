//===- ThreadEmitter.h - emission of what one thread does -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// On a GPU the function of a kernel is what one thread of a CTA does. The few
// machine instructions that schedules need have their ops made here, so that no
// other file of emission includes the NVVM dialect.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_THREADEMITTER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_THREADEMITTER_H

#include "../Emission/KernelEmitter.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"

namespace moec {

/// Vectors are MLIR vectors of one thread, in registers. Vectors in memory that
/// are read or written without a mask lie on a multiple of their size, or of 16
/// bytes.
class ThreadEmitter : public KernelEmitter {
public:
  /// A CTA of `threads` threads, a multiple of the warp size.
  ThreadEmitter(mlir::func::FuncOp func, tile::KernelOp kernel,
                int64_t threads);

  //===--- Threads ---===//

  int64_t getNumThreads() const { return threads; }
  int64_t getNumWarps() const;
  /// The thread's number in its CTA, i32.
  mlir::Value thread() const { return threadNumber; }
  /// The thread's warp, and its lane there; i32.
  mlir::Value warp() const { return warpNumber; }
  mlir::Value lane() const { return laneNumber; }
  /// Waits for all threads of the CTA, or of the warp; what they wrote before
  /// is seen after.
  void barrier();
  void warpBarrier();
  /// The same for `threads` of the CTA, whole warps, by a barrier of their own:
  /// an i32 from 1 to 15.
  void barrierOf(mlir::Value number, int64_t threads);
  /// Waits for the launch before this one to end; all threads, before the first
  /// access to memory that a launch writes. Where a schedule does not say when,
  /// kernels of sm_90 and later wait at their entry. Only for those.
  void waitForLaunchBefore();
  /// Deals `begin .. end - 1` out to the threads of the CTA, one by one.
  void forThreads(mlir::Value begin, mlir::Value end,
                  llvm::function_ref<void(mlir::Value)> body);

  //===--- i32 ---===//

  mlir::Value toIndex(mlir::Value x);
  mlir::Value toI32(mlir::Value x);
  mlir::Value divide(mlir::Value x, int64_t y);
  mlir::Value remainder(mlir::Value x, int64_t y);
  /// `x * factor + offset`.
  mlir::Value scale(mlir::Value x, int64_t factor, int64_t offset = 0);
  mlir::Value isLess(mlir::Value x, mlir::Value y);

  //===--- Warps ---===//

  /// Another lane's value: of lane `lane() ^ mask`, or of `lane() - distance`
  /// (its own where there is no such lane). f32 or i32.
  mlir::Value shuffleXor(mlir::Value value, int64_t mask);
  mlir::Value shuffleUp(mlir::Value value, int64_t distance);
  /// The value of lane `lane`.
  mlir::Value broadcast(mlir::Value value, int64_t lane);
  /// The value of the lane that each lane names (i32).
  mlir::Value getFromLane(mlir::Value value, mlir::Value lane);
  /// The largest or smallest i32 of the warp, in all lanes.
  mlir::Value warpMax(mlir::Value value);
  mlir::Value warpMin(mlir::Value value);
  /// The bits that an i32 of any lane has, in all lanes.
  mlir::Value warpOr(mlir::Value value);
  /// The lanes whose `flag` is set, as bits.
  mlir::Value ballot(mlir::Value flag);
  /// The lanes whose i32 is equal to this lane's, as bits.
  mlir::Value matchAny(mlir::Value value);

  //===--- Memory ---===//

  /// Static shared memory; all threads of the CTA see the same.
  mlir::Value scratch(llvm::ArrayRef<int64_t> shape,
                      mlir::Type elementType) override;
  /// A table of constants in global memory.
  mlir::Value constantTable(llvm::ArrayRef<int32_t> values);
  /// The kernel's dynamic shared memory, `!llvm.ptr<3>`.
  mlir::Value dynamicShared();
  /// The address of an element of a kernel's argument, `!llvm.ptr<1>`.
  mlir::Value address(mlir::Value memref, mlir::ValueRange indices);
  /// `pointer` moved by bytes; `bytes` is i32 or i64.
  mlir::Value advance(mlir::Value pointer, mlir::Value bytes);
  mlir::Value advance(mlir::Value pointer, int64_t bytes);
  mlir::Value load(mlir::Type type, mlir::Value pointer, int64_t alignment);
  void store(mlir::Value value, mlir::Value pointer, int64_t alignment);
  /// The scale of a weight at an address, e8m0 or a float of 16 or 32 bits, as
  /// f32, which has it exactly.
  mlir::Value loadScale(mlir::Type type, mlir::Value pointer);
  mlir::Value loadScale(mlir::Value memref, mlir::ValueRange indices);
  /// Adds an i32 to an element of shared memory that other threads of the CTA
  /// add to as well; a barrier has to come before the sum is read.
  void addAtomically(mlir::Value value, mlir::Value memref, mlir::Value index);
  void addAtomically(mlir::Value value, mlir::Value pointer);
  /// Adds to an i32 of global memory; who then finds it by `awaitAtLeast` sees
  /// what the thread wrote before.
  void addReleasing(mlir::Value value, mlir::Value pointer);
  /// Adds to an i32 of global memory, without order; what was there before.
  mlir::Value getAndAdd(mlir::Value value, mlir::Value pointer);
  /// Asks for an i32 of global memory until it is at least `least`, or what is
  /// left of it by `modulus`, a power of two, if that is not 0.
  void awaitAtLeast(mlir::Value least, mlir::Value pointer,
                    int64_t modulus = 0);
  /// One i32 of an argument that no launch of a run writes: this may come
  /// before the wait for the launch before.
  mlir::Value loadConstantI32(mlir::Value memref, mlir::ValueRange indices);
  /// The same of one float element, as f32.
  mlir::Value loadConstantF32(mlir::Value memref, mlir::ValueRange indices);

  /// Starts a copy of 16 bytes from global to shared memory; of them `bytes`
  /// (i32; all if null) are read and the others are zeros.
  void copyAsync(mlir::Value shared, mlir::Value global, mlir::Value bytes);
  /// The same of 4 bytes, or of 8.
  void copyWordAsync(mlir::Value shared, mlir::Value global, int64_t bytes = 4);
  void commitCopies();
  /// Waits until at most `groups` of the thread's committed groups are open.
  void waitCopies(int64_t groups);

  //===--- Tensor cores ---===//

  /// Four 8x8 matrices of 16-bit elements; lane l gives the address of row
  /// l % 8 of matrix l / 8. One i32 per matrix.
  llvm::SmallVector<mlir::Value> loadMatrices(mlir::Value shared);
  /// A 16x8 product over 16 elements, of bf16 or f16, added to 4 f32.
  llvm::SmallVector<mlir::Value> multiply(mlir::Type element,
                                          mlir::ValueRange a,
                                          mlir::ValueRange b,
                                          mlir::ValueRange c);

protected:
  llvm::MaybeAlign alignmentOf(mlir::VectorType type) const override;
  /// An op that reads what no launch of a run writes, for the verifier.
  void markConstant(mlir::Operation *op);
  /// Whether a memref is scratch.
  static bool isShared(mlir::Value memref);

private:
  mlir::Value makeGlobal(mlir::MemRefType type, mlir::Attribute value,
                         int64_t alignment);

  int64_t threads;
  bool isIndependent;
  int64_t numGlobals = 0;
  mlir::LLVMTypeConverter converter;
  mlir::Value threadNumber, warpNumber, laneNumber;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_THREADEMITTER_H
