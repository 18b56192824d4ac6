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

/// The products of a CTA of sm80.gemv whose warps share the depth: warp w has
/// step w of 32 elements, and every further one of as many steps as there are
/// warps.
///
/// A lane reads 16 bytes of a row at once, 8 neighbours of the depth. The
/// tensor cores' tile is 16 deep and wants 4 elements of each row and column
/// of a lane: which ones does not matter, as long as they are the same of rows
/// and of columns. So the first and the second half of what a lane has read are
/// its parts of two tiles, straight from memory.
class GemvTensor {
public:
  GemvTensor(const sm80::Gemv &shape, ThreadEmitter &emitter, mlir::Value input,
             mlir::Value weight)
      : shape(shape), emitter(emitter), b(emitter.b), input(input),
        weight(weight) {}

  /// Rows and columns past the last ones repeat these. Each warp's sums go to
  /// its part of `table`.
  void emit(mlir::Value firstRow, mlir::Value lastRow, mlir::Value firstColumn,
            mlir::Value table);

private:
  using Values = llvm::SmallVector<mlir::Value>;

  void findPlaces(mlir::Value firstRow, mlir::Value lastRow,
                  mlir::Value firstColumn);
  /// What the lane has of the rows, then of the columns, of some of the warp's
  /// steps.
  Values load(mlir::Value step, int64_t count);
  void multiply(mlir::ValueRange pieces, Values &sums);
  void multiplyStep(mlir::ValueRange pieces, Values &sums);
  /// Multiplies the last steps, which not all warps have.
  void multiplyRest(Values &sums);
  void store(mlir::ValueRange sums, mlir::Value table);

  /// Rows and columns of which the lanes of a warp read at once.
  static constexpr int64_t kSide = 8;

  const sm80::Gemv &shape;
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value input, weight;
  /// The address of each piece of the warp's first step.
  Values places;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_GEMVTENSOR_H
