//===- ToolOptions.h - options shared by commands ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_TOOLOPTIONS_H
#define MOEC_LIB_TOOLS_TOOLOPTIONS_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/OutputFile.h"
#include "moec/Compiler/SourceDiagnostics.h"
#include "moec/Support/Targets.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"

#include <functional>
#include <initializer_list>
#include <type_traits>

namespace moec {

/// Removes all options that LLVM's libraries have registered: their names would
/// clash with ours, and depend on how LLVM is linked.
struct ForeignOptionsRemoved {
  ForeignOptionsRemoved();
};

/// Parses one word of a fixed list; the error for another word shows the list.
template <typename T>
struct WordParser : llvm::cl::parser<T> {
  explicit WordParser(llvm::cl::Option &option) : llvm::cl::parser<T>(option) {}

  bool parse(llvm::cl::Option &option, llvm::StringRef /*argument*/,
             llvm::StringRef text, T &value) {
    std::string words;
    for (const auto &entry : this->Values) {
      if (entry.Name == text) {
        value = entry.V.getValue();
        return false;
      }
      if (!entry.Name.empty())
        words += (words.empty() ? "" : ", ") + entry.Name.str();
    }
    return option.error("'" + text + "' is none of " + words);
  }
};

template <typename T>
class NumberParser : public llvm::cl::basic_parser<T> {
public:
  explicit NumberParser(llvm::cl::Option &option)
      : llvm::cl::basic_parser<T>(option), plain(option) {}

  bool parse(llvm::cl::Option &option, llvm::StringRef /*argument*/,
             llvm::StringRef text, T &value) {
    if (!text.getAsInteger(10, value))
      return false;
    bool isDigits = !text.empty() && llvm::all_of(text, llvm::isDigit);
    return option.error("'" + text + "' is " +
                        (isDigits              ? "too large"
                         : std::is_signed_v<T> ? "not an integer"
                                               : "not an integer from 0 on"));
  }

  llvm::StringRef getValueName() const override { return plain.getValueName(); }
  /// LLVM prints values by its own parser of the type, which is final.
  operator const llvm::cl::parser<T> &() const { return plain; }

private:
  llvm::cl::parser<T> plain;
};

template <typename T>
using NumberOption =
    llvm::cl::opt<T, /*ExternalStorage=*/false, NumberParser<T>>;
template <typename T>
using WordOption = llvm::cl::opt<T, /*ExternalStorage=*/false, WordParser<T>>;
/// The first of these options that is given; null if none is.
const llvm::cl::Option *
findGiven(std::initializer_list<std::reference_wrapper<const llvm::cl::Option>>
              options);

/// Options for the code generation of GPU kernels, shared by all commands that
/// compile.
struct KernelOptions {
  explicit KernelOptions(llvm::cl::OptionCategory &category)
      : category(category) {}

  void apply(CompileOptions &options) const;
  /// Returns why these options cannot make kernels for `target`; empty if they
  /// can.
  std::string whyNot(llvm::StringRef target) const;

  llvm::cl::OptionCategory &category;
  llvm::cl::opt<std::string> devicePart{
      "device-part", llvm::cl::value_desc("h100-sxm|h200|..."),
      llvm::cl::desc("On a GPU: the model of GPU that configs are chosen for "
                     "(docs/design/cost-model.md; default: the present device; "
                     "without a device, an H200 for sm_90a)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> noDependentLaunches{
      "no-dependent-launches",
      llvm::cl::desc("On a GPU: do not let a launch start before the launch "
                     "ahead of it has ended"),
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> disable{
      "disable", llvm::cl::value_desc("rewrite,..."), llvm::cl::CommaSeparated,
      llvm::cl::desc("On a GPU: disable rewrites of launches "
                     "(docs/design/lowering-to-gpu.md), as in "
                     "--disable=join-products,split-large-groups"),
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> set{
      "set", llvm::cl::value_desc("rewrite.name[=value],..."),
      llvm::cl::CommaSeparated,
      llvm::cl::desc("On a GPU: set parameters of rewrites, as in "
                     "--set=split-sort.most=2048,permute-rows.always"),
      llvm::cl::cat(category)};
};

/// Options of moe-compile and moe-run. Only one object may exist per process,
/// because command line options register themselves.
struct ToolOptions : private ForeignOptionsRemoved {
  llvm::cl::OptionCategory category{"Options"};
  llvm::cl::opt<std::string> input{
      llvm::cl::Positional,
      llvm::cl::desc(
          "MODEL-FOLDER|CONFIG.json|MODEL.gguf|SPEC.json|FILE.mlir|-"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> target{
      "target", llvm::cl::value_desc(getTargetChoices()),
      llvm::cl::desc("Target to compile for (default: cpu)"),
      llvm::cl::init("cpu"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> cpu{
      "cpu", llvm::cl::value_desc("name"),
      llvm::cl::desc("Instruction set of target cpu: host (default), or a name "
                     "such as x86-64-v3 to cap it"),
      llvm::cl::init("host"), llvm::cl::cat(category)};
  NumberOption<int64_t> maxTokens{
      "max-tokens", llvm::cl::value_desc("N"),
      llvm::cl::desc("Largest number of tokens of a call (default: the spec's, "
                     "else 16384)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  NumberOption<int64_t> numExperts{
      "num-experts", llvm::cl::value_desc("E"),
      llvm::cl::desc("Reduce the layer to this many experts, keeping its "
                     "expert groups, to try a large model on a small machine"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<bool> batchInvariant{
      "batch-invariant",
      llvm::cl::desc("Make the bits of a row depend on this row and the "
                     "weights alone, not on the other rows of a call "
                     "(docs/use/layers.md)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> roundWeights{
      "round-weights",
      llvm::cl::desc("Round weights of a checkpoint that have more digits than "
                     "the layer's dtype, as f32 in a layer of bf16, when they "
                     "are loaded; otherwise they are refused"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> entry{
      "entry", llvm::cl::value_desc("gate|logits|ids"),
      llvm::cl::desc("Inputs of a call beside hidden states: none (gate), "
                     "router logits, or expert ids and weights"),
      llvm::cl::cat(category)};
  NumberOption<int64_t> layer{
      "layer", llvm::cl::value_desc("N"),
      llvm::cl::desc("Decoder layer of a model, counted from 0 as in the names "
                     "of its tensors (default: the first that has experts)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> part{
      "part", llvm::cl::value_desc("name"),
      llvm::cl::desc("Part of a decoder layer whose kinds of tokens have "
                     "routers and experts of their own, as in --part=vision "
                     "(default: that of text)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> parallel{
      "parallel", llvm::cl::value_desc("object"),
      llvm::cl::desc("Ranks of the layer (docs/use/parallel.md), which a "
                     "model's config.json does not describe, as in "
                     "--parallel='{\"dp\": 2, \"experts\": \"linear\"}'"),
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> ignoreField{
      "ignore-field", llvm::cl::value_desc("key"),
      llvm::cl::desc("Ignore a key of a model's config.json that is refused "
                     "although it does not concern the layer, as in "
                     "--ignore-field=text_config.route_scale; may be repeated"),
      llvm::cl::cat(category)};
  KernelOptions kernels{category};
  llvm::cl::opt<bool> printIRAfterAll{
      "print-ir-after-all",
      llvm::cl::desc("Print the IR after each pass to stderr"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> dumpDir{
      "dump-dir", llvm::cl::value_desc("folder"),
      llvm::cl::desc(
          "Write the IR of each level to a file in this folder: "
          "layer.moe.mlir, layer.plan.mlir, layer.tile.mlir, layer.ll"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> reproducer{
      "reproducer", llvm::cl::value_desc("file"),
      llvm::cl::desc("If a pass fails, write the IR before it and the passes; "
                     "moe-opt --run-reproducer FILE replays them"),
      llvm::cl::cat(category)};

  llvm::cl::list<std::string> config{
      "config", llvm::cl::value_desc("KERNEL[@MIN-MAX]:TEXT"),
      llvm::cl::desc(
          "Config of a kernel in place of the chosen one, as --explain prints "
          "it, or only the fields that differ: "
          "--config='experts_hidden@1-64:block_m=16 block_n=64'"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> tuned{
      "tuned", llvm::cl::value_desc("file.json"),
      llvm::cl::desc("File of measured configs, for kernels and ranges of "
                     "token counts; --config takes precedence"),
      llvm::cl::cat(category)};

  /// `tool` is the command's name in messages.
  explicit ToolOptions(llvm::StringRef tool) : tool(tool) {}
  virtual ~ToolOptions() = default;

  /// Whether the command needs an input; false if an option asks for something
  /// that needs none.
  virtual bool needsInput() const { return true; }
  virtual bool choosesTarget() const { return false; }

  /// The decoder layer that --layer names.
  std::optional<int64_t> getGivenLayer() const {
    return layer.getNumOccurrences() ? std::optional<int64_t>(layer)
                                     : std::nullopt;
  }
  /// The comma-separated list of --target.
  llvm::SmallVector<std::string> getTargets() const;

  /// Parses the command line; returns false, with a message, if it makes no
  /// sense.
  bool parse(int argc, char **argv, llvm::StringRef overview);

  /// Prints an error; returns false, so that the caller can return the result.
  bool complain(const llvm::Twine &message) const;
  /// Returns true for success; prints an error.
  bool accept(llvm::Error error) const;

  /// A check that refuses to overwrite the files that these options read.
  OutputCheck makeOutputCheck() const;
  /// Whether the outputs of these options can be written; prints the reason if
  /// not.
  bool canWriteDumps(const OutputCheck &check) const;

  /// The first given option that says what to compile or how; null if there is
  /// none.
  const llvm::cl::Option *findCompileOption() const;
  SpecOverrides getOverrides() const;
  CompileOptions getCompileOptions() const;
  static mlir::DialectRegistry makeRegistry();

private:
  /// True if no option is for another kind of target; prints which one is.
  bool fitTargets() const;

  llvm::StringRef tool;
  /// The configs of --tuned and --config.
  std::vector<std::string> configs;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_TOOLOPTIONS_H
