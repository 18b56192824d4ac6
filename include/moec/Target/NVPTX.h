//===- NVPTX.h - kernels of level tile to code for GPUs ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PTX needs no GPU and no CUDA toolkit. A cubin needs ptxas; where there is
// none, the driver compiles the PTX when it is loaded.
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

/// For which GPU code is made.
struct NvptxOptions {
  /// As ptxas names it: "sm_80", "sm_90a", "sm_100a".
  std::string chip = "sm_80";
  /// The version of the PTX, times ten: 80 is PTX 8.0, which drivers from CUDA
  /// 12.0 on load. 0: the oldest that has what the chip's kernels use.
  unsigned ptxVersion = 0;
};

/// Gives each op of a module at level tile its line of `layer.tile.mlir`, which
/// is the module as it would be printed, beside the location that it has; a
/// kernel gets that of its first op. PTX that is made of it names these lines.
void recordTileLines(mlir::ModuleOp module);

/// From level tile, configured for the GPU `target`, to the llvm and nvvm
/// dialects: each kernel `@name` becomes an `llvm.func @name` with
/// `nvvm.kernel`. `plan.program` stays.
void buildTileToNVVMPipeline(mlir::OpPassManager &manager,
                             llvm::StringRef target);

/// Makes the pipeline known by name: `tile-to-nvvm{target=sm_80}`.
void registerTileToNVVMPipeline();

/// The kernels of a module in the llvm and nvvm dialects, as LLVM IR before
/// optimization. Everything of other dialects is left out.
mlir::FailureOr<std::string> printNvptxLLVM(mlir::ModuleOp module,
                                            const NvptxOptions &options);

/// Lets the modules of a context be translated to LLVM IR. The functions here
/// do so themselves; to call them from several threads, do it before.
void registerNvptxTranslations(mlir::MLIRContext &context);

/// The same as PTX, with the lines of recordTileLines(), which become the only
/// locations of the module's kernels. Fails with a diagnostic on a chip that
/// LLVM does not know.
mlir::FailureOr<std::string> emitPTX(mlir::ModuleOp module,
                                     const NvptxOptions &options);

/// What ptxas says of one kernel.
struct KernelReport {
  std::string name;
  int64_t registers = 0;
  int64_t stackBytes = 0, spillStoreBytes = 0, spillLoadBytes = 0;
  /// Static shared memory.
  int64_t sharedBytes = 0;
};

struct AssembledKernels {
  /// The contents of a cubin, an ELF file.
  std::string cubin;
  std::vector<KernelReport> kernels;
  /// Warnings, and messages of the family C75xx: where ptxas had to give up
  /// asynchronous tensor cores or a register budget.
  std::vector<std::string> complaints;
  /// Processor time of ptxas.
  double cpuSeconds = 0;
};

struct AssembleOptions {
  /// The program; empty: `findPtxas`.
  std::string ptxas;
  /// After this it is stopped. Kernels take a fraction of a second.
  double timeoutSeconds = 120;
};

/// The ptxas that the environment variable MOEC_PTXAS names, else the one on
/// the PATH, else the one of /usr/local/cuda; empty if there is none.
std::string findPtxas();

/// The ptxas of the options; empty if there is none.
std::string getAssembler(const AssembleOptions &options);

/// What the ptxas of the options, of which there is one, says of its version.
llvm::Expected<std::string>
getAssemblerVersion(const AssembleOptions &options = {});

/// Assembles PTX for `chip`. Fails with what ptxas says, or where it was looked
/// for. Leaves no files behind, and may be called from several threads.
llvm::Expected<AssembledKernels> assemble(llvm::StringRef ptx,
                                          llvm::StringRef chip,
                                          const AssembleOptions &options = {});

/// What `text`, the output of `ptxas -v`, says: all but the cubin.
AssembledKernels parseAssemblerOutput(llvm::StringRef text);

} // namespace moec

#endif // MOEC_TARGET_NVPTX_H
