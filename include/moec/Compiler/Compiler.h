//===- Compiler.h - compiles a description to a layer -----------*- C++ -*-===//
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

/// The tensors of a file or folder, for `SpecOverrides`; null if it cannot be
/// opened.
std::shared_ptr<const StoredTensors> getStoredTensors(const std::string &path);

/// A parsed layer: IR of any level and, if it came from JSON, the spec.
struct Source {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<LayerSpec> spec;
  /// The decoder layers with experts of a model's configuration; 0 for a spec
  /// and for IR.
  int64_t numLayers = 0;
};

/// Reads the text of a config.json or a spec (`.json`), of the config.json in a
/// model's folder, of IR of any level (`.mlir`), or of JSON or IR on standard
/// input (`-`); that of a `.gguf` is written from its metadata. Stores the file
/// itself in `overrides`, or the text of an hf_quant_config.json beside a JSON
/// description, and the tensors beside a config.json, in
/// `overrides`. Prints errors on `os`.
mlir::FailureOr<SourceText> readSource(llvm::StringRef path,
                                       SpecOverrides &overrides,
                                       llvm::raw_ostream &os);

/// Whether a text is a JSON description and not IR.
bool isJson(const SourceText &text);

/// Parses a layer description, JSON or IR. Prints errors on `os`; errors in IR
/// go through the diagnostics of the context, for which the text is added to
/// `texts` (initially empty). Overrides apply to JSON only.
mlir::FailureOr<Source> parseSource(mlir::MLIRContext &context,
                                    const SourceText &text,
                                    const SpecOverrides &overrides,
                                    llvm::SourceMgr &texts,
                                    llvm::raw_ostream &os);

/// Reads and parses; prints errors on the error stream.
mlir::FailureOr<Source> loadSource(mlir::MLIRContext &context,
                                   llvm::StringRef path,
                                   const SpecOverrides &overrides,
                                   llvm::SourceMgr &texts);

/// Target and side outputs of a compilation. `lanes` are those of `cpu`.
struct CompileOptions : TileOptions {
  CpuTargetOptions cpu;

  /// For GPUs: the ptxas program and its timeout.
  AssembleOptions assembler;

  NvptxOptions getNvptx() const { return {target}; }
  /// Prints the IR on the error stream after each pass.
  bool printIRAfterAll = false;
  /// Folder (created if missing) for the IR of each level: `layer.moe.mlir`,
  /// `layer.plan.mlir`, `layer.tile.mlir`, and `layer.ll` or, for a GPU,
  /// `layer.KERNEL.ll`.
  std::string dumpDir;
  /// File that gets the IR and the pass pipeline when a pass fails.
  std::string reproducer;
  /// Receives the times of a compilation for GPUs; may be null.
  CompileTimes *times = nullptr;
};

/// Lowers a module in place to `level`, which must not be above its current
/// level.
mlir::LogicalResult lowerToLevel(mlir::ModuleOp module, Level level,
                                 const CompileOptions &options);

/// The passes with which `lowerToLevel` lowers a module between two levels, as
/// text for moe-opt --pass-pipeline. With `toKernels` it also contains those
/// that lower to kernels in the llvm dialect.
std::string printPipeline(Level from, Level to, bool toKernels,
                          const CompileOptions &options);

/// Decomposes layers into pipeline ops, within level moe.
mlir::LogicalResult decomposeLayers(mlir::ModuleOp module,
                                    const CompileOptions &options);

/// A layer compiled for the host.
struct CompiledLayer {
  moert::Plan plan;
  moert::ModuleImage image;
};

/// Lowers a module of any level to machine code in memory. The module itself
/// ends at level tile.
mlir::FailureOr<CompiledLayer> compileForHost(mlir::ModuleOp module,
                                              const CompileOptions &options);

/// The LLVM IR of the kernels, as text.
mlir::FailureOr<std::string> emitLLVM(mlir::ModuleOp module,
                                      const CompileOptions &options);

/// The PTX of all kernels, as one text.
mlir::FailureOr<std::string> emitPTX(mlir::ModuleOp module,
                                     const CompileOptions &options);

/// One GPU kernel of a layer; the driver loads each as its own module.
struct CompiledKernel {
  std::string name;
  std::string ptx;
  /// One per requested architecture.
  std::vector<AssembledKernels> assembled;
};

struct CompiledGpuLayer {
  moert::Plan plan;
  /// In module order.
  std::vector<CompiledKernel> kernels;
};

/// Lowers a module of any level to PTX for the GPU of the options and assembles
/// it for each of `architectures` ("sm_90a"). Kernels are compiled on the
/// threads of the module's context; the result does not depend on their number.
/// The module itself ends at level tile.
mlir::FailureOr<CompiledGpuLayer>
compileForGpu(mlir::ModuleOp module, const CompileOptions &options,
              llvm::ArrayRef<std::string> architectures = {});

} // namespace moec

#endif // MOEC_COMPILER_COMPILER_H
