//===- EntryMemRefs.h - memrefs of what the runtime passes ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Construction of memref descriptors at kernel entry. The runtime passes plain
// addresses, and strides that are not constant; a kernel's function builds the
// descriptors itself, as constants around the address.

#ifndef MOEC_LIB_KERNELBUILDER_ENTRYMEMREFS_H
#define MOEC_LIB_KERNELBUILDER_ENTRYMEMREFS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"

namespace moec {

/// Replaces the memref arguments of a kernel by addresses of type `pointer`,
/// each followed by the non-constant strides (i64). Fails with a diagnostic on
/// a memref, or a use of one, that needs more information.
mlir::LogicalResult replaceMemRefArguments(mlir::func::FuncOp func,
                                           mlir::LLVM::LLVMPointerType pointer);

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_ENTRYMEMREFS_H
