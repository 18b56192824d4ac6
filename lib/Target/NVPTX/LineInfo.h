//===- LineInfo.h - maps PTX lines to lines of IR ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TARGET_NVPTX_LINEINFO_H
#define MOEC_LIB_TARGET_NVPTX_LINEINFO_H

#include "mlir/IR/BuiltinOps.h"

namespace moec {

/// Adds line information (`.file`, `.loc`) for the lines that recordTileLines()
/// recorded at level tile to kernels in the llvm dialect. Kernels without such
/// lines do not change. The information does not inhibit optimizations of LLVM
/// or ptxas.
void attachLineInfo(mlir::ModuleOp module);

} // namespace moec

#endif // MOEC_LIB_TARGET_NVPTX_LINEINFO_H
