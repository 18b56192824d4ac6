//===- Stages.h - internal interface of the compiler ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_COMPILER_STAGES_H
#define MOEC_LIB_COMPILER_STAGES_H

#include "mlir/Pass/PassManager.h"
#include "moec/Compiler/Compiler.h"

namespace moec {

/// Runs the passes added by `build`, with the printing and reproducer options.
mlir::LogicalResult
runPasses(mlir::ModuleOp module, const CompileOptions &options,
          llvm::function_ref<void(mlir::OpPassManager &)> build);

/// Writes `text` to a file in the dump folder, which must be set.
mlir::LogicalResult dump(llvm::StringRef text, llvm::StringRef name,
                         const CompileOptions &options);

} // namespace moec

#endif // MOEC_LIB_COMPILER_STAGES_H
