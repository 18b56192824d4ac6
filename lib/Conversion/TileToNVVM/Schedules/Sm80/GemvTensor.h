//===- GemvTensor.h - sm80.gemv with tensor cores ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_GEMVTENSOR_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_GEMVTENSOR_H

#include "../../ThreadEmitter.h"
#include "moec/Analysis/Sm80.h"

namespace moec {

/// Mainloop of sm80.gemv with tensor cores. The warps of a CTA split K: warp w
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
  GemvTensor(const sm80::Gemv &shape, ThreadEmitter &emitter, mlir::Value input,
             mlir::Value weight)
      : shape(shape), emitter(emitter), b(emitter.b), input(input),
        weight(weight) {}

  /// Rows and columns past the last ones repeat these. Each warp stores its
  /// sums to its part of `table`.
  void emit(mlir::Value firstRow, mlir::Value lastRow, mlir::Value firstColumn,
            mlir::Value table);

private:
  using Values = llvm::SmallVector<mlir::Value>;

  void findPlaces(mlir::Value firstRow, mlir::Value lastRow,
                  mlir::Value firstColumn);
  /// Loads the lane's chunks of the rows, then of the columns, for some of the
  /// warp's k tiles.
  Values load(mlir::Value step, int64_t count);
  void multiply(mlir::ValueRange pieces, Values &sums);
  void multiplyStep(mlir::ValueRange pieces, Values &sums);
  /// Multiplies the last k tiles, which not all warps have.
  void multiplyRest(Values &sums);
  void store(mlir::ValueRange sums, mlir::Value table);

  /// Rows or columns that the lanes of a warp read at once.
  static constexpr int64_t kSide = 8;

  const sm80::Gemv &shape;
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value input, weight;
  /// Addresses of the chunks of the warp's first k tile.
  Values places;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_GEMVTENSOR_H
