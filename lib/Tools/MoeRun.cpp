//===- MoeRun.cpp - the command moe-run -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Progress.h"
#include "Run/Check.h"
#include "Run/HostTensor.h"
#include "Run/LoadTensors.h"
#include "Run/OpenDevice.h"
#include "Run/Options.h"
#include "Run/PartTimes.h"
#include "Run/RankProcesses.h"
#include "Run/RankRun.h"
#include "Run/Session.h"
#include "Run/Timing.h"
#include "Run/TraceFile.h"
#include "moec/Import/BuildLayer.h"
#include "moec/Jit/Jit.h"
#include "moec/Package/SpecText.h"
#include "moec/Tools/Tools.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

namespace {

/// Checks the plan, which may come from handwritten IR.
bool checkPlan(const Session &session, const MoeRunOptions &options) {
  const moert::Plan &plan = session.plan;
  int64_t numOutputs =
      llvm::count_if(plan.tensors, [](const moert::TensorDecl &decl) {
        return decl.role == moert::TensorRole::Output;
      });
  if (numOutputs < 1)
    return options.complain(
        "the plan has no output tensor; every layer has one");
  if (options.tokens > plan.maxTokens)
    return options.complain(
        "--tokens=" + llvm::Twine(options.tokens) +
        " is more than the layer's max_tokens, " + llvm::Twine(plan.maxTokens) +
        (session.isIR()        ? "; raise moe.max_tokens or max_tokens in it"
         : options.isPackage() ? "; give moe-compile a larger --max-tokens"
                               : "; raise it with --max-tokens"));
  if (options.hasValidTokens() && plan.findTensor("num_valid_tokens") < 0)
    return options.complain("--valid-tokens: the layer has no operand "
                            "num_valid_tokens");
  return true;
}

/// The number of experts that generated ids may name.
int64_t getNumRouted(const Session &session) {
  if (session.source.spec)
    return session.source.spec->getNumRouted();
  int64_t index = session.plan.findTensor("experts.w13");
  if (index < 0 || session.plan.tensors[index].shape.empty())
    return 1;
  // The shape of a weight does not depend on the token count.
  moert::Result<int64_t> count =
      session.plan.tensors[index].shape[0].evaluate(/*tokens=*/0);
  return count ? std::max<int64_t>(*count, 1) : 1;
}

moert::Status loadInputs(Session &session, const std::string &path,
                         const MoeRunOptions &options, Progress &progress) {
  moert::Result<moert::Checkpoint> checkpoint = moert::Checkpoint::open(path);
  if (!checkpoint)
    return checkpoint.status();
  LayerRequest request = session.source.spec ? makeRequest(*session.source.spec)
                                             : makeRequest(session.tensors);
  request.inputsAreRequired = options.hiddenStates.empty();
  size_t done = 0, all = 0;
  for (const HostTensor &tensor : session.tensors)
    if (tensor.role == moert::TensorRole::Weight)
      all += tensor.getNumBytes();
  return loadTensors(session.tensors, *checkpoint, request, [&](size_t bytes) {
    progress.step(std::min(done += bytes, all), all);
  });
}

moert::Status loadHiddenStates(Session &session, const std::string &path) {
  moert::Result<moert::Checkpoint> file = moert::Checkpoint::open(path);
  if (!file)
    return file.status();
  return loadCall(session.tensors, *file);
}

bool fillTensors(Session &session, const MoeRunOptions &options) {
  if (options.hasValidTokens())
    for (HostTensor &tensor : session.tensors)
      if (tensor.name == "num_valid_tokens" &&
          tensor.dtype == moert::DType::I32 && tensor.getNumElements() == 1) {
        *reinterpret_cast<int32_t *>(tensor.data()) =
            int32_t(options.validTokens);
        tensor.isGiven = true;
      }
  moert::Status status;
  // A model's folder has no inputs, only weights.
  std::string checkpoint = options.needsWeights() ? options.getCheckpoint()
                                                  : options.inputs.getValue();
  if (!options.hiddenStates.empty())
    status = loadHiddenStates(session, options.hiddenStates);
  if (status && !checkpoint.empty()) {
    Progress progress("moe-run", "weights and activations are read");
    status = loadInputs(session, checkpoint, options, progress);
  }
  // Generates the rest: all tensors, or the inputs that a checkpoint lacks.
  if (status) {
    Progress progress("moe-run", "weights and activations are generated");
    GenerateOptions generate;
    generate.seed = options.seed;
    generate.numExperts = getNumRouted(session);
    status = generateTensors(session.tensors, generate);
  }
  return status || options.complain(status.message());
}

/// The passes that produce IR of a level.
llvm::StringRef getPassesBefore(ExecutedLevel level) {
  switch (level) {
  case ExecutedLevel::Moe:
    return "the importer or moe-decompose";
  case ExecutedLevel::Plan:
    return "convert-moe-to-plan or plan-assign-slots";
  case ExecutedLevel::Tile:
    return "convert-plan-to-tile, tile-split-phases or tile-assign-config";
  case ExecutedLevel::LLVM:
    return "convert-tile-to-vector, cpu-kernel-entry or a later pass";
  }
  llvm_unreachable("every level is listed");
}

/// The first level at which IR of `level` is executed.
ExecutedLevel getFirstLevel(Level level) {
  switch (level) {
  case Level::Moe:
    return ExecutedLevel::Moe;
  case Level::Plan:
    return ExecutedLevel::Plan;
  case Level::Tile:
    return ExecutedLevel::Tile;
  }
  llvm_unreachable("every level is listed");
}

bool bisectLevels(Session &session, const MoeRunOptions &options,
                  const RunOptions &run, ReferenceCheck &check) {
  ExecutedLevel first = getFirstLevel(session.level);
  for (ExecutedLevel level : {ExecutedLevel::Moe, ExecutedLevel::Plan,
                              ExecutedLevel::Tile, ExecutedLevel::LLVM}) {
    if (level < first)
      continue;
    llvm::outs() << llvm::formatv("level {0,-5} ", stringify(level));
    llvm::outs().flush();
    FailureOr<RunResult> result =
        runLevel(*session.source.module, level, session.tensors, run);
    if (succeeded(result) && check.compare(*result))
      continue;
    std::string suspects = getPassesBefore(level).str();
    if (session.isIR() && level == first)
      suspects = level == ExecutedLevel::Moe
                     ? "the given IR, or moe-decompose"
                     : "the given IR, which is at this level";
    return options.complain(llvm::Twine(succeeded(result)
                                            ? "first wrong at level '"
                                            : "does not run at level '") +
                            stringify(level) + "': look at " + suspects);
  }
  return true;
}

/// The spec for the reference: the layer's own, or that of --spec.
FailureOr<std::string> getSpecText(const Session &session,
                                   const MoeRunOptions &options) {
  if (options.spec.empty()) {
    if (options.isPackage())
      return session.package->spec;
    return printLayerSpec(*session.source.spec);
  }
  Diagnostics diagnostics(llvm::errs());
  SpecOverrides overrides = options.getSpecOverrides();
  // --layer is that of the input beside it.
  overrides.readsWeights = true;
  FailureOr<LayerSpec> spec =
      importJsonFile(options.spec, overrides, diagnostics);
  if (failed(spec))
    return failure();
  return printLayerSpec(*spec);
}

bool prepareCheck(const Session &session, const MoeRunOptions &options,
                  ReferenceCheck &check) {
  FailureOr<std::string> spec = getSpecText(session, options);
  if (failed(spec))
    return false;
  moert::Status status = check.findReference();
  if (status)
    status = check.setSpec(*spec);
  return status || options.complain(status.message());
}

/// The layer's identity for prepared files; empty for a package without one.
std::string describeLayer(Session &session) {
  if (session.package && !session.source.spec)
    return "";
  return moec::describeLayer(session.source.spec, session.source.module
                                                      ? *session.source.module
                                                      : ModuleOp());
}

bool runSession(Session &session, const MoeRunOptions &options) {
  RunOptions run;
  run.tokens = options.tokens;
  run.repeat = options.repeat;
  run.comparedRuns = options.compare;
  run.timesAt.assign(options.timesAt.begin(), options.timesAt.end());
  run.trace = !options.trace.empty();
  run.prepared = options.prepared;
  run.writePrepared = options.writePrepared;
  run.description = describeLayer(session);
  run.decoderLayer = options.getGivenLayer();
  run.device = session.devices.front().get();
  run.others = llvm::ArrayRef(session.devices).drop_front();
  run.graph = options.graph;
  run.careful = options.check || options.bisect || !options.outputs.empty();
  // The simulator detects reads of memory that was never written.
  run.poison = run.careful && !options.isSimulated();
  run.compile = options.getCompileOptions(*run.device);

  ReferenceCheck check;
  bool compares = options.check || options.bisect;
  if (compares && !prepareCheck(session, options, check))
    return false;
  if (!fillTensors(session, options))
    return false;
  if (compares)
    if (moert::Status status = check.setInputs(getPointers(session.tensors));
        !status)
      return options.complain(status.message());
  if (options.bisect)
    return bisectLevels(session, options, run, check);

  FailureOr<RunResult> result =
      session.package
          ? runPackage(*session.package, session.choice, session.tensors, run)
          : runLevel(*session.source.module, options.level, session.tensors,
                     run);
  if (failed(result))
    return false;
  printTimes(session, *result, options);
  if (run.trace && failed(writeTrace(options.trace, result->traces)))
    return false;
  if (!options.outputs.empty()) {
    if (!options.accept(makeFoldersOf(options.outputs)))
      return false;
    if (moert::Status status = writeResult(options.outputs, *result); !status)
      return options.complain(status.message());
  }
  return !options.check || check.compare(*result);
}

double getSlowestMedian(llvm::ArrayRef<RunResult> results) {
  double slowest = 0;
  for (const RunResult &result : results)
    slowest = std::max(slowest, result.seconds[result.seconds.size() / 2]);
  return slowest;
}

/// Runs a layer of several ranks, and checks the result of each group of ranks.
bool runRanks(Session &session, const MoeRunOptions &options) {
  if (!session.source.spec)
    return options.complain("a layer of several ranks runs only from a JSON "
                            "description, whose weights are sliced per rank");
  for (llvm::StringRef file : {llvm::StringRef(options.prepared),
                               llvm::StringRef(options.writePrepared)})
    if (!file.empty() && !file.contains("{rank}"))
      return options.complain(
          "'" + file +
          "': each rank has its own file of prepared weights; give a name with "
          "{rank}, as in layer-{rank}.safetensors");
  OwningOpRef<ModuleOp> module = std::move(session.source.module);
  if (!module)
    module = buildLayer(*session.context, *session.source.spec);
  if (!module)
    return false;
  RankRunOptions ranks;
  ranks.run.tokens = options.tokens;
  ranks.run.repeat = options.repeat;
  ranks.run.comparedRuns = options.compare;
  if (session.processes)
    if (std::optional<int64_t> rank = session.processes->getRank();
        rank && options.drills(*rank, "skip"))
      ranks.run.skippedRun = options.compare / 2;
  ranks.run.timesAt.assign(options.timesAt.begin(), options.timesAt.end());
  ranks.run.trace = !options.trace.empty();
  ranks.run.prepared = options.prepared;
  ranks.run.writePrepared = options.writePrepared;
  ranks.run.description = printLayerSpec(*session.source.spec);
  ranks.run.decoderLayer = options.getGivenLayer();
  ranks.numInputs = options.compare > 0 ? 4 : 1;
  ranks.checks = options.check || options.bisect;
  ranks.run.careful = ranks.checks;
  ranks.run.poison = ranks.run.careful && !options.isSimulated();
  ranks.run.compile = options.getCompileOptions(*session.devices.front());
  ranks.seed = options.seed;
  ranks.inputs = options.getCheckpoint();
  ranks.hiddenStates = options.hiddenStates;
  ranks.validTokens.assign(options.rankTokens.begin(),
                           options.rankTokens.end());
  if (options.hasValidTokens())
    ranks.validTokens.assign(session.plan.mesh.tokenRanks(),
                             options.validTokens);
  ranks.limitSeconds = double(options.rankLimit);
  ranks.device = options.getDevice().str();
  ranks.exchange = options.exchange;
  if (options.copyRowsFrom > 0)
    ranks.leastCopiedBytes = options.copyRowsFrom;
  ranks.allToAllFrom = options.allToAllFrom;
  ranks.allToAllCapacity = options.allToAllCapacity;
  ranks.run.microBatchesFrom = options.microBatchesFrom;
  ranks.threads = options.threads;
  ranks.processes = session.processes.get();
  ranks.run.graph = options.graph;
  if (session.package) {
    ranks.program = &session.package->programs[session.choice.program];
    ranks.image = &ranks.program->images[session.choice.image];
  }
  moert::Result<std::unique_ptr<RankRun>> run =
      RankRun::create(*session.source.spec, *module, ranks);
  if (!run)
    return options.complain(run.status().message());
  SmallVector<ExecutedLevel> levels{options.level};
  if (options.bisect)
    levels = {ExecutedLevel::Plan, ExecutedLevel::Tile, ExecutedLevel::LLVM};
  for (ExecutedLevel level : levels) {
    if (options.bisect)
      llvm::outs() << llvm::formatv("level {0,-5} ", stringify(level));
    FailureOr<std::vector<RunResult>> results = (*run)->run(level);
    if (failed(results))
      return false;
    // The parent process has this rank's results.
    if (session.isRankProcess())
      return true;
    llvm::outs() << llvm::formatv("{0} ranks ({1}), {2} tokens each",
                                  session.plan.mesh.numRanks(),
                                  session.plan.mesh.str(), options.tokens);
    if (!results->front().seconds.empty())
      llvm::outs() << llvm::formatv(
          ", {0} timed: median of the slowest rank {1:f3} ms", options.repeat,
          getSlowestMedian(*results) * 1e3);
    if (options.compare > 0)
      llvm::outs() << ", equal bits in " << options.compare << " more runs";
    llvm::outs() << "\n";
    if (!results->front().parts.empty()) {
      std::vector<PartTimes> parts = results->front().parts;
      for (const RunResult &group : llvm::drop_begin(*results))
        keepSlowest(parts, group.parts);
      printPartTimes(parts, llvm::outs());
    }
    if (ranks.run.trace &&
        failed(writeTrace(options.trace, getTraces(*results))))
      return false;
    if (!options.outputs.empty()) {
      RunResult all;
      all.output = RankRun::concatenate(*results);
      if (!options.accept(makeFoldersOf(options.outputs)))
        return false;
      if (moert::Status status = writeResult(options.outputs, all); !status)
        return options.complain(status.message());
    }
    if (!options.check && !options.bisect)
      continue;
    if (!(*run)->check(*results))
      return !options.bisect ? false
                             : options.complain(
                                   "first wrong at level '" + stringify(level) +
                                   "': look at " + getPassesBefore(level));
  }
  return true;
}

/// The layer's ranks according to its description; prints errors.
FailureOr<ParallelSpec> readParallel(const Session &session,
                                     const MoeRunOptions &options) {
  std::optional<SourceText> text = session.text;
  if (options.isPackage()) {
    moert::Result<moert::Package> package = moert::Package::open(options.input);
    if (!package) {
      (void)options.complain(package.status().message());
      return failure();
    }
    text = SourceText(options.input + ": spec", package->spec);
  }
  Diagnostics diagnostics(llvm::errs());
  FailureOr<LayerSpec> spec = failure();
  if (!text->getText().empty() && isJson(*text))
    spec = importJson(*text, session.overrides, diagnostics);
  else
    (void)options.complain(
        "--nproc needs a JSON description, which defines the ranks");
  if (failed(spec))
    return failure();
  return spec->parallel.value_or(ParallelSpec());
}

/// Starts a process for each rank; returns in the parent and in all of them.
bool startProcesses(Session &session, MoeRunOptions &options) {
  FailureOr<ParallelSpec> parallel = readParallel(session, options);
  if (failed(parallel))
    return false;
  if (parallel->getNumRanks() != options.nproc)
    return options.complain("--nproc=" + llvm::Twine(options.nproc) +
                            ": the layer is for " +
                            llvm::Twine(parallel->getNumRanks()) +
                            " ranks (parallel: " + parallel->describeRanks() +
                            "); give that number");
  auto processes = RankProcesses::start(options.nproc);
  if (!processes)
    return options.complain(processes.status().message());
  session.processes = std::move(*processes);
  // A token count that no real layer has, so that this rank's package differs.
  constexpr int64_t otherTokens = 100'003;
  std::optional<int64_t> rank = session.processes->getRank();
  if (rank && options.drills(*rank, "package"))
    session.overrides.maxTokens = otherTokens;
  return true;
}

/// Loads the layer, then lists its tensors or runs it.
bool runOne(Session &session, const MoeRunOptions &options) {
  session.context = std::make_unique<PooledContext>(options.makeRegistry());
  SourceDiagnostics diagnostics(*session.context, llvm::errs());
  if (!loadLayer(session, options, diagnostics))
    return false;
  if (options.signature) {
    printSignature(session);
    return true;
  }
  if (session.plan.mesh.numRanks() > 1)
    return runRanks(session, options);
  if (!checkPlan(session, options))
    return false;
  if (const llvm::cl::Option *given = findGiven(
          {options.rankTokens, options.microBatchesFrom, options.exchange}))
    return options.complain("--" + given->ArgStr +
                            ": the layer has no 'parallel'");
  moert::Result<std::vector<HostTensor>> tensors =
      options.needsWeights() ? allocateTensors(session.plan, options.tokens)
                             : allocateTensors(session.plan, options.tokens,
                                               {moert::TensorRole::Input,
                                                moert::TensorRole::Output});
  if (!tensors)
    return options.complain(tensors.status().message());
  session.tensors = std::move(*tensors);
  return runSession(session, options);
}

/// Runs every decoder layer with experts in sequence; continues after a
/// failure.
bool runAllLayers(const MoeRunOptions &options) {
  Session first;
  if (options.isPackage() || !readInput(first, options))
    return options.isPackage() &&
           options.complain("--layers=all needs a model's folder or its "
                            "config.json; a package has one layer");
  if (first.isIR())
    return options.complain("--layers=all needs a model's folder or its "
                            "config.json; IR lists its layers itself");
  Diagnostics diagnostics(llvm::errs());
  FailureOr<std::vector<DecoderLayer>> layers =
      getDecoderLayers(*first.text, first.overrides, diagnostics);
  if (failed(layers))
    return false;
  int64_t numRun = 0, numFailed = 0;
  for (const DecoderLayer &layer : *layers) {
    if (!layer.hasExperts)
      continue;
    llvm::outs() << "layer " << layer.index << ": ";
    llvm::outs().flush();
    Session session;
    session.text = first.text;
    session.overrides = first.overrides;
    session.overrides.layer = layer.index;
    ++numRun;
    if (!runOne(session, options)) {
      ++numFailed;
      llvm::outs() << "layer " << layer.index << ": failed\n";
    }
    llvm::outs().flush();
  }
  llvm::outs() << numRun << " layers with experts of " << layers->size() << ", "
               << numFailed << " failed\n";
  return numFailed == 0 && numRun > 0;
}

} // namespace

int moec::moeRunMain(int argc, char **argv) {
  MoeRunOptions options;
  if (!options.parse(
          argc, argv,
          "moe-run: compile a Mixture-of-Experts layer, run it on this "
          "machine, and check it.\n\n"
          "  moe-run config.json --signature             list the tensors\n"
          "  moe-run config.json --tokens=16 --check     compare with the "
          "float64 reference\n"
          "  moe-run config.json --tokens=16 --bisect    compare at every "
          "level\n"
          "  moe-run MODEL-FOLDER --layer=3 --check      a layer of a model on "
          "disk\n"
          "  moe-run MODEL-FOLDER --layers=all --check   every layer with "
          "experts\n"
          "  moe-run model.gguf --layer=3 --check        a layer of a GGUF "
          "file\n"
          "  moe-run parallel.json --nproc=4 --check     one process per rank\n"
          "  moe-run layer.mlir --tokens=128 --repeat=10\n"
          "  moe-run layer.moepkg --tokens=128 --repeat=10 --graph\n"
          "\nThe input is a model's folder or its config.json, a GGUF file, a "
          "spec (docs/use/layers.md), IR\nof any level (.mlir), - for JSON or "
          "IR from standard input, or a package. Without weights in\nthe input "
          "or --inputs, they are generated from the seed, as activations are. "
          "The exit code is 0 only "
          "if everything succeeded.\n") ||
      !options.makeSense() || !options.canWrite())
    return 1;
  if (!options.layers.empty())
    return runAllLayers(options) ? 0 : 1;
  Session session;
  return readInput(session, options) &&
                 (options.nproc == 0 || startProcesses(session, options)) &&
                 runOne(session, options)
             ? 0
             : 1;
}
