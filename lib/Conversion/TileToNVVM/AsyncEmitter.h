//===- AsyncEmitter.h - emission for warpgroups -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// What Hopper adds: warpgroups with tensor cores that read shared memory on
// their own, copies that complete on barriers in shared memory. Both see shared
// memory through the "async proxy": what a thread writes there by ordinary
// means is seen only after the thread's `fenceAsync`.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_ASYNCEMITTER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_ASYNCEMITTER_H

#include "ThreadEmitter.h"
#include "moec/Analysis/Sm90.h"

namespace moec {

/// Pointers named `shared` and `barrier` are `!llvm.ptr<3>`.
class AsyncEmitter : public ThreadEmitter {
public:
  /// A CTA of `threads` threads; where it asks for what all warpgroups do, a
  /// multiple of the warpgroup size.
  AsyncEmitter(mlir::func::FuncOp func, tile::KernelOp kernel, int64_t threads);

  //===--- Warpgroups ---===//

  /// The thread's warpgroup, the same value in all lanes of a warp; its number
  /// there, and its warp's; i32.
  mlir::Value warpgroup() const { return warpgroupNumber; }
  mlir::Value warpgroupThread() const { return warpgroupThreadNumber; }
  mlir::Value warpgroupWarp() { return divide(warpgroupThreadNumber, 32); }
  /// Gives registers back, or takes what others gave; all threads of the
  /// warpgroup.
  void decreaseRegisters(int64_t count);
  void increaseRegisters(int64_t count);
  /// Waits for all threads of the warpgroup.
  void warpgroupBarrier();
  /// Waits for all threads of all warpgroups but the first.
  mlir::Operation *consumerBarrier();
  /// How many lanes of the warp have that i1 set; i32.
  mlir::Value countLanes(mlir::Value flag);

  //===--- Barriers ---===//

  /// A phase of the barrier ends with that many arrivals.
  void initBarrier(mlir::Value barrier, int64_t arrivals);
  /// After the last `initBarrier`, before the CTA's barrier.
  void fenceBarriers();
  void arrive(mlir::Value barrier, int64_t times = 1);
  /// Arrives, and lets the phase wait for so many copied bytes too.
  void arriveExpecting(mlir::Value barrier, int64_t bytes);
  /// Waits for the end of the phase of that parity (i32).
  void waitBarrier(mlir::Value barrier, mlir::Value parity);
  /// Whether that phase has ended; i1.
  mlir::Value testBarrier(mlir::Value barrier, mlir::Value parity);
  /// Makes what the thread wrote to shared memory visible to copies and tensor
  /// cores.
  void fenceAsync();
  /// The same of global memory, and to copies alone; also before they read what
  /// other threads wrote.
  void fenceAsyncGlobal();

  //===--- Copies ---===//

  int64_t getNumTensorMaps() const { return tensorMaps.size(); }
  /// The address of the kernel's tensor map `i`.
  mlir::Value tensorMap(int64_t i) const { return tensorMaps[i]; }
  void prefetchTensorMap(int64_t i);
  /// Starts the copy of a box, which begins at `coordinates` (i32, innermost
  /// last); it completes on `barrier`. Weights may be copied before the wait
  /// for the launch before.
  void copyBox(mlir::Value shared, mlir::Value map,
               mlir::ValueRange coordinates, mlir::Value barrier,
               bool areWeights);

  //===--- Tensor cores ---===//

  /// Where tensor cores read: rows of 128 swizzled bytes, or of 64, at
  /// `shared`, each 8 of them behind the 8 before. The part of a descriptor
  /// that differs, i32.
  mlir::Value describeTile(mlir::Value shared);
  /// The descriptor of `step` times 32 bytes into such rows, i64.
  mlir::Value getDescriptor(mlir::Value tile, int64_t step,
                            int64_t swizzledBytes = sm90::Contract::kStepBytes);
  /// Orders the warpgroup's accesses to registers before its products.
  void fenceProducts();
  void commitProducts();
  void waitProducts(int64_t groups);
  /// `width / 2` zeros of f32, or of i32, as one value.
  mlir::Value makeSums(mlir::Type type, int64_t width);
  /// The same of f32 for a first product, which does not read them.
  mlir::Value makeUnsetSums(int64_t width);
  /// Starts adding the product of 64 rows at `a` with `width` rows at `c`, over
  /// 32 bytes of elements of bf16, f16, e4m3 or, with sums of i32, int8 that
  /// lie `step` times 32 bytes into the tiles. Of `isFirst` products the result
  /// is all, without `sums`.
  mlir::Value multiplyAsync(mlir::Type element, int64_t width, mlir::Value a,
                            mlir::Value c, int64_t step, mlir::Value sums,
                            bool isFirst = false);
  /// The same with 64 rows of bf16, f16 or e4m3 of which the thread has the
  /// fragments `a`, of 32 bytes (four i32), which stay as they are until a
  /// wait; the other rows are of so many swizzled bytes. With `keeps` (i32) the
  /// result is all, in the registers of `sums`, where that is 0.
  mlir::Value multiplyAsync(mlir::Type element, int64_t width,
                            mlir::ValueRange a, mlir::Value c,
                            int64_t swizzledBytes, int64_t step,
                            mlir::Value sums, mlir::Value keeps = {});
  /// The members of `sums`, after a wait.
  llvm::SmallVector<mlir::Value> getSums(mlir::Value sums);
  /// Stores 8x8 matrices of 16-bit elements (one i32 each, 1, 2 or 4), perhaps
  /// transposed; lane l gives the address of row l % 8 of matrix l / 8.
  void storeMatrices(mlir::Value shared, mlir::ValueRange matrices,
                     bool isTransposed);

private:
  mlir::Value warpgroupNumber, warpgroupThreadNumber;
  llvm::SmallVector<mlir::Value> tensorMaps;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_ASYNCEMITTER_H
