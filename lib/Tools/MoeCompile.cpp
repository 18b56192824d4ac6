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
#include "moec/Tools/Expect.h"
#include "moec/Tools/PrintLayer.h"
#include "moec/Tools/ReportLayer.h"
#include "moec/Tools/Tools.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace moec;

namespace cl = llvm::cl;

namespace {
/// The text that --explain prints.
enum class Explained { Summary, All, Json };

struct Options : ToolOptions {
  Options() : ToolOptions("moe-compile") {}

  WordOption<LayerForm> emit{
      "emit", cl::desc("Level of IR to print"),
      cl::values(clEnumValN(LayerForm::Spec, "spec",
                            "the layer in JSON, with all defaults filled in"),
                 clEnumValN(LayerForm::Moe, "moe", "the layer as one op"),
                 clEnumValN(LayerForm::Plan, "plan",
                            "launches over buffers, kernels on tensors"),
                 clEnumValN(LayerForm::Tile, "tile",
                            "kernels of coarse ops on memrefs, with configs"),
                 clEnumValN(LayerForm::LLVM, "llvm", "LLVM IR of the kernels"),
                 clEnumValN(LayerForm::PTX, "ptx",
                            "PTX of the kernels, for a GPU target")),
      cl::init(LayerForm::Tile), cl::cat(category)};
  cl::opt<std::string> output{"o", cl::desc("Output file (default: stdout)"),
                              cl::value_desc("file"), cl::init("-"),
                              cl::cat(category)};
  bool needsInput() const override { return !listModels; }
  bool makesPackage() const {
    return llvm::StringRef(output).ends_with(".moepkg");
  }
  cl::list<std::string> architectures{
      "arch", cl::value_desc("sm_90,..."), cl::CommaSeparated,
      cl::desc("For a package: architectures that ptxas assembles the kernels "
               "for (default: the target, if ptxas is found)"),
      cl::cat(category)};
  cl::opt<bool> listModels{
      "list-models",
      cl::desc("Print the supported model types and the keys of config.json "
               "that each reads, as JSON, and stop"),
      cl::cat(category)};
  WordOption<Explained> explain{
      "explain",
      cl::desc("Print the compiler's choices as a readable text instead of IR"),
      cl::ValueOptional,
      cl::values(
          clEnumValN(
              Explained::Summary, "summary",
              "kernels and expected times by range of token counts (default)"),
          clEnumValN(Explained::All, "all",
                     "each launch: its work, its time, rejected alternatives"),
          clEnumValN(Explained::Json, "json",
                     "expected times, work, workspace and weights as JSON"),
          clEnumValN(Explained::Summary, "", "")),
      cl::init(Explained::Summary),
      cl::cat(category)};
  cl::list<int64_t> tokens{
      "tokens", cl::CommaSeparated, cl::value_desc("T,..."),
      cl::desc("For --explain=json: token counts, of all ranks along dp "
               "(default: 1,8,64,1024,4096)"),
      cl::cat(category)};
  cl::opt<std::string> report{
      "report", cl::value_desc("file.html"),
      cl::desc("Write an HTML page about the layer: a drawing, times, plan, "
               "kernels, rejected alternatives, and every level of IR"),
      cl::cat(category)};
  cl::opt<std::string> measured{
      "measured", cl::value_desc("results.json[:layer]"),
      cl::desc("For --report: a record of moe-bench --json, and the name of "
               "this layer in it"),
      cl::cat(category)};
  cl::opt<bool> dumpPipeline{
      "dump-pipeline",
      cl::desc("Print the passes from the input's level to that of --emit, as "
               "text for moe-opt --pass-pipeline, instead of IR"),
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
    return complain("--measured needs --report; add --report=FILE.html");
  if (!tokens.empty() && !(explains() && explain == Explained::Json))
    return complain("--tokens needs --explain=json, whose times are for these "
                    "counts");
  if (explains() && emit.getNumOccurrences() > 0)
    return complain(
        "--explain and --emit exclude each other; leave one of them out");
  if (dumpPipeline && (explains() || makesPackage() || emit == LayerForm::Spec))
    return complain("--dump-pipeline prints passes that produce IR; leave out "
                    "--explain, --emit=spec and -o FILE.moepkg");
  if (makesPackage() && (explains() || emit.getNumOccurrences() > 0))
    return complain("-o " + output +
                    " writes a package; leave out --emit and --explain");
  if (architectures.size() > 0 && !makesPackage())
    return complain("--arch needs a package as output; give -o FILE.moepkg");
  llvm::SmallVector<std::string> targets = getTargets();
  if (targets.size() > 1 && (!makesPackage() || !architectures.empty()))
    return complain("--target: several targets need a package as output, "
                    "without --arch; give one target, or -o FILE.moepkg");
  if (llvm::SmallSet<std::string, 4>(targets.begin(), targets.end()).size() <
      targets.size())
    return complain("--target: '" + target +
                    "' names a target twice; give each target once");
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
  if (options.explains() && options.explain == Explained::Json)
    return expectLayer(source, options.getCompileOptions(), options.tokens);
  LayerForm form = !options.explains() ? options.emit.getValue()
                   : options.explain == Explained::All
                       ? LayerForm::FullExplanation
                       : LayerForm::Explanation;
  if (form == LayerForm::Spec && !source.spec) {
    options.complain("--emit=spec needs a description in JSON; IR has no spec");
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

/// The command line, as a shell takes it.
static std::string getCommand(int argc, char **argv) {
  std::string command = llvm::sys::path::filename(argv[0]).str();
  llvm::raw_string_ostream os(command);
  for (int i = 1; i < argc; ++i)
    llvm::sys::printArg(os << " ", argv[i], /*Quote=*/false);
  return command;
}

static bool writeReport(const Source &source, const Options &options,
                        StringRef command) {
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
      reportLayer(source, options.getCompileOptions(), results, command, os);
  if (!complaints.empty())
    return options.complain("--measured: " + StringRef(complaints).rtrim());
  return succeeded(page) && succeeded(writeOutputFile(options.report, *page));
}

int moec::moeCompileMain(int argc, char **argv) {
  Options options;
  if (!options.parse(
          argc, argv,
          "moe-compile: compile a Mixture-of-Experts layer, or print its IR "
          "at any level.\n\n"
          "  moe-compile config.json --emit=moe      the layer as one op\n"
          "  moe-compile config.json --emit=plan     launches and memory\n"
          "  moe-compile config.json --emit=tile     kernels and configs\n"
          "  moe-compile config.json --emit=llvm     LLVM IR of the kernels\n"
          "  moe-compile config.json --target=sm_90a --emit=ptx\n"
          "                                          PTX of the kernels\n"
          "  moe-compile config.json --target=sm_90a -o layer.moepkg\n"
          "                                          a package for moe-run and "
          "the runtime\n"
          "  moe-compile config.json --target=sm_80,sm_90a -o layer.moepkg\n"
          "                                          a package for several "
          "kinds of GPU\n"
          "  moe-compile config.json --explain       choices and expected "
          "times\n"
          "  moe-compile config.json --explain=all   also the rejected "
          "alternatives, with reasons\n"
          "  moe-compile config.json --target=sm_90a --explain=json\n"
          "                                          expected times as data\n"
          "  moe-compile config.json --report=layer.html\n"
          "                                          everything, as an HTML "
          "page\n"
          "\nThe input is a model's folder or its config.json, a GGUF file, a "
          "spec (docs/use/layers.md),\nIR (.mlir) at or above the requested "
          "level, or - for JSON or IR from standard input.\n"))
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
    return writeReport(*source, options, getCommand(argc, argv)) ? 0 : 1;
  FailureOr<std::string> text = produce(*source, options);
  if (failed(text))
    return 1;
  return succeeded(writeOutputFile(options.output, *text)) ? 0 : 1;
}
