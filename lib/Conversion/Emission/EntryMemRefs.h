//===- EntryMemRefs.h - memrefs of what the runtime passes ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The runtime passes plain addresses, and strides where they are not constant.
// The function of a kernel makes the descriptors of its memrefs itself, as
// constants around the address.

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
/// Adds the strides of a memref that is not known to be without gaps, i64 each,
/// to the arguments of a block, from `index` on. Empty for any other memref.
llvm::SmallVector<mlir::Value> insertStrideArguments(mlir::Block &block,
                                                     unsigned index,
                                                     mlir::MemRefType type);
/// A row-major memref at `pointer`, with these strides in its outer dimensions
/// if there are any.
mlir::Value makeMemRef(mlir::ImplicitLocOpBuilder &b,
                       const mlir::LLVMTypeConverter &converter,
                       mlir::MemRefType type, mlir::Value pointer,
                       mlir::ValueRange strides);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_ENTRYMEMREFS_H
