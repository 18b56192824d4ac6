//===- RankRun.cpp - runs all ranks of a layer ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankRun.h"

#include "../../../runtime/src/support/Threads.h"
#include "../Progress.h"
#include "Check.h"
#include "ConvertElements.h"
#include "OpenDevice.h"
#include "PartTimes.h"
#include "PlanRun.h"
#include "moec/Compiler/Levels.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Dialect/RowDestinations.h"
#include "moec/Interpreter/InterpreterDevice.h"
#include "moec/Package/BuildPackage.h"
#include "moec/Package/SpecText.h"
#include "moec/Schedules/Exchange.h"
#include "moert/AllToAll.h"
#include "moert/LocalGroup.h"
#include "moert/NcclCommunicator.h"
#include "moert/PeerCommunicator.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>

using namespace mlir;
using namespace moec;
using moert::Result;
using moert::Status;

/// The compiled layer, shared by all ranks.
struct RankRun::Compiled {
  moert::Plan plan;
  moert::ModuleImage image;
  /// The module, at levels that are interpreted.
  OwningOpRef<ModuleOp> interpreted;
};

class RankRun::Connector {
public:
  Connector(const RankRun &run, const moert::Mesh &mesh)
      : run(run), mesh(mesh), limitSeconds(run.options.limitSeconds) {}

  Status open() {
    if (run.options.processes)
      return Status::ok();
    if (!run.usesNccl()) {
      auto made = moert::LocalGroup::create(mesh, limitSeconds);
      if (made)
        group = std::move(*made);
      return made.status();
    }
    auto made = moert::makeNcclUniqueId();
    if (made)
      id = *made;
    return made.status();
  }

  /// Called by each rank in its own thread or process. With `peer` the ranks
  /// write to each other's memory.
  Result<std::shared_ptr<RecordingCommunicator>>
  connect(int64_t rank, moert::Device &device,
          const std::shared_ptr<moert::PeerDevice> &peer) {
    if (run.usesNccl()) {
      if (run.options.processes)
        if (Status status = shareId(rank, device); !status)
          return status;
      return connectNccl(rank, device);
    }
    auto joined = join(rank, device);
    if (!joined)
      return joined.status();
    if (run.options.exchange == Exchange::AllToAll)
      return makeAllToAll(std::move(*joined), device);
    if (!peer)
      return std::make_shared<RecordingCommunicator>(std::move(*joined));
    moert::PeerOptions options;
    options.base = std::move(*joined);
    options.device = share(device);
    options.peer = peer;
    options.limitSeconds = limitSeconds;
    options.leastCopiedBytes = run.options.leastCopiedBytes;
    auto made = moert::createPeerCommunicator(options);
    if (!made)
      return made.status();
    return std::make_shared<RecordingCommunicator>(std::move(*made));
  }

private:
  /// A non-owning pointer: the device belongs to the run, which outlives the
  /// communicator.
  static std::shared_ptr<moert::Device> share(moert::Device &device) {
    return {std::shared_ptr<moert::Device>(), &device};
  }

  Result<std::shared_ptr<RecordingCommunicator>>
  makeAllToAll(std::shared_ptr<moert::Communicator> base,
               moert::Device &device) {
    auto made = moert::createAllToAll({std::move(base), share(device),
                                       run.options.allToAllFrom,
                                       run.options.allToAllCapacity});
    if (!made)
      return made.status();
    return std::make_shared<RecordingCommunicator>(std::move(*made));
  }

  Result<std::unique_ptr<moert::Communicator>> join(int64_t rank,
                                                    moert::Device &device) {
    if (group)
      return group->join(rank, device);
    return moert::createProcessCommunicator(
        {mesh, rank, run.options.processes->takeSockets(), limitSeconds},
        device);
  }

  /// Makes NCCL's id on rank 0 and sends it to all others.
  Status shareId(int64_t rank, moert::Device &device) {
    moert::Mesh all{mesh.numRanks(), 1};
    auto joined = moert::createProcessCommunicator(
        {all, rank, run.options.processes->takeSockets(), limitSeconds},
        device);
    if (!joined)
      return joined.status();
    if (rank == 0) {
      auto made = moert::makeNcclUniqueId();
      if (!made) {
        (*joined)->abort(made.status().message());
        return made.status();
      }
      id = *made;
    }
    auto stream = device.createStream();
    if (!stream)
      return stream.status();
    size_t bytes = id.size();
    auto memory = device.allocate(bytes * (1 + size_t(mesh.numRanks())),
                                  moert::kWorkspaceAlignment);
    if (!memory)
      return memory.status();
    auto *own = static_cast<char *>((*memory)->data());
    if (Status status = device.copyIn(own, id.data(), bytes); !status)
      return status;
    moert::CollectivePart part{own, own + bytes, moert::DType::U8,
                               int64_t(bytes)};
    moert::Collective collective;
    collective.parts = &part;
    collective.numParts = 1;
    collective.where = "NCCL's id";
    if (Status status = (*joined)->run(**stream, collective); !status)
      return status;
    return device.copyOut(id.data(), own + bytes, bytes);
  }

  Result<std::shared_ptr<RecordingCommunicator>>
  connectNccl(int64_t rank, moert::Device &device) {
    moert::NcclOptions options;
    options.mesh = mesh;
    options.rank = rank;
    options.ordinal = int(rank);
    options.limitSeconds = limitSeconds;
    auto made = moert::NcclCommunicator::create(options, id);
    if (!made)
      return made.status();
    if (run.options.exchange == Exchange::AllToAll)
      return makeAllToAll(std::move(*made), device);
    return std::make_shared<RecordingCommunicator>(std::move(*made));
  }

  const RankRun &run;
  moert::Mesh mesh;
  double limitSeconds;
  std::shared_ptr<moert::LocalGroup> group;
  moert::NcclUniqueId id = {};
};

/// The expected share of tokens with an expert on a given rank, if all experts
/// are equally likely.
static double getRankShare(const LayerSpec &spec) {
  if (!spec.parallel->hasWholeExperts())
    return 1;
  int64_t numExperts = spec.getNumPhysicalExperts();
  return getRoutedShare(numExperts + spec.numZeroExperts,
                        numExperts / spec.parallel->getNumRanks(), spec.topK);
}

Result<std::unique_ptr<RankRun>>
RankRun::create(const LayerSpec &spec, ModuleOp module,
                const RankRunOptions &options) {
  size_t numGroups = spec.parallel->getTokenRanks();
  if (!options.validTokens.empty() && options.validTokens.size() != numGroups)
    return moert::invalidArgument(
        "--rank-tokens has " + std::to_string(options.validTokens.size()) +
        " numbers, but there are " + std::to_string(numGroups) +
        (spec.parallel->sp ? " ranks with their own tokens (parallel.sp)"
                           : " groups of ranks (parallel.dp, parallel.pcp)"));
  std::unique_ptr<RankRun> run(new RankRun(spec, module, options));
  Status status = run->openDevices();
  if (status)
    status = run->makeTensors();
  if (!status)
    return status;
  return run;
}

Status RankRun::openDevices() {
  if (options.exchange == Exchange::Nccl && !usesNccl())
    return moert::invalidArgument(
        "--exchange=nccl needs --device=cuda, with one GPU per rank");
  bool isPeer = options.exchange == Exchange::Peer;
  if (isPeer && options.processes &&
      !llvm::StringRef(options.device).starts_with("cuda"))
    return moert::invalidArgument(
        "--exchange=peer: processes (--nproc) cannot share '" + options.device +
        "'; give --device=cuda, or leave out --nproc");
  if (options.processes && !getOwnRank())
    return Status::ok();
  // Each rank's process opens its own device.
  std::string device = options.device;
  if (device == "cuda" && getOwnRank())
    device += ":" + std::to_string(*getOwnRank());
  auto opened = openRankDevices(device, options.threads,
                                getOwnRank() ? 1 : spec.parallel->getNumRanks(),
                                isPeer, options.limitSeconds);
  if (!opened)
    return opened.status();
  devices = std::move(opened->devices);
  peers = std::move(opened->peers);
  return Status::ok();
}

FailureOr<RankRun::Compiled> RankRun::compile(ExecutedLevel level) {
  Compiled compiled;
  OwningOpRef<ModuleOp> copy = module.clone();
  const CompileOptions &compile = options.run.compile;
  moert::Device &device = *devices.front();
  if (level == ExecutedLevel::Moe)
    return module.emitError(
        "of several ranks cannot run at level moe, which has no collectives; "
        "run it with --level=plan, tile or llvm");
  if (level != ExecutedLevel::LLVM) {
    if (failed(lowerToLevel(
            *copy, level == ExecutedLevel::Plan ? Level::Plan : Level::Tile,
            compile)))
      return failure();
    FailureOr<moert::Plan> plan = translatePlan(*copy, "cpu");
    if (failed(plan))
      return failure();
    compiled.plan = std::move(*plan);
    compiled.interpreted = std::move(copy);
    return compiled;
  }
  if (options.program) {
    compiled.plan = options.program->plan;
    compiled.image = options.image->load();
    return compiled;
  }
  if (device.architecture().empty()) {
    FailureOr<CompiledLayer> layer = compileForHost(*copy, compile);
    if (failed(layer))
      return failure();
    compiled.plan = std::move(layer->plan);
    compiled.image = std::move(layer->image);
    return compiled;
  }
  FailureOr<moert::Package> package =
      buildPackage(*copy, /*spec=*/std::nullopt, compile, /*architectures=*/{});
  if (failed(package))
    return failure();
  Result<moert::PackageChoice> choice = moert::chooseImage(
      *package, device.architecture(), device.takesMachineCode());
  if (!choice)
    return module.emitError(choice.status().message());
  moert::PackageProgram &program = package->programs[choice->program];
  compiled.image = program.images[choice->image].load();
  compiled.plan = std::move(program.plan);
  return compiled;
}

/// The file of a rank: `name` with "{rank}" replaced by its number.
static std::string getRankFile(llvm::StringRef name, int64_t rank) {
  auto [before, after] = name.split("{rank}");
  return name.empty() ? "" : (before + llvm::Twine(rank) + after).str();
}

Status RankRun::runRank(Compiled &compiled, int64_t rank, Connector &connector,
                        std::vector<HostTensor> *tensors, RunResult &result) {
  const moert::Mesh &mesh = compiled.plan.mesh;
  RunOptions run = options.run;
  run.tokens *= mesh.tokenRanks();
  run.device = devices[size_t(rank) % devices.size()].get();
  std::unique_ptr<moert::Device> interpreter;
  if (compiled.interpreted) {
    auto made = interpreter::createInterpreterDevice(*compiled.interpreted);
    if (!made)
      return made.status();
    interpreter = std::move(*made);
    run.device = interpreter.get();
  }
  // An interpreted layer runs no kernels that access other ranks' memory.
  std::shared_ptr<moert::PeerDevice> peer;
  if (!peers.empty() && !compiled.interpreted)
    peer = peers[size_t(rank) % peers.size()];
  Result<std::shared_ptr<RecordingCommunicator>> communicator =
      connector.connect(rank, *run.device, peer);
  if (!communicator)
    return communicator.status();
  run.communicator = run.recorder = std::move(*communicator);
  run.rankShare = getRankShare(spec);
  for (const Groups &inputs : otherInputs)
    run.otherInputs.push_back(&inputs[mesh.tokenRank(rank)]);
  run.prepared = getRankFile(run.prepared, rank);
  run.writePrepared = getRankFile(run.writePrepared, rank);
  Result<std::vector<HostTensor>> own = std::vector<HostTensor>();
  if (!tensors) {
    own = makeRankTensors(compiled.plan, rank);
    if (own)
      tensors = &*own;
  }
  Status status = own.status();
  if (tensors)
    status = PlanRun(compiled.plan, *run.device, compiled.image, *tensors, run)
                 .run(result);
  if (!status)
    run.communicator->abort(status.message());
  return status;
}

Status RankRun::checkExchange(const moert::Plan &plan) const {
  if (options.exchange != Exchange::AllToAll)
    return Status::ok();
  for (const moert::Variant &variant : plan.variants)
    for (const moert::Step &step : variant.steps)
      if (step.isPacked())
        return Status::ok();
  return moert::invalidArgument(
      "--exchange=all-to-all: no collective in the layer's plan for '" +
      plan.target +
      "' dispatches rows to destination ranks; this needs a GPU or the "
      "simulator (--level=llvm), whole experts on each rank (parallel.experts) "
      "without replicas, and more ranks than most rows have destinations");
}

Result<std::vector<RunResult>> RankRun::runRanks(Compiled &compiled) {
  int64_t numRanks = compiled.plan.mesh.numRanks();
  if (Status status = checkExchange(compiled.plan); !status)
    return status;
  Connector connector(*this, compiled.plan.mesh);
  if (Status status = connector.open(); !status)
    return status;
  auto tensors = makeRankTensors(compiled.plan);
  if (!tensors)
    return tensors.status();
  std::vector<RunResult> results(numRanks);
  std::vector<Status> statuses(numRanks);
  Progress progress("moe-run", "all ranks run");
  if (Status status = moert::runTogether(
          size_t(numRanks),
          [&](size_t rank) {
            statuses[rank] = runRank(compiled, int64_t(rank), connector,
                                     &(*tensors)[rank], results[rank])
                                 .withContext("rank " + std::to_string(rank));
          });
      !status)
    return status.withContext("a thread per rank");
  for (Status &status : statuses)
    if (!status)
      return status;
  return results;
}

/// The result is sent to the parent process.
Status RankRun::runOwnRank(Compiled &compiled) {
  int64_t rank = *getOwnRank();
  if (Status status = checkExchange(compiled.plan); !status)
    return status;
  Connector connector(*this, compiled.plan.mesh);
  Result<RunResult> result = RunResult();
  if (Status status =
          runRank(compiled, rank, connector, /*tensors=*/nullptr, *result);
      !status)
    result = status.withContext("rank " + std::to_string(rank));
  return options.processes->tell(result);
}

FailureOr<std::vector<RunResult>> RankRun::run(ExecutedLevel level) {
  Result<std::vector<RunResult>> results = std::vector<RunResult>();
  auto fail = [](const Status &status) {
    llvm::errs() << "moe-run: error: " << status.message() << "\n";
    return failure();
  };
  if (options.processes && !getOwnRank()) {
    Progress progress("moe-run", "all ranks run");
    results = options.processes->wait(options.limitSeconds);
  } else {
    FailureOr<Compiled> compiled = compile(level);
    if (failed(compiled))
      return failure();
    if (getOwnRank()) {
      if (Status status = runOwnRank(*compiled); !status)
        return fail(status);
      return std::vector<RunResult>();
    }
    results = runRanks(*compiled);
  }
  if (!results)
    return fail(results.status());
  return mergeGroups(std::move(*results));
}

namespace {

/// Sums of the outputs of a group's ranks, which are summands with
/// `parallel.reduce: false`: the caller of such a layer adds them.
class GroupSum {
public:
  void add(const HostTensor &summand) {
    sums.resize(size_t(summand.getNumElements()));
    size_t bytes = size_t(moert::dtypeBits(summand.dtype)) / 8;
    for (auto [i, sum] : llvm::enumerate(sums)) {
      float value = 0;
      convertElement(summand.data() + i * bytes, summand.dtype,
                     reinterpret_cast<uint8_t *>(&value), moert::DType::F32);
      sum += value;
    }
  }

  /// Rounds the sums to the elements of `result`.
  void write(HostTensor &result) const {
    size_t bytes = size_t(moert::dtypeBits(result.dtype)) / 8;
    for (auto [i, sum] : llvm::enumerate(sums))
      roundElement(reinterpret_cast<const uint8_t *>(&sum), moert::DType::F32,
                   result.data() + i * bytes, result.dtype);
  }

private:
  std::vector<float> sums;
};

} // namespace

/// Merges the results of ranks with the same tokens, which must be bitwise
/// equal, or are added if they are summands.
FailureOr<std::vector<RunResult>>
RankRun::mergeGroups(std::vector<RunResult> results) const {
  std::vector<RunResult> ofGroups;
  std::vector<GroupSum> sums;
  bool areSummands = spec.parallel->tp > 1 && !spec.parallel->reduce;
  moert::Mesh mesh{spec.parallel->getNumGroups(), spec.parallel->tp,
                   spec.parallel->sp};
  for (auto [rank, result] : llvm::enumerate(results)) {
    sums.resize(size_t(mesh.tokenRank(int64_t(rank))) + 1);
    if (areSummands)
      sums.back().add(result.output);
    if (sums.size() > ofGroups.size()) {
      ofGroups.push_back(std::move(result));
      continue;
    }
    llvm::append_range(ofGroups.back().traces, std::move(result.traces));
    // A group is as slow as its slowest rank.
    keepSlowest(ofGroups.back().parts, result.parts);
    std::vector<double> &seconds = ofGroups.back().seconds;
    for (auto [slowest, own] : llvm::zip(seconds, result.seconds))
      slowest = std::max(slowest, own);
    const HostTensor &first = ofGroups.back().output;
    if (!areSummands && first.getNumBytes() > 0 &&
        std::memcmp(first.data(), result.output.data(), first.getNumBytes()) !=
            0) {
      llvm::errs() << "moe-run: error: rank " << rank
                   << " has different bits from the first rank of its group\n";
      return failure();
    }
  }
  for (auto [group, sum] : llvm::zip(ofGroups, sums))
    if (areSummands)
      sum.write(group.output);
  return ofGroups;
}

HostTensor RankRun::concatenate(const std::vector<RunResult> &results) {
  HostTensor all;
  const HostTensor &first = results.front().output;
  all.name = first.name;
  all.role = first.role;
  all.dtype = first.dtype;
  all.shape = first.shape;
  all.shape[0] *= int64_t(results.size());
  if (!all.allocate())
    return all;
  for (auto [i, result] : llvm::enumerate(results))
    if (first.getNumBytes() > 0)
      std::memcpy(all.data() + i * first.getNumBytes(), result.output.data(),
                  first.getNumBytes());
  return all;
}

bool RankRun::check(const std::vector<RunResult> &results) {
  ReferenceCheck check;
  Status status = check.findReference();
  // The reference computes the whole layer; its error bound depends on the
  // ranks.
  LayerSpec whole = spec.getWhole();
  whole.parallel = spec.parallel;
  if (status)
    status = check.setSpec(printLayerSpec(whole));
  for (auto [group, result] : llvm::enumerate(results)) {
    std::vector<const HostTensor *> inputs = getPointers(groups[group]);
    llvm::append_range(inputs, getPointers(weights));
    if (status)
      status = check.setInputs(inputs);
    if (!status) {
      llvm::errs() << "moe-run: error: " << status.message() << "\n";
      return false;
    }
    check.setFirstToken(int64_t(group) * options.run.tokens);
    llvm::outs() << (spec.parallel->sp ? "rank " : "ranks of group ") << group
                 << ": ";
    llvm::outs().flush();
    // Compares only the output, because details hold the rows of all groups.
    RunResult output;
    output.output = copyTensor("output", result.output.getView());
    if (!check.compare(output))
      return false;
  }
  return true;
}
