//===- PackedMemRef.h - the memrefs that the runtime can bind ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_PLAN_PACKEDMEMREF_H
#define MOEC_DIALECT_PLAN_PACKEDMEMREF_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "moert/Expr.h"

namespace moec::plan {

/// A kernel gets addresses and the token count: a memref must be row-major
/// without gaps, and at most its first dimension dynamic. Beside the addresses
/// of weights it may get strides, so a memref may also be what
/// getStridedMemRef() makes. `name` is what the message calls it.
llvm::LogicalResult verifyPackedMemRef(mlir::Operation *op,
                                       const llvm::Twine &name,
                                       mlir::MemRefType type);

/// A memref with gaps between its rows, whose strides are not known before it
/// is bound: strided<[?, ..., 1]>.
mlir::MemRefType getStridedMemRef(mlir::ShapedType type);

/// Whether `type` is what getStridedMemRef() makes.
bool isStridedMemRef(mlir::MemRefType type);

/// The rows of a memory of a plan (`plan.tensor`, `plan.buffer`); 0 where it
/// does not say how many there are.
moert::Expr getRows(mlir::Value memory);

} // namespace moec::plan

#endif // MOEC_DIALECT_PLAN_PACKEDMEMREF_H
