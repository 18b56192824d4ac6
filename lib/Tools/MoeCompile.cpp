//===- MoeCompile.cpp - the command moe-compile -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToolOptions.h"
#include "moec/Compiler/OutputFile.h"
#include "moec/Package/BuildPackage.h"
#include "moec/Package/SpecText.h"
#include "moec/Tools/Explain.h"
#include "moec/Tools/Tools.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/InitLLVM.h"

using namespace mlir;
using namespace moec;

namespace cl = llvm::cl;

namespace {
enum class Emit { Spec, Moe, Plan, Tile, LLVM, PTX };

struct Options : ToolOptions {
  Options() : ToolOptions("moe-compile") {}

  cl::opt<Emit> emit{
      "emit", cl::desc("What to print"),
      cl::values(clEnumValN(Emit::Spec, "spec",
                            "the layer in JSON, with every default resolved"),
                 clEnumValN(Emit::Moe, "moe", "the layer as one op"),
                 clEnumValN(Emit::Plan, "plan",
                            "launches over buffers, kernels on tensors"),
                 clEnumValN(Emit::Tile, "tile",
                            "kernels of coarse ops on memrefs, with configs"),
                 clEnumValN(Emit::LLVM, "llvm", "LLVM IR of the kernels"),
                 clEnumValN(Emit::PTX, "ptx",
                            "PTX of the kernels, on a GPU's target")),
      cl::init(Emit::Tile), cl::cat(category)};
  cl::opt<std::string> output{"o", cl::desc("Where to write (default: stdout)"),
                              cl::value_desc("file"), cl::init("-"),
                              cl::cat(category)};
  bool needsInput() const override { return !listModels; }
  bool makesPackage() const {
    return llvm::StringRef(output).ends_with(".moepkg");
  }
  cl::list<std::string> architectures{
      "arch", cl::value_desc("sm_90,..."), cl::CommaSeparated,
      cl::desc("For a package: what to assemble the kernels for, by ptxas "
               "(default: the target, where ptxas is found)"),
      cl::cat(category)};
  cl::opt<bool> listModels{
      "list-models",
      cl::desc("Print the model types that are known, with the keys of "
               "config.json that each reads, as JSON, and stop"),
      cl::cat(category)};
  cl::opt<bool> explain{
      "explain", cl::desc("Print what was chosen and why, instead of IR"),
      cl::cat(category)};
};
} // namespace

static FailureOr<std::string> produce(const Source &source,
                                      const Options &options) {
  ModuleOp module = *source.module;
  CompileOptions compile = options.getCompileOptions();
  std::string text;
  llvm::raw_string_ostream os(text);
  if (options.explain) {
    if (failed(lowerToLevel(module, Level::Tile, compile)) ||
        failed(explainLayer(module, source.spec, *Target::find(compile.target),
                            os)))
      return failure();
    return text;
  }
  if (options.emit == Emit::Spec) {
    if (source.spec)
      return printLayerSpec(*source.spec) + "\n";
    options.complain("--emit=spec is of a description in JSON; IR has no spec");
    return failure();
  }
  if (options.emit == Emit::LLVM)
    return emitLLVM(module, compile);
  if (options.emit == Emit::PTX)
    return emitPTX(module, compile);
  Level level = options.emit == Emit::Moe    ? Level::Moe
                : options.emit == Emit::Plan ? Level::Plan
                                             : Level::Tile;
  if (failed(lowerToLevel(module, level, compile)))
    return failure();
  module.print(os);
  return text;
}

/// A program for each target, all in one package.
static bool writeLayer(const Source &source, const Options &options) {
  moert::Package package;
  llvm::SmallVector<std::string> targets = options.getTargets();
  for (const std::string &target : targets) {
    CompileOptions compile = options.getCompileOptions();
    compile.target = target;
    if (targets.size() > 1 && !compile.dumpDir.empty())
      compile.dumpDir += "/" + target;
    std::vector<std::string> architectures(options.architectures.begin(),
                                           options.architectures.end());
    if (architectures.empty())
      architectures = chooseArchitectures(compile);
    // What is compiled stays at level tile.
    OwningOpRef<ModuleOp> module = source.module.get().clone();
    FailureOr<moert::Package> made =
        buildPackage(*module, source.spec, compile, architectures);
    if (failed(made))
      return false;
    made->programs.insert(made->programs.begin(),
                          std::make_move_iterator(package.programs.begin()),
                          std::make_move_iterator(package.programs.end()));
    package = std::move(*made);
  }
  moert::Status status = moert::writePackage(options.output, package);
  return status || options.complain(status.message());
}

int moec::moeCompileMain(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  Options options;
  if (!options.parse(
          argc, argv,
          "moe-compile: take a Mixture-of-Experts layer through the levels of "
          "IR.\n\n"
          "  moe-compile config.json --emit=moe      what the layer computes\n"
          "  moe-compile config.json --emit=plan     when and where\n"
          "  moe-compile config.json --emit=tile     how, per kernel\n"
          "  moe-compile config.json --emit=llvm     LLVM IR of the kernels\n"
          "  moe-compile config.json --target=sm_90a --emit=ptx\n"
          "                                          PTX of the kernels\n"
          "  moe-compile config.json --target=sm_90a -o layer.moepkg\n"
          "                                          what moe-run and the "
          "runtime load\n"
          "  moe-compile config.json --target=sm_80,sm_90a -o layer.moepkg\n"
          "                                          the same for several "
          "kinds of GPU\n"
          "  moe-compile config.json --explain       what was chosen, at what "
          "cost\n"
          "\nThe input is a model's folder or its config.json, a spec "
          "(docs/layers.md), IR (.mlir) of\nthe level asked for or one above "
          "it, or - for JSON or IR from standard input.\n"))
    return 1;
  if (options.listModels) {
    printModels(llvm::outs());
    return 0;
  }
  if (options.makesPackage() &&
      (options.explain || options.emit.getNumOccurrences() > 0)) {
    options.complain("-o " + options.output +
                     " is a package; leave out --emit and --explain");
    return 1;
  }
  if (options.architectures.size() > 0 && !options.makesPackage()) {
    options.complain("--arch is for packages; give -o FILE.moepkg");
    return 1;
  }
  llvm::SmallVector<std::string> targets = options.getTargets();
  if (targets.size() > 1 &&
      (!options.makesPackage() || !options.architectures.empty())) {
    options.complain("--target: several targets are for packages without "
                     "--arch; give one, or -o FILE.moepkg");
    return 1;
  }
  if (llvm::SmallSet<std::string, 4>(targets.begin(), targets.end()).size() <
      targets.size()) {
    options.complain("--target: '" + options.target +
                     "' names a target twice; give each once");
    return 1;
  }
  if (options.emit == Emit::PTX && options.target == "cpu") {
    options.complain("--emit=ptx needs a GPU: give --target, as in "
                     "--target=sm_90a");
    return 1;
  }
  MLIRContext context(options.makeRegistry());
  SourceDiagnostics diagnostics(context, llvm::errs());
  FailureOr<Source> source = loadSource(
      context, options.input, options.getOverrides(), diagnostics.getTexts());
  if (failed(source))
    return 1;
  if (options.makesPackage())
    return writeLayer(*source, options) ? 0 : 1;
  FailureOr<std::string> text = produce(*source, options);
  if (failed(text))
    return 1;
  return succeeded(writeOutputFile(options.output, *text)) ? 0 : 1;
}
