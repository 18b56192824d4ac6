//===- Compiler.h - from a description to a layer that runs -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_COMPILER_H
#define MOEC_COMPILER_COMPILER_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "moec/Compiler/Levels.h"
#include "moec/Import/Import.h"
#include "moec/Target/CPU.h"
#include "moec/Target/NVPTX.h"
#include "moert/Device.h"
#include "moert/Plan.h"

namespace llvm {
class SourceMgr;
} // namespace llvm

namespace moec {

/// A layer as it was read: IR of some level and, if it came from JSON, the
/// spec.
struct Source {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<LayerSpec> spec;
};

/// Reads a config.json or a spec (`.json`), or IR of any level (`.mlir`, or
/// standard input for `-`). Says what is wrong on the error stream, about IR
/// through the context's diagnostics; `texts`, which is empty, gets the text of
/// IR for them. Overrides are for JSON alone.
mlir::FailureOr<Source> loadSource(mlir::MLIRContext &context,
                                   llvm::StringRef path,
                                   const SpecOverrides &overrides,
                                   llvm::SourceMgr &texts);

/// What a pipeline does beside lowering.
struct CompileOptions {
  /// "cpu", or a GPU as in "sm_80" or "sm_90a".
  std::string target = "cpu";
  CpuTargetOptions cpu;

  bool isGpu() const { return target != "cpu"; }
  NvptxOptions getNvptx() const { return {target}; }
  /// Gives each buffer a workspace slot of its own, to look at after a run.
  bool keepAllBuffers = false;
  /// Prints the IR after each pass on the error stream.
  bool printIRAfterAll = false;
  /// Folder (made if missing) that gets each level that is passed:
  /// `layer.moe.mlir`, `layer.plan.mlir`, `layer.tile.mlir` and `layer.ll`.
  std::string dumpDir;
  /// File that gets IR and pass pipeline when a pass fails.
  std::string reproducer;
};

/// Lowers a module in place from the level that it has to `level`, which is not
/// above it.
mlir::LogicalResult lowerToLevel(mlir::ModuleOp module, Level level,
                                 const CompileOptions &options);

/// From layers to pipeline ops, without leaving level moe.
mlir::LogicalResult decomposeLayers(mlir::ModuleOp module,
                                    const CompileOptions &options);

/// A layer for the host device.
struct CompiledLayer {
  moert::Plan plan;
  moert::ModuleImage image;
};

/// Lowers a module of any level to machine code in memory. The module is left
/// at level tile.
mlir::FailureOr<CompiledLayer> compileForHost(mlir::ModuleOp module,
                                              const CompileOptions &options);

/// The LLVM IR of the kernels, as text.
mlir::FailureOr<std::string> emitLLVM(mlir::ModuleOp module,
                                      const CompileOptions &options);

/// A layer for a GPU: its plan, and the PTX of its kernels.
struct CompiledPtx {
  moert::Plan plan;
  std::string ptx;
};

/// Lowers a module of any level to PTX for the GPU of the options. The module
/// is left at level tile.
mlir::FailureOr<CompiledPtx> compileForGpu(mlir::ModuleOp module,
                                           const CompileOptions &options);

} // namespace moec

#endif // MOEC_COMPILER_COMPILER_H
