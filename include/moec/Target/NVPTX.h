//===- NVPTX.h - lowers kernels to PTX and cubins ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PTX needs neither a GPU nor the CUDA toolkit. A cubin needs ptxas; without it
// the driver compiles the PTX when it is loaded.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TARGET_NVPTX_H
#define MOEC_TARGET_NVPTX_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace moec {

/// The GPU that code is generated for.
struct NvptxOptions {
  /// Name as in ptxas: "sm_80", "sm_90a", "sm_100a".
  std::string chip = "sm_80";
  /// PTX version times ten: 80 is PTX 8.0, which drivers from CUDA 12.0 on
  /// load. 0: the oldest version with all instructions of the chip's kernels;
  /// 8.1 if there are clusters.
  unsigned ptxVersion = 0;
};

/// Adds to each op of a module at level tile its line in `layer.tile.mlir` (the
/// printed module) as a second location; a kernel gets the line of its first
/// op. PTX line information refers to these lines.
void recordTileLines(mlir::ModuleOp module);

/// Lowers level tile, configured for the GPU `target`, to the llvm and nvvm
/// dialects: each kernel `@name` becomes an `llvm.func @name` with
/// `nvvm.kernel`. `plan.program` stays.
void buildTileToNVVMPipeline(mlir::OpPassManager &manager,
                             llvm::StringRef target);

/// Registers the textual pipeline `tile-to-nvvm{target=sm_80}`.
void registerTileToNVVMPipeline();

/// Prints the kernels of a module in the llvm and nvvm dialects as LLVM IR,
/// before optimization. Ops of other dialects are left out.
mlir::FailureOr<std::string> printNvptxLLVM(mlir::ModuleOp module,
                                            const NvptxOptions &options);

/// Registers the translations of a context's modules to LLVM IR. The functions
/// below do so themselves, but not safely from several threads; call this first
/// then.
void registerNvptxTranslations(mlir::MLIRContext &context);

/// Emits PTX for the kernels. Locations of kernels are replaced by the lines of
/// recordTileLines(). Fails with a diagnostic if LLVM does not know the chip.
mlir::FailureOr<std::string> emitPTX(mlir::ModuleOp module,
                                     const NvptxOptions &options);

/// ptxas statistics of one kernel.
struct KernelReport {
  std::string name;
  int64_t registers = 0;
  int64_t stackBytes = 0, spillStoreBytes = 0, spillLoadBytes = 0;
  /// Static shared memory in bytes.
  int64_t sharedBytes = 0;
};

struct AssembledKernels {
  /// Contents of a cubin (ELF file).
  std::string cubin;
  std::vector<KernelReport> kernels;
  /// Warnings, and messages C75xx: ptxas had to serialize asynchronous
  /// tensor-core instructions or ignore a register limit.
  std::vector<std::string> complaints;
  /// Processor time of ptxas, in seconds.
  double cpuSeconds = 0;
};

struct AssembleOptions {
  /// Path of the program; empty: `findPtxas`.
  std::string ptxas;
  /// Timeout; kernels take a fraction of a second.
  double timeoutSeconds = 120;
};

/// The ptxas of the environment variable MOEC_PTXAS, else on the PATH, else in
/// /usr/local/cuda; empty if there is none.
std::string findPtxas();

/// The ptxas of the options or, if they name none, of `findPtxas`; empty if
/// there is none.
std::string getAssembler(const AssembleOptions &options);

/// Version text of the ptxas of the options, which must exist.
llvm::Expected<std::string>
getAssemblerVersion(const AssembleOptions &options = {});

/// Assembles PTX for `chip`. The error has ptxas's output, or the places that
/// were searched for ptxas. Leaves no files behind. Thread-safe.
llvm::Expected<AssembledKernels> assemble(llvm::StringRef ptx,
                                          llvm::StringRef chip,
                                          const AssembleOptions &options = {});

/// Parses the output of `ptxas -v`: all fields but the cubin.
AssembledKernels parseAssemblerOutput(llvm::StringRef text);

} // namespace moec

#endif // MOEC_TARGET_NVPTX_H
