//===- TensorEmitter.h - emission for tensor memory -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Blackwell instructions: mmas issued by one thread, with accumulators and
// scales in tensor memory, 128 lanes of 512 columns of 32 bits. Addresses are
// i32: the lane in the upper half, the column in the lower one.

#ifndef MOEC_LIB_KERNELBUILDER_TENSOREMITTER_H
#define MOEC_LIB_KERNELBUILDER_TENSOREMITTER_H

#include "AsyncEmitter.h"

namespace moec {

class TensorEmitter : public AsyncEmitter {
public:
  using AsyncEmitter::AsyncEmitter;

  //===--- Tensor memory ---===//

  /// Allocates `columns` columns, waiting until they are available, and writes
  /// their address to `shared`. Ends the CTA's right to allocate. All lanes of
  /// a warp.
  void takeTensorMemory(mlir::Value shared, int64_t columns);
  /// Frees the columns; by the warp that allocated them.
  void giveTensorMemory(I32 address, int64_t columns);
  /// Orders the thread's tensor memory accesses before its next barrier or
  /// arrival, and after its last barrier or wait.
  void fenceTensorBefore();
  void fenceTensorAfter();
  /// `count` adjacent columns as f32, from the lane at `address` and the 31
  /// lanes after it, one per lane of the warp. The address is in the warp's own
  /// quarter of the lanes.
  llvm::SmallVector<F32> loadTensor(I32 address, int64_t count);

  //===--- Products ---===//

  /// A descriptor of memory `offset` bytes after `shared`; `kind` has all
  /// fields except the address.
  I64 describe(mlir::Value shared, uint64_t kind, int64_t offset = 0);
  /// Issues the copy of the scales of 128 rows to tensor memory; ordered before
  /// mmas that the same thread issues later.
  void copyScales(I32 address, I64 descriptor);
  /// Issues the mma of 128 rows of `a` with the rows of `c`, both scaled, added
  /// to the accumulators at `sums` if `keeps` is set.
  void multiplyScaled(I32 sums, I64 a, I64 c, I32 instruction, Flag keeps,
                      I32 scaleA, I32 scaleC);
  /// Arrives at the barrier when all mmas and copies issued by the thread are
  /// complete.
  void arriveWhenDone(const Barrier &barrier);

private:
  mlir::Value getTensorPointer(I32 address);
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_TENSOREMITTER_H
