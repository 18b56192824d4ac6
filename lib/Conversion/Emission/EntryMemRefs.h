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

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"

namespace moec {

/// Replaces the memref arguments of a kernel by addresses of type `pointer`,
/// each followed by the strides that are not constant (i64). Fails with a
/// diagnostic on a memref, or a use of one, of which an entry knows too little.
mlir::LogicalResult replaceMemRefArguments(mlir::func::FuncOp func,
                                           mlir::LLVM::LLVMPointerType pointer);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_ENTRYMEMREFS_H
