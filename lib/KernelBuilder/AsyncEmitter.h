//===- AsyncEmitter.h - emission for warpgroups -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Hopper instructions: warpgroups whose tensor cores read shared memory
// directly, and copies that complete on mbarriers. Both access shared memory
// through the "async proxy": ordinary writes of a thread are visible to it only
// after the thread's `fenceAsync`.

#ifndef MOEC_LIB_KERNELBUILDER_ASYNCEMITTER_H
#define MOEC_LIB_KERNELBUILDER_ASYNCEMITTER_H

#include "ThreadEmitter.h"
#include "moec/Support/GpuInstructions.h"

namespace moec {

class Barrier;

/// Pointers named `shared` are `!llvm.ptr<3>`.
class AsyncEmitter : public ThreadEmitter {
public:
  /// For a CTA of `threads` threads: a multiple of the warpgroup size if
  /// operations of all warpgroups are used.
  AsyncEmitter(mlir::func::FuncOp func, tile::KernelOp kernel, int64_t threads);

  //===--- Warpgroups ---===//

  /// The thread's warpgroup (warp-uniform), its index in the warpgroup, and its
  /// warp's.
  I32 warpgroup() const { return warpgroupNumber; }
  I32 warpgroupThread() const { return warpgroupThreadNumber; }
  I32 warpgroupWarp() { return warpgroupThreadNumber / 32; }
  /// setmaxnreg: releases registers, or takes released ones; all threads of the
  /// warpgroup.
  void decreaseRegisters(int64_t count);
  void increaseRegisters(int64_t count);
  /// Barrier of the warpgroup.
  void warpgroupBarrier();
  /// Barrier of all warpgroups except the first.
  mlir::Operation *consumerBarrier();
  /// Number of lanes of the warp whose flag is set.
  I32 countLanes(Flag flag);

  //===--- Barriers ---===//

  /// After the last barrier is initialized, before the CTA's barrier.
  void fenceBarriers();
  /// Makes the thread's writes to shared memory visible to copies and tensor
  /// cores.
  void fenceAsync();
  /// Makes the thread's writes to global memory visible to copies; also needed
  /// before copies read writes of other threads.
  void fenceAsyncGlobal();

  //===--- Clusters ---===//

  /// The CTA's index in its cluster, whose CTAs may be given.
  I32 clusterRank(int64_t ctas = 0);
  /// Address of another CTA's shared memory (`!llvm.ptr<7>`) that corresponds
  /// to `shared`.
  mlir::Value mapShared(mlir::Value shared, I32 rank);
  /// Barrier of all threads of the cluster that have not ended; they see each
  /// other's accesses before.
  void clusterBarrier();
  /// The two halves of clusterBarrier: a thread that has arrived waits before
  /// it arrives again.
  void clusterArrive();
  void clusterWait();

  //===--- Copies ---===//

  int64_t getNumTensorMaps() const { return tensorMaps.size(); }
  /// The address of the kernel's tensor map `i`.
  mlir::Value tensorMap(int64_t i) const { return tensorMaps[i]; }
  void prefetchTensorMap(int64_t i);
  /// Issues the copy of a box at `coordinates` (i32, innermost last); it
  /// completes on `barrier`. Weights may be copied before the wait for the
  /// launch before. With several `ctas`, each CTA of the cluster gets the bytes
  /// at the same address, and at its own barrier.
  void copyBox(mlir::Value shared, mlir::Value map,
               llvm::ArrayRef<I32> coordinates, const Barrier &barrier,
               bool areWeights, int64_t ctas = 1);

  //===--- Tensor cores ---===//

  /// The variable part of the descriptor of an operand at `shared`: rows of 128
  /// or 64 swizzled bytes, in consecutive groups of 8.
  I32 describeTile(mlir::Value shared);
  /// The descriptor at `step` times 32 bytes into such rows.
  I64 getDescriptor(I32 tile, int64_t step,
                    int64_t swizzledBytes = kSwizzleBytes);
  /// Orders the warpgroup's accesses to registers before its wgmmas.
  void fenceProducts();
  void commitProducts();
  void waitProducts(int64_t groups);
  /// `width / 2` zeros of f32 or i32, as one value.
  mlir::Value makeSums(mlir::Type type, int64_t width);
  /// Undefined f32 accumulators for a first wgmma, which does not read them.
  mlir::Value makeUnsetSums(int64_t width);
  /// Issues a wgmma of 64 rows at `a` with `width` rows at `c`, over 32 bytes
  /// of K at `step` times 32 bytes into the tiles. Elements are bf16, f16, e4m3
  /// or, with sums of i32, int8. With `isFirst` it overwrites `sums`.
  mlir::Value multiplyAsync(mlir::Type element, int64_t width, I32 a, I32 c,
                            int64_t step, mlir::Value sums,
                            bool isFirst = false);
  /// Issues a wgmma with A in registers: `a` has the thread's fragments (four
  /// i32) of 64 rows of bf16, f16 or e4m3 and must not change until a wait. B
  /// has rows of `swizzledBytes`. If `keeps` is given and 0, the registers of
  /// `sums` are overwritten.
  mlir::Value multiplyAsync(mlir::Type element, int64_t width,
                            llvm::ArrayRef<I32> a, I32 c, int64_t swizzledBytes,
                            int64_t step, mlir::Value sums, I32 keeps = {});
  /// The members of `sums`, after a wait; `Sum` is I32 or F32.
  template <typename Sum = F32>
  llvm::SmallVector<Sum> getSums(mlir::Value sums) {
    return llvm::map_to_vector(tieSumsOf(sums),
                               [&](mlir::Value sum) { return Sum(b, sum); });
  }
  /// stmatrix: stores 1, 2 or 4 8x8 matrices of 16-bit elements (one i32 each),
  /// perhaps transposed; lane l gives the address of row l % 8 of matrix l / 8.
  void storeMatrices(mlir::Value shared, llvm::ArrayRef<I32> matrices,
                     bool isTransposed);

private:
  llvm::SmallVector<mlir::Value> tieSumsOf(mlir::Value sums);

  I32 warpgroupNumber, warpgroupThreadNumber;
  llvm::SmallVector<mlir::Value> tensorMaps;
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_ASYNCEMITTER_H
