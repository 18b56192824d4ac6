//===- Sums.h - sums that an exchange makes ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Computes the summands that an exchange pushes: the sum of a token's rows, in
// the order and with the rounding of gpu.gather_reduce.

#ifndef MOEC_LIB_SCHEDULES_EXCHANGE_SUMS_H
#define MOEC_LIB_SCHEDULES_EXCHANGE_SUMS_H

#include "Parts.h"

namespace moec {

class RowSums {
public:
  /// For an exchange with `sums_of`.
  RowSums(tile::ExchangeOp op, ThreadEmitter &emitter, ExchangeParts &parts,
          I64 lane);

  /// The position in this lane's slot of the row of `chunks`, relative to
  /// `firstRow`. `heap` is an address that may always be read.
  I32 loadPosition(const ThreadChunks &chunks, I64 firstRow, mlir::Value heap);
  /// The sums of `chunks`, given that position.
  llvm::SmallVector<mlir::Value> make(const ThreadChunks &chunks, I64 firstRow,
                                      I32 position, mlir::Value heap);

private:
  /// A warp's remaining slots as bits, and the sums of the thread's chunks so
  /// far.
  struct Progress {
    I32 left;
    llvm::SmallVector<F32> sums;
    auto fields() { return std::tie(left, sums); }
  };
  /// The slots of `row` with something to add, as bits.
  I32 findSlots(const ThreadChunks &chunks, I64 row, I32 position);
  /// Adds the rows of the first `count` remaining slots.
  Progress addSlots(const ThreadChunks &chunks, I32 position, Progress progress,
                    int64_t count);
  Progress addAllSlots(const ThreadChunks &chunks, I32 position, I32 slots);

  ThreadEmitter &emitter;
  I64 lane;
  /// Slots of a row.
  int64_t topK;
  /// Addresses of the slots' rows, their positions, and the addend, which may
  /// be null.
  mlir::Value rows, positions, addend;
  /// The number of valid rows; null if all are.
  I64 numValid;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_EXCHANGE_SUMS_H
