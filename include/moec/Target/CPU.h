//===- CPU.h - lowers kernels to machine code -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TARGET_CPU_H
#define MOEC_TARGET_CPU_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Schedules/Schedules.h"
#include "moert/Device.h"

#include <string>

namespace moec {

/// The CPU that code is generated for.
struct CpuTargetOptions {
  /// "host", or a name that LLVM knows, e.g. "x86-64-v3" (AVX2, FMA, F16C). The
  /// instruction set is limited to that of the named CPU.
  std::string cpu = "host";
};

/// Fails with a diagnostic if LLVM does not know the CPU, or if it is older
/// than x86-64-v3.
mlir::LogicalResult checkCpu(mlir::Operation *op,
                             const CpuTargetOptions &options);

/// What schedules know of the CPU; 8 lanes if `checkCpu` fails.
Target getCpuTarget(const CpuTargetOptions &options);

/// Lowers level tile, configured for the CPU, to the llvm dialect: each kernel
/// `@name` becomes `llvm.func @name(!llvm.ptr, i64)`. `plan.program` stays.
void buildTileToLLVMPipeline(mlir::OpPassManager &manager);

/// Registers the textual pipeline `tile-to-llvm`.
void registerTileToLLVMPipeline();

/// Prints the kernels of a module in the llvm dialect as LLVM IR, before
/// optimization. Ops of other dialects are left out.
mlir::FailureOr<std::string> printLLVM(mlir::ModuleOp module,
                                       const CpuTargetOptions &options);

/// Prints the kernels as optimized assembly.
mlir::FailureOr<std::string> printAssembly(mlir::ModuleOp module,
                                           const CpuTargetOptions &options);

/// Compiles the kernels for this process. The image's lookup owns the code.
/// Fails with a diagnostic if this machine lacks instructions of the requested
/// CPU.
mlir::FailureOr<moert::ModuleImage> jitKernels(mlir::ModuleOp module,
                                               const CpuTargetOptions &options);

} // namespace moec

#endif // MOEC_TARGET_CPU_H
