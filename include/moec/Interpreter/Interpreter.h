//===- Interpreter.h - runs functions and kernels op by op ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The levels moe, plan and tile in plain loops, so that the first level that
// disagrees with the reference names the wrong pass.

#ifndef MOEC_INTERPRETER_INTERPRETER_H
#define MOEC_INTERPRETER_INTERPRETER_H

#include "moec/Interpreter/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace moec::interpreter {

/// Runs a function of pipeline ops (level moe after moe-decompose). Dynamic
/// dimensions are those of `inputs`; results are allocated. Fails with the
/// argument's or the op's name.
moert::Result<std::vector<Tensor>>
interpretFunction(mlir::func::FuncOp function,
                  llvm::ArrayRef<TensorRef> inputs);

/// Runs all CTAs of one kernel: `tensors` are a plan.kernel's arguments and
/// then its results, or a tile.kernel's memrefs, with their sizes at `tokens`.
moert::Status interpretKernel(mlir::FunctionOpInterface kernel,
                              llvm::ArrayRef<TensorRef> tensors,
                              int64_t tokens);

} // namespace moec::interpreter

#endif // MOEC_INTERPRETER_INTERPRETER_H
