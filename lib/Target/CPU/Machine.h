//===- Machine.h - LLVM for the CPU target ----------------------*- C++ -*-===//
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

/// How to make target machines for the CPU asked for.
llvm::Expected<llvm::orc::JITTargetMachineBuilder>
makeMachineBuilder(const CpuTargetOptions &options);

/// The names of instruction sets that the machine uses and this host lacks.
std::string getMissingFeatures(const llvm::TargetMachine &machine);

/// The functions of the llvm dialect, as LLVM IR for that machine.
mlir::FailureOr<std::unique_ptr<llvm::Module>>
translateKernels(mlir::ModuleOp module, llvm::TargetMachine &machine,
                 llvm::LLVMContext &context);

} // namespace moec

#endif // MOEC_LIB_TARGET_CPU_MACHINE_H
