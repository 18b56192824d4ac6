//===- Quantizer.h - rows that are quantized --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Quantizes the rows of a gather on the fly. A thread holds the values of its
// chunks in registers; the lanes or warps that share a scale find their largest
// magnitude together.

#ifndef MOEC_LIB_SCHEDULES_EXCHANGE_QUANTIZER_H
#define MOEC_LIB_SCHEDULES_EXCHANGE_QUANTIZER_H

#include "KernelBuilder/Quantizer.h"
#include "Parts.h"

namespace moec {

class RowQuantizer {
public:
  /// For an exchange with `unquantized`. `hasInstructions`: the target converts
  /// to e4m3.
  RowQuantizer(tile::ExchangeOp op, ThreadEmitter &emitter,
               ExchangeParts &parts, I64 lane, bool hasInstructions);

  /// Loads of a row, of a chunk's size each, per chunk of quantized values.
  int64_t countLoads() const;

  /// A thread's chunks of both pairs.
  struct Quantized {
    llvm::SmallVector<mlir::Value> values, scales;
  };
  /// Quantizes the rows that a thread has loaded in a round.
  Quantized quantize(const ThreadChunks &chunks,
                     llvm::ArrayRef<mlir::Value> loaded);

private:
  /// Inputs of a chunk of quantized values, as vectors of the rows' elements.
  llvm::SmallVector<mlir::Value> getInputs(llvm::ArrayRef<mlir::Value> loaded,
                                           size_t chunk);
  mlir::Value encode(llvm::ArrayRef<F32> inputs,
                     const Quantizer::Divisor &divisor);
  /// The largest magnitude of the scale group, which is in adjacent lanes.
  F32 findLargestOfLanes(F32 largest, int64_t lanes);
  /// The largest magnitude of the row that all of the warp's chunks belong to.
  F32 findLargestOfRow(const ThreadChunks &chunks,
                       llvm::ArrayRef<mlir::Value> loaded);
  F32 findLargestOfWarps(F32 largest, int64_t warps);

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  I64 lane;
  mlir::MemRefType rowType;
  Quantizer quantizer;
  /// Adjacent lanes that share a scale, unless each row has one.
  int64_t groupLanes = 0;
  /// Per-warp row maxima (f32) in shared memory, for one scale per row; null if
  /// one warp has a whole row.
  mlir::Value warpMaxima;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_EXCHANGE_QUANTIZER_H
