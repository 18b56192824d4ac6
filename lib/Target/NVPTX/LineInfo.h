//===- LineInfo.h - which lines of IR the lines of PTX come from *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TARGET_NVPTX_LINEINFO_H
#define MOEC_LIB_TARGET_NVPTX_LINEINFO_H

#include "mlir/IR/BuiltinOps.h"

namespace moec {

/// Lets the PTX of kernels in the llvm dialect name the lines of level tile
/// (`.file`, `.loc`) that recordTileLines() has found; kernels of a module
/// without such lines stay as they are. Neither LLVM nor ptxas optimizes any
/// less for it.
void attachLineInfo(mlir::ModuleOp module);

} // namespace moec

#endif // MOEC_LIB_TARGET_NVPTX_LINEINFO_H
