//===- InlinePtx.h - machine instructions without an op ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// All inline assembly that emission writes itself, and which op of MLIR 22.1 it
// stands for.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_INLINEPTX_H
#define MOEC_LIB_CONVERSION_TILETONVVM_INLINEPTX_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace moec {

/// The f32 values again, not to be read before this point.
///
/// Stands for an `nvvm.wgmma.wait.group.sync.aligned` that takes and returns
/// the accumulators: the op has no operands, so that LLVM may move arithmetic
/// on accumulators in front of the wait. No instruction is made.
llvm::SmallVector<mlir::Value> tieSums(mlir::ImplicitLocOpBuilder &b,
                                       mlir::ValueRange sums);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_INLINEPTX_H
