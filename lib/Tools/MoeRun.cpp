//===- MoeRun.cpp - the command moe-run -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Run/Check.h"
#include "Run/HostTensor.h"
#include "Run/RunLevel.h"
#include "ToolOptions.h"
#include "moec/Tools/Tools.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"

#include <numeric>

using namespace mlir;
using namespace moec;

namespace cl = llvm::cl;

namespace {

struct Options : ToolOptions {
  cl::opt<int64_t> tokens{"tokens", cl::desc("Number of tokens"), cl::init(1),
                          cl::cat(category)};
  cl::opt<uint64_t> seed{"seed",
                         cl::desc("Seed of generated weights and activations"),
                         cl::init(0), cl::cat(category)};
  cl::opt<std::string> inputs{
      "inputs", cl::value_desc("file.safetensors"),
      cl::desc("Weights and activations, by the names that --signature lists"),
      cl::cat(category)};
  cl::opt<std::string> outputs{
      "outputs", cl::value_desc("file.safetensors"),
      cl::desc("Where to write the output and, where the layer routes, "
               "topk_ids, topk_weights, expert_offsets and expert_counts"),
      cl::cat(category)};
  cl::opt<bool> signature{"signature",
                          cl::desc("List the tensors of the layer and stop"),
                          cl::cat(category)};
  cl::opt<bool> check{
      "check",
      cl::desc("Compare with the float64 reference in python/ (needs "
               "MOEC_PYTHON or a python3 with its packages)"),
      cl::cat(category)};
  cl::opt<std::string> spec{
      "spec", cl::value_desc("file.json"),
      cl::desc("What the reference computes, for --check of IR"),
      cl::cat(category)};
  cl::opt<int64_t> repeat{"repeat", cl::desc("Timed runs"), cl::init(0),
                          cl::cat(category)};
  cl::opt<int64_t> validTokens{
      "valid-tokens",
      cl::desc("Add the operand num_valid_tokens, with this value"),
      cl::init(0), cl::cat(category)};
  cl::opt<int> threads{"threads", cl::desc("Threads (default: all cores)"),
                       cl::init(0), cl::cat(category)};
  cl::opt<ExecutedLevel> level{
      "level", cl::desc("What to execute"),
      cl::values(
          clEnumValN(ExecutedLevel::Moe, "moe", "interpret the pipeline ops"),
          clEnumValN(ExecutedLevel::Plan, "plan",
                     "run the plan, interpret its kernels"),
          clEnumValN(ExecutedLevel::Tile, "tile",
                     "run the plan, interpret the tile kernels"),
          clEnumValN(ExecutedLevel::LLVM, "llvm",
                     "run compiled kernels (default)")),
      cl::init(ExecutedLevel::LLVM), cl::cat(category)};
  cl::opt<bool> bisect{
      "bisect",
      cl::desc("Check every level and name the passes before the first that "
               "is wrong"),
      cl::cat(category)};

  SpecOverrides getRunOverrides() const {
    SpecOverrides overrides = getOverrides();
    if (validTokens.getNumOccurrences())
      overrides.numValidTokens = true;
    return overrides;
  }
};

bool complain(const llvm::Twine &message) {
  llvm::errs() << "moe-run: error: " << message << "\n";
  return false;
}

/// A loaded layer with its tensors filled.
struct Session {
  Source source;
  moert::Plan plan;
  std::vector<HostTensor> tensors;
};

std::string printShape(const moert::TensorDecl &decl) {
  std::string text;
  for (const moert::Expr &size : decl.shape)
    text += (text.empty() ? "" : " x ") + size.str();
  return text;
}

void printSignature(const Session &session) {
  std::vector<TensorInfo> infos;
  if (session.source.spec)
    infos = getTensorSignature(*session.source.spec);
  for (const moert::TensorDecl &decl : session.plan.tensors) {
    if (decl.role == moert::TensorRole::Workspace ||
        decl.role == moert::TensorRole::Prepared)
      continue;
    llvm::outs() << llvm::formatv(
        "{0,-7} {1,-26} {2,-5} {3}\n", moert::tensorRoleName(decl.role),
        decl.name, moert::dtypeName(decl.dtype), printShape(decl));
    for (const TensorInfo &info : infos)
      for (const CheckpointForm &form : info.checkpointForms)
        if (info.name == decl.name)
          for (const CheckpointPart &part : form)
            llvm::outs() << "          or *." << part.name
                         << (part.transposed ? "  (transposed)" : "") << "\n";
  }
}

bool checkOptions(const Options &options) {
  if (options.tokens < 0)
    return complain("--tokens must not be negative");
  if (options.repeat < 0)
    return complain("--repeat must not be negative");
  if (options.threads < 0)
    return complain("--threads must not be negative");
  if (options.validTokens.getNumOccurrences() &&
      (options.validTokens < 0 || options.validTokens > options.tokens))
    return complain("--valid-tokens must lie between 0 and --tokens");
  bool isJson = llvm::StringRef(options.input).ends_with(".json");
  if ((options.check || options.bisect) && !isJson && options.spec.empty())
    return complain("--check of IR needs --spec=FILE.json, which says what the "
                    "layer is meant to compute");
  return true;
}

bool fillTensors(Session &session, const Options &options) {
  int64_t numExperts = 0;
  for (const HostTensor &tensor : session.tensors)
    if (tensor.name == "experts.w13")
      numExperts = tensor.shape[0];
  std::vector<int64_t> expertIds(numExperts);
  std::iota(expertIds.begin(), expertIds.end(), 0);
  std::vector<TensorInfo> signature;
  if (session.source.spec) {
    const LayerSpec &spec = *session.source.spec;
    signature = getTensorSignature(spec);
    numExperts = spec.getNumRouted();
    if (spec.placement && spec.placement->localExperts)
      expertIds = *spec.placement->localExperts;
  }
  if (options.inputs.empty()) {
    GenerateOptions generate;
    generate.seed = options.seed;
    generate.numExperts = numExperts;
    if (options.validTokens.getNumOccurrences())
      generate.numValidTokens = options.validTokens;
    generateTensors(session.tensors, generate);
    return true;
  }
  moert::Result<moert::SafetensorsFile> file =
      moert::SafetensorsFile::open(options.inputs);
  if (!file)
    return complain(file.status().message());
  moert::Status status =
      loadTensors(session.tensors, *file, options.inputs, signature, expertIds);
  return status || complain(status.message());
}

void printTimes(const RunResult &result, const Options &options) {
  llvm::outs() << llvm::formatv(
      "{0} tokens: compiled in {1:f0} ms, workspace {2:f1} MiB",
      options.tokens.getValue(), result.compileSeconds * 1e3,
      double(result.workspaceBytes) / (1 << 20));
  if (!result.seconds.empty())
    llvm::outs() << llvm::formatv(
        ", {0} runs: best {1:f3} ms, median {2:f3} ms", result.seconds.size(),
        result.seconds.front() * 1e3,
        result.seconds[result.seconds.size() / 2] * 1e3);
  llvm::outs() << "\n";
}

/// The passes whose result a level is.
llvm::StringRef getPassesBefore(ExecutedLevel level) {
  switch (level) {
  case ExecutedLevel::Moe:
    return "the importer or moe-decompose";
  case ExecutedLevel::Plan:
    return "convert-moe-to-plan or plan-assign-slots";
  case ExecutedLevel::Tile:
    return "convert-plan-to-tile, tile-split-phases or tile-assign-config";
  case ExecutedLevel::LLVM:
    return "convert-tile-to-vector, cpu-kernel-entry or what follows";
  }
  llvm_unreachable("every level is listed");
}

bool bisectLevels(Session &session, const RunOptions &run,
                  ReferenceCheck &check) {
  for (ExecutedLevel level : {ExecutedLevel::Moe, ExecutedLevel::Plan,
                              ExecutedLevel::Tile, ExecutedLevel::LLVM}) {
    llvm::outs() << llvm::formatv("level {0,-5} ", stringify(level));
    llvm::outs().flush();
    FailureOr<RunResult> result =
        runLevel(*session.source.module, level, session.tensors, run);
    if (succeeded(result) && check.compare(*result))
      continue;
    return complain("first wrong at level '" + stringify(level) +
                    "': look at " + getPassesBefore(level));
  }
  return true;
}

bool runSession(Session &session, const Options &options) {
  RunOptions run;
  run.tokens = options.tokens;
  run.repeat = options.repeat;
  run.threads = options.threads;
  run.careful = options.check || options.bisect || !options.outputs.empty();
  run.compile = options.getCompileOptions();

  ReferenceCheck check(options.spec.empty() ? options.input : options.spec,
                       options.getRunOverrides());
  if (options.check || options.bisect)
    if (moert::Status status = check.setInputs(session.tensors); !status)
      return complain(status.message());
  if (options.bisect)
    return bisectLevels(session, run, check);

  FailureOr<RunResult> result =
      runLevel(*session.source.module, options.level, session.tensors, run);
  if (failed(result))
    return false;
  printTimes(*result, options);
  if (!options.outputs.empty())
    if (moert::Status status = writeResult(options.outputs, *result); !status)
      return complain(status.message());
  return !options.check || check.compare(*result);
}

} // namespace

int moec::moeRunMain(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  Options options;
  if (!options.parse(
          argc, argv,
          "moe-run: compile a Mixture-of-Experts layer, run it on this "
          "machine, check it.\n\n"
          "  moe-run config.json --signature\n"
          "  moe-run config.json --tokens=16 --num-experts=16 --check\n"
          "  moe-run layer.mlir --tokens=128 --repeat=10\n"
          "\nWithout --inputs, weights and activations are generated from the "
          "seed. The exit code\nis 0 only when all is well.\n") ||
      !checkOptions(options))
    return 1;
  MLIRContext context(options.makeRegistry());
  ConsoleDiagnostics diagnostics(context);
  FailureOr<Source> source =
      loadSource(context, options.input, options.getRunOverrides());
  if (failed(source))
    return 1;
  FailureOr<moert::Plan> plan =
      makePlan(*source->module, options.getCompileOptions());
  if (failed(plan))
    return 1;
  Session session{std::move(*source), std::move(*plan), {}};
  if (options.signature) {
    printSignature(session);
    return 0;
  }
  if (options.tokens > session.plan.maxTokens) {
    complain("--tokens=" + llvm::Twine(options.tokens) +
             " is more than the layer's max_tokens, " +
             llvm::Twine(session.plan.maxTokens) +
             "; raise it with --max-tokens");
    return 1;
  }
  moert::Result<std::vector<HostTensor>> tensors =
      allocateTensors(session.plan, options.tokens);
  if (!tensors) {
    complain(tensors.status().message());
    return 1;
  }
  session.tensors = std::move(*tensors);
  return fillTensors(session, options) && runSession(session, options) ? 0 : 1;
}
