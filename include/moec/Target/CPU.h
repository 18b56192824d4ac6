//===- CPU.h - kernels of level tile to machine code ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TARGET_CPU_H
#define MOEC_TARGET_CPU_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "moert/Device.h"

#include <string>

namespace moec {

/// For which CPU code is made.
struct CpuTargetOptions {
  /// "host", or a name that LLVM knows, e.g. "x86-64-v3" (AVX2, FMA, F16C),
  /// which caps the instructions at what that CPU has.
  std::string cpu = "host";
};

/// Fails with a diagnostic on a CPU whose name LLVM does not know, or that is
/// older than x86-64-v3.
mlir::LogicalResult checkCpu(mlir::Operation *op,
                             const CpuTargetOptions &options);

/// f32 elements of a vector register: 16 with AVX-512, else 8.
int64_t getVectorLanes(const CpuTargetOptions &options);

/// From level tile, configured for the CPU, to the llvm dialect: each kernel
/// `@name` becomes `llvm.func @name(!llvm.ptr, i64)`. `plan.program` stays.
void buildTileToLLVMPipeline(mlir::OpPassManager &manager);

/// Makes the pipeline known by name: `tile-to-llvm`.
void registerTileToLLVMPipeline();

/// The kernels of a module in the llvm dialect, as LLVM IR before optimization.
/// Everything that is not of the llvm dialect is left out.
mlir::FailureOr<std::string> printLLVM(mlir::ModuleOp module,
                                       const CpuTargetOptions &options);

/// The same as optimized assembly.
mlir::FailureOr<std::string> printAssembly(mlir::ModuleOp module,
                                           const CpuTargetOptions &options);

/// Compiles the same for this process. The image's lookup owns the code. Fails
/// with a diagnostic when this machine lacks instructions of the CPU asked for.
mlir::FailureOr<moert::ModuleImage> jitKernels(mlir::ModuleOp module,
                                               const CpuTargetOptions &options);

} // namespace moec

#endif // MOEC_TARGET_CPU_H
