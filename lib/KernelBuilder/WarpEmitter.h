//===- WarpEmitter.h - vectors spread over a warp ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_KERNELBUILDER_WARPEMITTER_H
#define MOEC_LIB_KERNELBUILDER_WARPEMITTER_H

#include "ThreadEmitter.h"

namespace moec {

/// Emitter in which a warp acts as a CTA. A vector of `32 p` lanes is spread
/// over the warp: each thread has p neighbours, as a scalar if p is 1. Scalars
/// are uniform, and branches are taken by the whole warp. Scratch memory
/// belongs to the warp.
class WarpEmitter : public ThreadEmitter {
public:
  WarpEmitter(mlir::func::FuncOp func, tile::KernelOp kernel, int64_t threads);

  mlir::Type vectorType(mlir::Type element, int64_t lanes) override;
  using KernelEmitter::splat;
  mlir::Value splat(mlir::Value scalar, int64_t lanes) override;
  I32 laneNumbers(int64_t lanes) override;
  Flag mask(Index count, int64_t lanes) override;
  mlir::Value reduce(mlir::vector::CombiningKind kind,
                     mlir::Value vector) override;

  void storeF32(mlir::Value value, mlir::Value memref,
                mlir::ValueRange indices) override;
  void storeI32(mlir::Value value, mlir::Value memref,
                mlir::ValueRange indices) override;
  F32 loadVector(mlir::Value memref, mlir::ValueRange indices, int64_t lanes,
                 Flag mask = {}) override;
  void storeVector(mlir::Value vector, mlir::Value memref,
                   mlir::ValueRange indices, Flag mask = {}) override;
  I32 loadI32Vector(mlir::Value memref, Index index, int64_t lanes) override;
  void storeI32Vector(I32 vector, mlir::Value memref, Index index) override;
  mlir::Value scratch(llvm::ArrayRef<int64_t> shape,
                      mlir::Type elementType) override;

private:
  /// Elements per thread of a vector.
  static int64_t getShare(mlir::Value vector);
  /// The thread's element `i` of a vector or of a mask.
  mlir::Value part(mlir::Value vector, int64_t i);
  mlir::Value join(llvm::ArrayRef<mlir::Value> parts);
  /// `indices` moved to the thread's element `i` of `share`.
  llvm::SmallVector<mlir::Value> at(mlir::ValueRange indices, int64_t share,
                                    int64_t i);
  /// Runs `write`, ordered with the warp's other accesses if `memref` is
  /// scratch.
  void ordered(mlir::Value memref, llvm::function_ref<void()> write);
  void ifFirstLane(llvm::function_ref<void()> body);
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_WARPEMITTER_H
