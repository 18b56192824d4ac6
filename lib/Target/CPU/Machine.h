//===- Machine.h - the target machine for CPUs ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TARGET_CPU_MACHINE_H
#define MOEC_LIB_TARGET_CPU_MACHINE_H

#include "moec/Target/CPU.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>

namespace moec {

/// Returns a builder of target machines for the requested CPU.
llvm::Expected<llvm::orc::JITTargetMachineBuilder>
makeMachineBuilder(const CpuTargetOptions &options);

/// Names of instruction sets that the machine uses and this host lacks.
std::string getMissingFeatures(const llvm::TargetMachine &machine);

/// Translates the functions of the llvm dialect to LLVM IR for that machine.
mlir::FailureOr<std::unique_ptr<llvm::Module>>
translateKernels(mlir::ModuleOp module, llvm::TargetMachine &machine,
                 llvm::LLVMContext &context);

} // namespace moec

#endif // MOEC_LIB_TARGET_CPU_MACHINE_H
