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

/// Kernels take addresses and the token count, so a memref must be row-major
/// without gaps, with at most its first dimension dynamic. Weights may also
/// pass strides, so a memref may also be of the type of getStridedMemRef().
/// `name` names the memref in messages.
llvm::LogicalResult verifyPackedMemRef(mlir::Operation *op,
                                       const llvm::Twine &name,
                                       mlir::MemRefType type);

/// A memref with gaps between its rows and strides that are known only when it
/// is bound: strided<[?, ..., 1]>.
mlir::MemRefType getStridedMemRef(mlir::ShapedType type);

/// Whether `type` is a type of getStridedMemRef().
bool isStridedMemRef(mlir::MemRefType type);

/// The `rows` of a `plan.tensor` or `plan.buffer`; 0 without.
moert::Expr getRows(mlir::Value memory);

} // namespace moec::plan

#endif // MOEC_DIALECT_PLAN_PACKEDMEMREF_H
