//===- TensorCores.h - gpu.gemv with tensor cores ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_GEMV_TENSORCORES_H
#define MOEC_LIB_SCHEDULES_GEMV_TENSORCORES_H

#include "KernelBuilder/ThreadEmitter.h"
#include "Shape.h"

namespace moec {

/// Mainloop of gpu.gemv with tensor cores. The warps of a CTA split K: warp w
/// multiplies k tile w of 32 elements, and every further one at a stride of the
/// number of warps.
///
/// A lane reads 16 bytes of a row at once: 8 adjacent elements along K. The mma
/// has K = 16 and takes 4 elements of each row and column from a lane: any, as
/// long as they are equal for rows and columns. The two halves of the elements
/// that a lane has read are therefore its operands of two mmas, straight from
/// memory.
class GemvTensor {
public:
  GemvTensor(const anygpu::Gemv &shape, ThreadEmitter &emitter,
             mlir::Value input, mlir::Value weight)
      : shape(shape), emitter(emitter), b(emitter.b), input(input),
        weight(weight) {}

  /// Rows and columns past the last ones repeat these. Each warp stores its
  /// sums to its part of `table`.
  void emit(Index firstRow, Index lastRow, Index firstColumn,
            mlir::Value table);

private:
  using Sums = llvm::SmallVector<F32>;
  /// Vectors of i32, 16 bytes each.
  using Chunks = llvm::SmallVector<I32>;

  void findAddresses(Index firstRow, Index lastRow, Index firstColumn);
  /// Loads the lane's chunks of the rows, then of the columns, for some of the
  /// warp's k tiles.
  Chunks load(Index tile, int64_t count);
  void multiply(llvm::ArrayRef<I32> chunks, Sums &sums);
  void multiplyTile(llvm::ArrayRef<I32> chunks, Sums &sums);
  /// Multiplies the last k tiles, which not all warps have.
  void multiplyRest(Sums &sums);
  void store(llvm::ArrayRef<F32> sums, mlir::Value table);

  /// Rows or columns that the lanes of a warp read at once.
  static constexpr int64_t kSide = 8;

  const anygpu::Gemv &shape;
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value input, weight;
  /// Addresses of the chunks of the warp's first k tile.
  llvm::SmallVector<mlir::Value> addresses;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_GEMV_TENSORCORES_H
