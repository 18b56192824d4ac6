//===- ToolOptions.h - options that the commands share ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_TOOLOPTIONS_H
#define MOEC_LIB_TOOLS_TOOLOPTIONS_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "moec/Compiler/Compiler.h"
#include "llvm/Support/CommandLine.h"

namespace moec {

/// Takes every option that LLVM's own libraries have registered off the command
/// line: their names would clash with ours, and differ between link modes.
struct ForeignOptionsRemoved {
  ForeignOptionsRemoved();
};

/// Options of moe-compile and moe-run. One object per process: command line
/// options register themselves.
struct ToolOptions : private ForeignOptionsRemoved {
  llvm::cl::OptionCategory category{"Options"};
  llvm::cl::opt<std::string> input{
      llvm::cl::Positional, llvm::cl::Required,
      llvm::cl::desc("MODEL.json|SPEC.json|FILE.mlir"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> target{
      "target", llvm::cl::desc("What to compile for: cpu"),
      llvm::cl::init("cpu"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> cpu{
      "cpu",
      llvm::cl::desc("Instruction set of target cpu: host, or a name such as "
                     "x86-64-v3 to cap it"),
      llvm::cl::init("host"), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> maxTokens{
      "max-tokens", llvm::cl::desc("Largest number of tokens of a call"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> numExperts{
      "num-experts",
      llvm::cl::desc("Keep only so many experts (groups stay), to try a large "
                     "model on a small machine"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> entry{
      "entry",
      llvm::cl::desc("What a call brings: gate (hidden states alone), logits, "
                     "or ids (with weights)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> printIRAfterAll{
      "print-ir-after-all", llvm::cl::desc("Print the IR after each pass"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> dumpDir{
      "dump-dir", llvm::cl::value_desc("folder"),
      llvm::cl::desc("Write the IR of each level to files in a folder"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> reproducer{
      "reproducer", llvm::cl::value_desc("file"),
      llvm::cl::desc("If a pass fails, write IR and passes to replay it with "
                     "moe-opt --run-reproducer"),
      llvm::cl::cat(category)};

  /// Parses the command line; false (with a message) if it makes no sense.
  bool parse(int argc, char **argv, llvm::StringRef overview);

  SpecOverrides getOverrides() const;
  CompileOptions getCompileOptions() const;
  static mlir::DialectRegistry makeRegistry();
};

/// Prints diagnostics as `file:line:col: error: message`, notes indented, on
/// the error stream.
class ConsoleDiagnostics : public mlir::ScopedDiagnosticHandler {
public:
  explicit ConsoleDiagnostics(mlir::MLIRContext &context);
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_TOOLOPTIONS_H
