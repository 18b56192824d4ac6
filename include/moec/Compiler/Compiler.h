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
#include "moec/Compiler/CompileTimes.h"
#include "moec/Compiler/Levels.h"
#include "moec/Import/Import.h"
#include "moec/Target/CPU.h"
#include "moec/Target/NVPTX.h"
#include "moert/Device.h"
#include "moert/Plan.h"

namespace llvm {
class SourceMgr;
class raw_ostream;
} // namespace llvm

namespace moec {

/// A layer as it was read: IR of some level and, if it came from JSON, the
/// spec.
struct Source {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<LayerSpec> spec;
};

/// Reads the text of a config.json or a spec (`.json`), the config.json of a
/// model's folder, IR of any level (`.mlir`), or JSON or IR from standard input
/// (`-`). `overrides` gets the text of an hf_quant_config.json beside a
/// description in JSON. Says on `os` what is wrong.
mlir::FailureOr<SourceText> readSource(llvm::StringRef path,
                                       SpecOverrides &overrides,
                                       llvm::raw_ostream &os);

/// Whether a text is a description in JSON, and not IR.
bool isJson(const SourceText &text);

/// The layer that a text describes, in JSON or as IR. Says on `os` what is
/// wrong, about IR through the context's diagnostics; `texts`, which is empty,
/// gets the text of IR for them. Overrides are for JSON alone.
mlir::FailureOr<Source> parseSource(mlir::MLIRContext &context,
                                    const SourceText &text,
                                    const SpecOverrides &overrides,
                                    llvm::SourceMgr &texts,
                                    llvm::raw_ostream &os);

/// Both. Says what is wrong on the error stream.
mlir::FailureOr<Source> loadSource(mlir::MLIRContext &context,
                                   llvm::StringRef path,
                                   const SpecOverrides &overrides,
                                   llvm::SourceMgr &texts);

/// What is compiled for, and what a compilation does beside. `lanes` are those
/// of `cpu`.
struct CompileOptions : TileOptions {
  CpuTargetOptions cpu;

  /// For GPUs: which ptxas, and how long it may take.
  AssembleOptions assembler;

  NvptxOptions getNvptx() const { return {target}; }
  /// Gives each buffer a workspace slot of its own, to look at after a run, and
  /// leaves out rewrites of launches that make others of them.
  bool keepAllBuffers = false;
  /// Prints the IR after each pass on the error stream.
  bool printIRAfterAll = false;
  /// Folder (made if missing) that gets each level that is passed:
  /// `layer.moe.mlir`, `layer.plan.mlir`, `layer.tile.mlir` and `layer.ll`, or
  /// for a GPU `layer.KERNEL.ll`.
  std::string dumpDir;
  /// File that gets IR and pass pipeline when a pass fails.
  std::string reproducer;
  /// Gets what the stages of a compilation for GPUs take; may be null.
  CompileTimes *times = nullptr;
};

/// Lowers a module in place from the level that it has to `level`, which is not
/// above it.
mlir::LogicalResult lowerToLevel(mlir::ModuleOp module, Level level,
                                 const CompileOptions &options);

/// The passes by which `lowerToLevel` takes a module from one level to another,
/// with `toKernels` also those from there to kernels in the llvm dialect, as
/// text for moe-opt --pass-pipeline.
std::string printPipeline(Level from, Level to, bool toKernels,
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

/// The PTX of all kernels, as one text.
mlir::FailureOr<std::string> emitPTX(mlir::ModuleOp module,
                                     const CompileOptions &options);

/// One kernel of a layer for a GPU, a module of its own for the driver.
struct CompiledKernel {
  std::string name;
  std::string ptx;
  /// One per architecture that was asked for.
  std::vector<AssembledKernels> assembled;
};

struct CompiledGpuLayer {
  moert::Plan plan;
  /// In the order of the module.
  std::vector<CompiledKernel> kernels;
};

/// Lowers a module of any level to PTX for the GPU of the options, and
/// assembles it for each of `architectures` ("sm_90a"). Kernels are compiled in
/// the threads of the module's context; the result does not depend on their
/// number. The module is left at level tile.
mlir::FailureOr<CompiledGpuLayer>
compileForGpu(mlir::ModuleOp module, const CompileOptions &options,
              llvm::ArrayRef<std::string> architectures = {});

} // namespace moec

#endif // MOEC_COMPILER_COMPILER_H
