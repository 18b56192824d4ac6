//===- Interpreter.h - runs functions and kernels op by op ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Runs the levels moe, plan and tile in plain loops: the first level that
// disagrees with the reference identifies the wrong pass.

#ifndef MOEC_INTERPRETER_INTERPRETER_H
#define MOEC_INTERPRETER_INTERPRETER_H

#include "moec/Interpreter/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace moec::interpreter {

/// Runs a function of pipeline ops (level moe after moe-decompose). `inputs`
/// determine the dynamic dimensions; results are allocated. Errors name the
/// argument or the op.
moert::Result<std::vector<Tensor>>
interpretFunction(mlir::func::FuncOp function,
                  llvm::ArrayRef<TensorRef> inputs);

/// Runs all CTAs of one kernel. `tensors` are the arguments, then the results,
/// of a plan.kernel, or the memrefs of a tile.kernel, with their sizes at
/// `tokens`.
moert::Status interpretKernel(mlir::FunctionOpInterface kernel,
                              llvm::ArrayRef<TensorRef> tensors,
                              int64_t tokens);

} // namespace moec::interpreter

#endif // MOEC_INTERPRETER_INTERPRETER_H
