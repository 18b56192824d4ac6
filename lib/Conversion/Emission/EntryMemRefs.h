//===- EntryMemRefs.h - memrefs of what the runtime passes ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The runtime passes plain addresses. The function of a kernel makes the
// descriptors of its memrefs itself, as constants around the address.

#ifndef MOEC_LIB_CONVERSION_EMISSION_ENTRYMEMREFS_H
#define MOEC_LIB_CONVERSION_EMISSION_ENTRYMEMREFS_H

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace moec {

/// Fails with a diagnostic on an op that asks for an extent.
mlir::LogicalResult checkNoDynamicExtent(mlir::func::FuncOp func);
/// Fails with a diagnostic on a memref that `makeMemRef` cannot make.
mlir::LogicalResult checkMemRef(mlir::func::FuncOp func, mlir::MemRefType type);
/// A row-major memref at `pointer`.
mlir::Value makeMemRef(mlir::ImplicitLocOpBuilder &b,
                       const mlir::LLVMTypeConverter &converter,
                       mlir::MemRefType type, mlir::Value pointer);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_ENTRYMEMREFS_H
