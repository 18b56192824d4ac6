//===- Translate.h - translates kernels to LLVM IR --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TARGET_TRANSLATE_H
#define MOEC_LIB_TARGET_TRANSLATE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace moec {

/// Translates the kernels of a module to LLVM IR for that machine. The module's
/// context must have the translations of all dialects of the kernels. Fails
/// with a diagnostic.
mlir::FailureOr<std::unique_ptr<llvm::Module>>
translateFor(llvm::TargetMachine &machine, mlir::ModuleOp module,
             llvm::LLVMContext &context);

} // namespace moec

#endif // MOEC_LIB_TARGET_TRANSLATE_H
