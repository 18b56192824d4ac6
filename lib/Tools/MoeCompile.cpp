//===- MoeCompile.cpp - the command moe-compile -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Progress.h"
#include "ToolOptions.h"
#include "moec/Compiler/OutputFile.h"
#include "moec/Package/BuildPackage.h"
#include "moec/Support/PooledContext.h"
#include "moec/Support/ReadBytes.h"
#include "moec/Tools/Explain.h"
#include "moec/Tools/PrintLayer.h"
#include "moec/Tools/ReportLayer.h"
#include "moec/Tools/Tools.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/FileSystem.h"

using namespace mlir;
using namespace moec;

namespace cl = llvm::cl;

namespace {
struct Options : ToolOptions {
  Options() : ToolOptions("moe-compile") {}

  WordOption<LayerForm> emit{
      "emit", cl::desc("What to print"),
      cl::values(clEnumValN(LayerForm::Spec, "spec",
                            "the layer in JSON, with every default resolved"),
                 clEnumValN(LayerForm::Moe, "moe", "the layer as one op"),
                 clEnumValN(LayerForm::Plan, "plan",
                            "launches over buffers, kernels on tensors"),
                 clEnumValN(LayerForm::Tile, "tile",
                            "kernels of coarse ops on memrefs, with configs"),
                 clEnumValN(LayerForm::LLVM, "llvm", "LLVM IR of the kernels"),
                 clEnumValN(LayerForm::PTX, "ptx",
                            "PTX of the kernels, on a GPU's target")),
      cl::init(LayerForm::Tile), cl::cat(category)};
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
  WordOption<ExplainMode> explain{
      "explain",
      cl::desc("Print what was chosen, for people, instead of IR"),
      cl::ValueOptional,
      cl::values(
          clEnumValN(ExplainMode::Summary, "summary",
                     "kernels and expected times by range of tokens (default)"),
          clEnumValN(ExplainMode::All, "all",
                     "each launch: its work, its time, what else was looked "
                     "at"),
          clEnumValN(ExplainMode::Summary, "", "")),
      cl::init(ExplainMode::Summary),
      cl::cat(category)};
  cl::opt<std::string> report{
      "report", cl::value_desc("file.html"),
      cl::desc("Write a page about the layer: drawn, with its times, plan, "
               "kernels, what was not chosen, and every level"),
      cl::cat(category)};
  cl::opt<std::string> measured{
      "measured", cl::value_desc("results.json[:layer]"),
      cl::desc("For --report: what moe-bench --json wrote, and which of its "
               "layers this one is"),
      cl::cat(category)};
  cl::opt<bool> dumpPipeline{
      "dump-pipeline",
      cl::desc("Print the passes from the input's level to the one that --emit "
               "asks for, as text for moe-opt --pass-pipeline, instead of IR"),
      cl::cat(category)};
  bool reports() const { return report.getNumOccurrences() > 0; }
  bool explains() const { return explain.getNumOccurrences() > 0; }

  /// Whether the options make sense together; prints the reason if not.
  bool makeSense() const;
};

bool Options::makeSense() const {
  bool prints = explains() || dumpPipeline || emit.getNumOccurrences() > 0 ||
                output.getNumOccurrences() > 0;
  if (reports() && prints)
    return complain("--report writes a page; leave out --emit, --explain, "
                    "--dump-pipeline and -o");
  if (!measured.empty() && !reports())
    return complain("--measured is for pages; give --report FILE.html");
  if (explains() && emit.getNumOccurrences() > 0)
    return complain("--explain prints for people what --emit prints as IR; "
                    "leave one of them out");
  if (dumpPipeline && (explains() || makesPackage() || emit == LayerForm::Spec))
    return complain("--dump-pipeline prints the passes to IR; leave out "
                    "--explain, --emit=spec and -o FILE.moepkg");
  if (makesPackage() && (explains() || emit.getNumOccurrences() > 0))
    return complain("-o " + output +
                    " is a package; leave out --emit and --explain");
  if (architectures.size() > 0 && !makesPackage())
    return complain("--arch is for packages; give -o FILE.moepkg");
  llvm::SmallVector<std::string> targets = getTargets();
  if (targets.size() > 1 && (!makesPackage() || !architectures.empty()))
    return complain("--target: several targets are for packages without "
                    "--arch; give one, or -o FILE.moepkg");
  if (llvm::SmallSet<std::string, 4>(targets.begin(), targets.end()).size() <
      targets.size())
    return complain("--target: '" + target +
                    "' names a target twice; give each once");
  if (emit == LayerForm::PTX && target == "cpu")
    return complain("--emit=ptx needs a GPU: give --target, as in "
                    "--target=sm_90a");
  OutputCheck written = makeOutputCheck();
  if (reports())
    return canWriteDumps(written) &&
           accept(written.check("--report", report, OutputCheck::Kind::Text));
  return canWriteDumps(written) &&
         accept(written.check("-o", output,
                              makesPackage() ? OutputCheck::Kind::Binary
                                             : OutputCheck::Kind::Text));
}
} // namespace

static FailureOr<std::string> printPasses(const Source &source,
                                          const Options &options) {
  Level level = options.emit == LayerForm::Moe    ? Level::Moe
                : options.emit == LayerForm::Plan ? Level::Plan
                                                  : Level::Tile;
  FailureOr<Level> from = detectLevel(*source.module);
  if (failed(from))
    return failure();
  if (*from > level) {
    options.complain("--emit=" + stringifyLevel(level) +
                     ": the input is at level " + stringifyLevel(*from) +
                     ", below it");
    return failure();
  }
  bool toKernels =
      options.emit == LayerForm::LLVM || options.emit == LayerForm::PTX;
  return printPipeline(*from, level, toKernels, options.getCompileOptions()) +
         "\n";
}

static FailureOr<std::string> produce(const Source &source,
                                      const Options &options) {
  if (options.dumpPipeline)
    return printPasses(source, options);
  LayerForm form = !options.explains() ? options.emit.getValue()
                   : options.explain == ExplainMode::All
                       ? LayerForm::FullExplanation
                       : LayerForm::Explanation;
  if (form == LayerForm::Spec && !source.spec) {
    options.complain("--emit=spec is of a description in JSON; IR has no spec");
    return failure();
  }
  return printLayer(source, form, options.getCompileOptions());
}

/// Writes a package with a program for each target.
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
    // Compilation leaves a module at level tile, so each target gets a clone.
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
  if (!options.accept(makeFoldersOf(options.output)))
    return false;
  moert::Status status = moert::writePackage(options.output, package);
  return status || options.complain(status.message());
}

static bool writeReport(const Source &source, const Options &options) {
  BenchResults results;
  if (!options.measured.empty()) {
    StringRef path = options.measured.getValue();
    // The layer's name follows the last colon, unless that colon is part of the
    // path.
    auto [file, layer] = path.rsplit(':');
    if (!llvm::sys::fs::exists(path) && !layer.empty()) {
      path = file;
      results.layer = layer.str();
    }
    llvm::Expected<std::string> text = readBytes(path, kMaxRecordBytes);
    if (!text)
      return options.complain("--measured: " + path + ": " +
                              toString(text.takeError()));
    results.name = path.str();
    results.json = std::move(*text);
  }
  std::string complaints;
  llvm::raw_string_ostream os(complaints);
  FailureOr<std::string> page =
      reportLayer(source, options.getCompileOptions(), results, os);
  if (!complaints.empty())
    return options.complain("--measured: " + StringRef(complaints).rtrim());
  return succeeded(page) && succeeded(writeOutputFile(options.report, *page));
}

int moec::moeCompileMain(int argc, char **argv) {
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
          "  moe-compile config.json --explain=all   the same with what was "
          "not chosen, and why\n"
          "  moe-compile config.json --report=layer.html\n"
          "                                          all of it, as a page\n"
          "\nThe input is a model's folder or its config.json, a spec "
          "(docs/use/layers.md), IR (.mlir) of\nthe level asked for or one "
          "above "
          "it, or - for JSON or IR from standard input.\n"))
    return 1;
  if (options.listModels) {
    printModels(llvm::outs());
    return 0;
  }
  if (!options.makeSense())
    return 1;
  Progress progress("moe-compile", "the layer is compiled");
  PooledContext context(options.makeRegistry());
  SourceDiagnostics diagnostics(context, llvm::errs());
  SpecOverrides overrides = options.getOverrides();
  overrides.toCompile = options.makesPackage() || options.explains() ||
                        options.reports() || !isDescription(options.emit);
  FailureOr<Source> source =
      loadSource(context, options.input, overrides, diagnostics.getTexts());
  if (failed(source))
    return 1;
  if (options.makesPackage())
    return writeLayer(*source, options) ? 0 : 1;
  if (options.reports())
    return writeReport(*source, options) ? 0 : 1;
  FailureOr<std::string> text = produce(*source, options);
  if (failed(text))
    return 1;
  return succeeded(writeOutputFile(options.output, *text)) ? 0 : 1;
}
