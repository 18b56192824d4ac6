//===- WeightPrefetch.h - weights of a launch to come -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// What `prefetch` of a phase becomes: requests that bring weights into the
// second-level cache while the bus has time, and that nobody waits for.
//
// If all matrices that the launch to come will read are within the budget, all
// of their chunks are asked for; else every second chunk of twice as many
// bytes, those that it reads first. Then it reads from cache and memory side by
// side, not from one after the other.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_WEIGHTPREFETCH_H
#define MOEC_LIB_CONVERSION_TILETONVVM_WEIGHTPREFETCH_H

#include "ThreadEmitter.h"

namespace moec {

class WeightPrefetch {
public:
  /// Matrices of an argument of the kernel, one or several; `bytes` is the
  /// budget.
  WeightPrefetch(ThreadEmitter &emitter, mlir::Value weight, int64_t bytes);

  bool isOne() const { return type.getRank() == 2; }
  int64_t getMatrixChunks() const;
  /// How many matrices fit whole.
  int64_t getWholeMatrices() const { return bytes / matrixBytes; }
  /// Chunks of the first matrices among which those that are asked for lie.
  int64_t getSpan() const;
  /// The matrices that this reaches.
  int64_t getMostMatrices() const;
  /// 1 if `count` matrices (i32) fit whole, else 2; of type index.
  mlir::Value getStep(mlir::Value count);
  /// Asks for a chunk (of type index) of a matrix (i32).
  void request(mlir::Value matrix, mlir::Value chunk);

private:
  int64_t getNumMatrices() const { return isOne() ? 1 : type.getDimSize(0); }

  /// Large enough for few requests, small enough that all CTAs have some.
  static constexpr int64_t kChunkBytes = 8192;

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value memref;
  mlir::MemRefType type;
  int64_t bytes, matrixBytes;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_WEIGHTPREFETCH_H
