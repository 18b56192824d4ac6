//===- TensorEmitter.h - emission for tensor memory -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// What Blackwell adds: products that one thread starts, whose sums and scales
// are in a memory of their own, 128 lanes of 512 columns of 32 bits. Its
// addresses are i32: the lane in the upper half, the column in the lower one.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_TENSOREMITTER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_TENSOREMITTER_H

#include "AsyncEmitter.h"

namespace moec {

class TensorEmitter : public AsyncEmitter {
public:
  using AsyncEmitter::AsyncEmitter;

  //===--- Tensor memory ---===//

  /// Takes `columns` columns, waits until there are, and leaves their address
  /// at `shared`. Nobody in the CTA takes more. All lanes of a warp.
  void takeTensorMemory(mlir::Value shared, int64_t columns);
  /// Gives them back; the same warp.
  void giveTensorMemory(mlir::Value address, int64_t columns);
  /// Orders what the thread has done to tensor memory ahead of its next barrier
  /// or arrival, and what it will do behind its last one or wait.
  void fenceTensorBefore();
  void fenceTensorAfter();
  /// `count` neighbouring columns of the lane at `address` and of the 31 behind
  /// it, one per lane of the warp, as f32; the address is that of the warp's
  /// own quarter of the lanes.
  llvm::SmallVector<mlir::Value> loadTensor(mlir::Value address, int64_t count);

  //===--- Products ---===//

  /// A descriptor (i64) for what lies `offset` bytes behind `shared`; `kind` is
  /// all but the address.
  mlir::Value describe(mlir::Value shared, uint64_t kind, int64_t offset = 0);
  /// Starts the copy of the scales of 128 rows to tensor memory; a product that
  /// the same thread starts later finds them.
  void copyScales(mlir::Value address, mlir::Value descriptor);
  /// Starts the product of 128 rows of `a` with the rows of `c`, both scaled;
  /// it is added to the sums at `sums` where `keeps` (i1) is set.
  void multiplyScaled(mlir::Value sums, mlir::Value a, mlir::Value c,
                      mlir::Value instruction, mlir::Value keeps,
                      mlir::Value scaleA, mlir::Value scaleC);
  /// Arrives at the barrier when all that the thread has started is done.
  void arriveWhenDone(mlir::Value barrier);

private:
  mlir::Value getTensorPointer(mlir::Value address);
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_TENSOREMITTER_H
