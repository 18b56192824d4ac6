//===- Passes.h - passes inside one level -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TRANSFORMS_PASSES_H
#define MOEC_TRANSFORMS_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/Pass.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// Most kernels of a program, unless an option says otherwise.
inline constexpr int64_t kMaxKernels = 24;

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

#endif // MOEC_TRANSFORMS_PASSES_H
