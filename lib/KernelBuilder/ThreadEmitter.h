//===- ThreadEmitter.h - emission of what one thread does -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Builder for the code of one GPU thread. The machine instructions that
// schedules need are created here, so that no other file of emission includes
// the NVVM dialect.

#ifndef MOEC_LIB_KERNELBUILDER_THREADEMITTER_H
#define MOEC_LIB_KERNELBUILDER_THREADEMITTER_H

#include "KernelEmitter.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"

namespace moec {

/// Vectors are MLIR vectors in one thread's registers. Unmasked vector accesses
/// to memory are aligned to the vector's size, or to 16 bytes.
class ThreadEmitter : public KernelEmitter {
public:
  /// For a CTA of `threads` threads, a multiple of the warp size.
  ThreadEmitter(mlir::func::FuncOp func, tile::KernelOp kernel,
                int64_t threads);

  //===--- Threads ---===//

  int64_t getNumThreads() const { return threads; }
  int64_t getNumWarps() const;
  /// CTAs of the launch.
  I32 numCtas();
  /// The CTA does what the first one does, in memory of its own.
  void becomeFirstCta() { ctaIndex = index(0); }
  /// The CTA's index, also of one that became the first.
  Index ownCta();
  /// Time in ns, of a clock that all threads share.
  I64 clock();
  /// Index of the thread in its CTA.
  I32 thread() const { return threadNumber; }
  /// The thread's warp and its lane.
  I32 warp() const { return warpNumber; }
  I32 lane() const { return laneNumber; }
  /// Barriers of the CTA and of the warp; earlier writes are visible after
  /// them.
  mlir::Operation *barrier();
  mlir::Operation *warpBarrier();
  /// A named barrier (i32, 1 to 15) for `threads` threads of the CTA, whole
  /// warps.
  mlir::Operation *barrierOf(mlir::Value number, int64_t threads);
  /// Waits for the launch before this one to end; all threads, before the first
  /// access to memory that a launch writes. Kernels of sm_90 and later wait at
  /// their entry unless a schedule chooses the point. Only for those targets.
  void waitForLaunchBefore();
  /// Distributes `begin .. end - 1` over the threads of the CTA, one by one.
  void forThreads(mlir::Value begin, mlir::Value end,
                  llvm::function_ref<void(Index)> body);

  //===--- Integers ---===//

  I64 i64(int64_t value);
  I64 toI64(Index x);
  /// Index of the lowest bit that is 1; there must be one.
  I32 lowestBit(I32 mask);
  Index toIndex(mlir::Value x);
  I32 toI32(mlir::Value x);

  //===--- Warps ---===//

  /// The value of lane `lane() ^ mask`, or of `lane() - distance` (the lane's
  /// own if there is no such lane). f32 or i32.
  mlir::Value shuffleXor(mlir::Value value, int64_t mask);
  mlir::Value shuffleUp(mlir::Value value, int64_t distance);
  /// The value of lane `lane`.
  mlir::Value broadcast(mlir::Value value, int64_t lane);
  /// The value of the lane that each lane selects (i32).
  mlir::Value getFromLane(mlir::Value value, mlir::Value lane);
  /// A typed value keeps its type.
  template <typename T>
  T shuffleXor(T value, int64_t mask) {
    return {b, shuffleXor(static_cast<mlir::Value>(value), mask)};
  }
  template <typename T>
  T shuffleUp(T value, int64_t distance) {
    return {b, shuffleUp(static_cast<mlir::Value>(value), distance)};
  }
  template <typename T>
  T broadcast(T value, int64_t lane) {
    return {b, broadcast(static_cast<mlir::Value>(value), lane)};
  }
  template <typename T>
  T getFromLane(T value, mlir::Value lane) {
    return {b, getFromLane(static_cast<mlir::Value>(value), lane)};
  }
  /// Maximum or minimum i32 of the warp, in all lanes.
  I32 warpMax(mlir::Value value);
  I32 warpMin(mlir::Value value);
  /// Bitwise OR of the i32 of all lanes, in all lanes.
  I32 warpOr(mlir::Value value);
  /// Mask of the lanes whose `flag` is set.
  I32 ballot(mlir::Value flag);
  /// Mask of the lanes whose i32 equals this lane's.
  I32 matchAny(mlir::Value value);

  //===--- Memory ---===//

  /// Static shared memory of the CTA.
  mlir::Value scratch(llvm::ArrayRef<int64_t> shape,
                      mlir::Type elementType) override;
  /// A table of constants in global memory.
  mlir::Value constantTable(llvm::ArrayRef<int32_t> values);
  /// The kernel's dynamic shared memory, `!llvm.ptr<3>`.
  mlir::Value dynamicShared();
  /// The address of an element of a kernel's argument, `!llvm.ptr<1>`.
  mlir::Value address(mlir::Value memref, mlir::ValueRange indices);
  /// The address of its first element.
  mlir::Value baseAddress(mlir::Value memref);
  /// `pointer` moved by bytes; `bytes` is i32 or i64.
  mlir::Value advance(mlir::Value pointer, mlir::Value bytes);
  mlir::Value advance(mlir::Value pointer, int64_t bytes);
  mlir::Value load(mlir::Type type, mlir::Value pointer, int64_t alignment);
  /// An i32 and an f32 at a pointer.
  I32 loadWord(mlir::Value pointer);
  F32 loadSingle(mlir::Value pointer);
  /// `lanes` adjacent ones, aligned to their size; a vector unless it is one.
  I32 loadWords(mlir::Value pointer, int64_t lanes);
  F32 loadSingles(mlir::Value pointer, int64_t lanes);
  /// One or two bytes as the low ones of an i32; the others are 0.
  I32 loadBytes(mlir::Value pointer, int64_t bytes);
  void store(mlir::Value value, mlir::Value pointer, int64_t alignment);
  /// A weight's scale as f32, exactly: e8m0 or a float of 16 or 32 bits.
  mlir::Value loadScale(mlir::Type type, mlir::Value pointer);
  mlir::Value loadScale(mlir::Value memref, mlir::ValueRange indices);
  /// Adds an i32 to shared memory atomically; needs a barrier before the sum is
  /// read.
  void addAtomically(mlir::Value value, mlir::Value memref, mlir::Value index);
  void addAtomically(mlir::Value value, mlir::Value pointer);
  /// Adds to an i32 of global memory with release semantics: the thread's
  /// earlier writes are visible after a matching `awaitAtLeast`.
  void addReleasing(mlir::Value value, mlir::Value pointer);
  /// Asks for a line of weights in the second-level cache.
  void prefetchWeights(mlir::Value pointer);
  /// Sets the highest bit of an i32 of global memory, with release order.
  void setHighestBitReleasing(mlir::Value pointer);
  /// Orders later accesses after writes that other threads have released.
  void fenceAcquiring();
  /// Adds to an i32 of global memory, relaxed; returns the old value.
  I32 getAndAdd(mlir::Value value, mlir::Value pointer);
  /// Polls an i32 of global memory until it is at least `least`; with
  /// `modulus`, a power of two, the comparison is modulo that.
  void awaitAtLeast(mlir::Value least, mlir::Value pointer,
                    int64_t modulus = 0);
  /// Polls an i32 of global memory until its highest bit is set, also before
  /// the wait for the launch before, which sets it.
  void awaitHighestBit(mlir::Value pointer);
  /// An i32 of an argument that no launch of a run writes, so that it may be
  /// loaded before the wait for the launch before.
  I32 loadConstantI32(mlir::Value memref, mlir::ValueRange indices);
  /// A float element of such an argument, as f32.
  F32 loadConstantF32(mlir::Value memref, mlir::ValueRange indices);

  /// Starts a copy of 16 bytes from global to shared memory; of them `bytes`
  /// (i32; all if null) are read and the others are zeros.
  void copyAsync(mlir::Value shared, mlir::Value global, mlir::Value bytes);
  /// Issues a cp.async of 4 or 8 bytes.
  void copyWordAsync(mlir::Value shared, mlir::Value global, int64_t bytes = 4);
  void commitCopies();
  /// Waits until at most `groups` of the thread's committed groups are open.
  void waitCopies(int64_t groups);

  //===--- Bits ---===//

  /// The 16-bit elements of a vector, two per i32.
  llvm::SmallVector<I32> pairs(mlir::Value vector);
  /// prmt: byte `i` of the result is the byte of `high:low` that nibble `i` of
  /// `selector` numbers.
  I32 permuteBytes(I32 low, I32 high, I32 selector);
  I32 rotateLeft(I32 x, int64_t bits);
  I32 rotateRight(I32 x, int64_t bits);

  //===--- Tensor cores ---===//

  /// ldmatrix: four 8x8 matrices of 16-bit elements, one i32 each; lane l gives
  /// the address of row l % 8 of matrix l / 8.
  llvm::SmallVector<mlir::Value> loadMatrices(mlir::Value shared);
  /// mma.sync: 16x8 with K = 16, of bf16 or f16, added to 4 f32.
  llvm::SmallVector<mlir::Value> multiply(mlir::Type element,
                                          mlir::ValueRange a,
                                          mlir::ValueRange b,
                                          mlir::ValueRange c);

protected:
  llvm::MaybeAlign alignmentOf(mlir::VectorType type) const override;
  /// Marks an op as a read of memory that no launch of a run writes, for the
  /// verifier.
  void markConstant(mlir::Operation *op);
  /// Whether a memref is scratch.
  static bool isShared(mlir::Value memref);
  /// Asks a cache of the `level` for a line; null: for a tensor map.
  mlir::Operation *prefetch(mlir::Value pointer, mlir::Attribute level);

private:
  /// Orders the thread's accesses on the device: acquiring or releasing.
  void fence(bool acquires);
  /// Adds to an i32 of global memory, or sets its bits, relaxed; returns the
  /// old value.
  I32 combine(bool adds, mlir::Value value, mlir::Value pointer);
  /// Loads an i32 of global memory, acquiring, while `goesOn` holds for it.
  mlir::Operation *poll(mlir::Value pointer,
                        llvm::function_ref<Flag(I32)> goesOn);
  mlir::Value makeGlobal(mlir::MemRefType type, mlir::Attribute value,
                         int64_t alignment);

  int64_t threads;
  bool isIndependent;
  int64_t numGlobals = 0;
  mlir::LLVMTypeConverter converter;
  I32 threadNumber, warpNumber, laneNumber;
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_THREADEMITTER_H
