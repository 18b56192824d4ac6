//===- Executor.cpp - runs a plan on a device -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Executor.h"
#include "../plan/BatchHalves.h"
#include "../plan/CopiedResults.h"
#include "../plan/PlanDigest.h"
#include "../support/Check.h"
#include "MicroBatches.h"
#include "moert/PeerHeap.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace moert {

static std::string variantName(size_t index) {
  return "variants[" + std::to_string(index) + "]";
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

/// Whether the largest launch of a kernel whose CTAs wait for each other can
/// run: it would never end on a device with too little room.
static Status checkResident(Device &device, Kernel &kernel,
                            const KernelDecl &decl, int64_t maxTokens) {
  Result<int64_t> grid = decl.grid.maxUpTo(maxTokens);
  if (!grid)
    return grid.status();
  LaunchDims dims = {*grid, decl.block, decl.shared};
  dims.resident = true;
  return device.checkResident(kernel, dims);
}

Executor::Executor(Device &device, ExecutorOptions options)
    : device(device), options(options) {}

Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(Plan plan, Device &device,
                                                   const ModuleImage &image,
                                                   ExecutorOptions options) {
  MOERT_CHECK(verifyPlan(plan));
  MOERT_CHECK(device.checkTarget(plan.target));
  std::string identity = digestLayer(plan, image);
  if (options.keepAll) {
    plan.numSlots = 0;
    for (TensorDecl &tensor : plan.tensors)
      if (tensor.role == TensorRole::Workspace)
        tensor.slot = plan.numSlots++;
    // Without sharing the workspace is larger, perhaps more than 64 bits hold.
    MOERT_CHECK(verifyPlan(plan));
  }
  std::unique_ptr<Executor> executor(new Executor(device, options));
  executor->identity = std::move(identity);
  Result<std::unique_ptr<Module>> module = device.loadModule(image);
  if (!module)
    return module.status();
  executor->module = std::move(*module);
  for (const KernelDecl &decl : plan.kernels) {
    Result<Kernel *> kernel = executor->module->kernel(decl.name);
    if (!kernel)
      return kernel.status();
    if (decl.resident)
      MOERT_CHECK(checkResident(device, **kernel, decl, plan.maxTokens));
    executor->kernels.push_back(*kernel);
  }
  executor->bindings.resize(plan.tensors.size());
  executor->prepared.resize(plan.tensors.size());
  executor->ownWeights.resize(plan.tensors.size());
  executor->isPrepared = plan.prepare.empty();
  executor->thePlan = std::make_shared<const Plan>(std::move(plan));
  MOERT_CHECK(executor->createStreams());
  return executor;
}

Status Executor::createStreams() {
  for (int64_t i = 0; i < thePlan->numStreams; ++i) {
    Result<std::unique_ptr<Stream>> stream = device.createStream();
    if (!stream)
      return stream.status();
    streams.push_back(std::move(*stream));
  }
  for (int64_t i = 0; i < thePlan->numEvents; ++i) {
    Result<std::unique_ptr<Event>> event = device.createEvent();
    if (!event)
      return event.status();
    events.push_back(std::move(*event));
  }
  return Status::ok();
}

Result<std::unique_ptr<Executor>> Executor::clone() const {
  std::unique_ptr<Executor> copy(new Executor(device, options));
  copy->thePlan = thePlan;
  copy->identity = identity;
  copy->ownRank = ownRank;
  copy->communicator = communicator;
  copy->microBatchesFrom = microBatchesFrom;
  copy->copiedResults = copiedResults;
  copy->resultBytes = resultBytes;
  copy->module = module;
  copy->kernels = kernels;
  copy->prepared = prepared;
  copy->ownWeights = ownWeights;
  copy->isPrepared = isPrepared;
  copy->isFromFile = isFromFile;
  copy->prepareReport = prepareReport;
  copy->encodedMaps = encodedMaps;
  copy->bindings.resize(bindings.size());
  for (size_t i = 0; i < bindings.size(); ++i)
    if (thePlan->tensors[i].role == TensorRole::Weight)
      copy->bindings[i] = bindings[i];
  MOERT_CHECK(copy->createStreams());
  return copy;
}

//===----------------------------------------------------------------------===//
// Workspaces
//===----------------------------------------------------------------------===//

Result<int64_t> Executor::workspaceBytes(int64_t tokens) const {
  Result<int64_t> whole = moert::workspaceBytes(*thePlan, tokens);
  if (!whole || !hasMicroBatches(tokens))
    return whole;
  Result<int64_t> both = halvesWorkspaceBytes(*thePlan, tokens);
  return both ? std::max(*whole, *both) : both;
}

Result<std::shared_ptr<SharedWorkspace>>
SharedWorkspace::create(Device &device, int64_t bytes) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max() / 4;
  if (bytes < 0 || bytes > most)
    return invalidArgument("a workspace of " + std::to_string(bytes) +
                           " bytes per slot; 0 to " + std::to_string(most) +
                           " are accepted: give what workspaceBytes() answers");
  int64_t aligned = (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment *
                    kWorkspaceAlignment;
  Result<std::unique_ptr<Buffer>> buffer = device.allocate(
      static_cast<size_t>(aligned) * kNumSlots, kWorkspaceAlignment);
  if (!buffer)
    return buffer.status().withContext("workspace of " +
                                       std::to_string(kNumSlots) + " slots");
  return std::shared_ptr<SharedWorkspace>(
      new SharedWorkspace(std::move(*buffer), aligned));
}

WorkspaceView SharedWorkspace::slot(int index) const {
  if (bytes == 0)
    return {};
  return {static_cast<char *>(buffer->data()) + index * bytes, bytes};
}

Status Executor::useWorkspace(std::shared_ptr<SharedWorkspace> workspace,
                              int slot) {
  if (slot < 0 || slot >= SharedWorkspace::kNumSlots)
    return outOfRange("useWorkspace: slot " + std::to_string(slot) +
                      "; 0 and 1 are accepted");
  // Runs may still use the memory that the executor lets go.
  MOERT_CHECK(synchronize());
  resolvedTokens = lastTokens = -1;
  sharedWorkspace = std::move(workspace);
  sharedSlot = slot;
  if (sharedWorkspace) {
    ownWorkspace.reset();
    ownWorkspaceTokens = -1;
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

/// The tensor of a pair that is what one rank sends, or gets of all that is
/// summed.
static int64_t getOwnPart(const Step &step, size_t pair) {
  bool scatters = step.collectiveKind == CollectiveKind::ReduceScatter;
  return step.args[2 * pair + (scatters ? 1 : 0)].tensor;
}

/// Bytes of a heap's place that the collective takes with the most tokens.
static Result<int64_t> countPlaceBytes(const Plan &plan, const Step &step) {
  int64_t total = 0;
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    Result<int64_t> bytes = tensorBytes(plan.tensors[getOwnPart(step, pair)])
                                .maxUpTo(plan.maxTokens);
    if (!bytes)
      return bytes;
    total += PeerHeap::partBytes(plan.mesh.size(step.axis), *bytes);
  }
  return total;
}

/// By axis, what the results of any variant take that rows are copied to.
static std::array<int64_t, 2>
countResultBytes(const std::vector<std::vector<CopiedResult>> &copied) {
  std::array<int64_t, 2> bytes = {};
  for (const std::vector<CopiedResult> &results : copied)
    for (const CopiedResult &result : results) {
      int64_t &most = bytes[static_cast<size_t>(result.axis)];
      most = std::max(most, result.offset + result.bytes);
    }
  return bytes;
}

/// Tells a communicator what the collectives of a plan take.
static Status reservePlaces(const Plan &plan,
                            const std::array<int64_t, 2> &resultBytes,
                            Communicator &communicator) {
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor}) {
    int64_t most = 0;
    for (const Variant &variant : plan.variants)
      for (const Step &step : variant.steps) {
        if (step.kind != Step::Kind::Collective || step.axis != axis)
          continue;
        Result<int64_t> bytes = countPlaceBytes(plan, step);
        if (!bytes)
          return bytes.status();
        most = std::max(most, *bytes);
      }
    if (most > 0)
      MOERT_CHECK(communicator.reserve(axis, most,
                                       resultBytes[static_cast<size_t>(axis)]));
  }
  return Status::ok();
}

Status Executor::useMicroBatches(int64_t fromTokens) {
  const std::string call = "useMicroBatches";
  if (fromTokens < 0)
    return outOfRange(call + ": " + std::to_string(fromTokens) +
                      "; a number of tokens per rank from 1 on, or 0 for "
                      "never, is accepted");
  if (thePlan->mesh.numRanks() == 1)
    return invalidArgument(call + ": the layer is for one rank, which "
                                  "exchanges nothing; leave it out");
  if (communicator)
    return invalidArgument(call + ": ranks have agreed on what they run; call "
                                  "it ahead of useCommunicator()");
  if (fromTokens > 0)
    MOERT_CHECK(checkHalves(*thePlan).withContext(call));
  microBatchesFrom = fromTokens;
  return Status::ok();
}

Status Executor::useCommunicator(std::shared_ptr<Communicator> made) {
  if (!made)
    return invalidArgument("useCommunicator: null; give one for the mesh " +
                           thePlan->mesh.str());
  if (!(made->mesh() == thePlan->mesh))
    return invalidArgument("useCommunicator: it is for the mesh " +
                           made->mesh().str() + ", and the layer for " +
                           thePlan->mesh.str() + "; give one of that mesh");
  if (ownRank && *ownRank != made->rank())
    return invalidArgument(
        "useCommunicator: it is of rank " + std::to_string(made->rank()) +
        ", and the weights are those of rank " + std::to_string(*ownRank) +
        "; give the communicator of that rank");
  MOERT_CHECK(synchronize());
  resolvedTokens = lastTokens = -1;
  std::string what = digestPlan(*thePlan);
  // Who runs a batch as a whole and who runs it in halves would never meet.
  if (microBatchesFrom > 0)
    what += ", two micro-batches from " + std::to_string(microBatchesFrom) +
            " tokens per rank on";
  MOERT_CHECK(made->agree("the layer's plan", what));
  std::vector<std::vector<CopiedResult>> copied;
  for (const Variant &variant : thePlan->variants) {
    Result<std::vector<CopiedResult>> found =
        findCopiedResults(*thePlan, variant, made->leastCopiedBytes());
    if (!found)
      return found.status();
    copied.push_back(std::move(*found));
  }
  std::array<int64_t, 2> bytes = countResultBytes(copied);
  MOERT_CHECK(reservePlaces(*thePlan, bytes, *made));
  copiedResults = std::move(copied);
  resultBytes = bytes;
  dropHalves();
  ownRank = made->rank();
  communicator = std::move(made);
  return Status::ok();
}

Status Executor::setRank(int64_t rank) {
  MOERT_CHECK(checkRank(rank));
  ownRank = rank;
  return Status::ok();
}

Status Executor::checkRank(int64_t rank) const {
  if (rank < 0 || rank >= thePlan->mesh.numRanks())
    return outOfRange("rank is " + std::to_string(rank) + "; 0 to " +
                      std::to_string(thePlan->mesh.numRanks() - 1) +
                      " are those of " + thePlan->mesh.str());
  if (communicator && communicator->rank() != rank)
    return invalidArgument("rank is " + std::to_string(rank) +
                           ", and the communicator is of rank " +
                           std::to_string(communicator->rank()) +
                           "; give the weights of that rank");
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Status Executor::checkWeights() const {
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (thePlan->tensors[i].role != TensorRole::Weight)
      continue;
    std::string weight =
        "prepareWeights: weight '" + thePlan->tensors[i].name + "' ";
    if (!bindings[i].bound)
      return invalidArgument(weight + "is not bound; bind it first");
    if (bindings[i].overwritten)
      return invalidArgument(weight + "was overwritten when the weights were "
                                      "prepared before; bind it anew with its "
                                      "values");
  }
  return Status::ok();
}

Status Executor::allocatePrepared(PrepareReport &report) {
  for (size_t i = 0; i < bindings.size(); ++i) {
    const TensorDecl &tensor = thePlan->tensors[i];
    if (tensor.role != TensorRole::Prepared)
      continue;
    Result<int64_t> bytes = tensorBytes(tensor).evaluate(0);
    if (!bytes)
      return bytes.status();
    prepared[i].reset();
    if (tensor.inPlaceOf >= 0) {
      report.inPlaceBytes += *bytes;
      continue;
    }
    Result<std::unique_ptr<Buffer>> buffer =
        device.allocate(*bytes, kWorkspaceAlignment);
    if (!buffer)
      return buffer.status().withContext("prepareWeights: tensor '" +
                                         tensor.name + "'");
    prepared[i] = std::move(*buffer);
    report.bytes += *bytes;
  }
  return Status::ok();
}

void *Executor::addressOf(size_t tensor) const {
  if (prepared[tensor])
    return prepared[tensor]->data();
  int64_t weight = thePlan->tensors[tensor].inPlaceOf;
  return bindings[weight >= 0 ? static_cast<size_t>(weight) : tensor].data;
}

Result<PrepareReport> Executor::prepareWeights() {
  if (isPrepared)
    return prepareReport;
  auto start = std::chrono::steady_clock::now();
  MOERT_CHECK(checkWeights());
  // What an earlier run still reads stays until it is complete.
  MOERT_CHECK(synchronize());
  lastTokens = resolvedTokens = -1;
  dropHalves();
  PrepareReport report;
  MOERT_CHECK(allocatePrepared(report));
  addresses.assign(bindings.size(), nullptr);
  for (size_t i = 0; i < bindings.size(); ++i)
    addresses[i] = addressOf(i);
  MOERT_CHECK(resolveSteps(thePlan->prepare, "prepare", /*tokens=*/0));
  // Also where a step fails: nobody knows how far it came.
  for (const TensorDecl &tensor : thePlan->tensors)
    if (tensor.inPlaceOf >= 0)
      bindings[tensor.inPlaceOf].overwritten = true;
  MOERT_CHECK(runResolved(*streams[0], /*variant=*/-1));
  MOERT_CHECK(synchronize());
  isPrepared = true;
  isFromFile = false;
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  prepareReport = report;
  return report;
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

Status Executor::run(int64_t tokens, Stream *stream) {
  if (sharedWorkspace)
    return run(tokens, sharedWorkspace->slot(sharedSlot), stream);
  if (tokens != resolvedTokens)
    MOERT_CHECK(checkReady(tokens));
  if (tokens > ownWorkspaceTokens || !ownWorkspace)
    MOERT_CHECK(growWorkspace(tokens));
  return run(tokens,
             {ownWorkspace->data(), static_cast<int64_t>(ownWorkspace->size())},
             stream);
}

Status Executor::run(int64_t tokens, WorkspaceView workspace, Stream *stream) {
  MOERT_CHECK(resolve(tokens, workspace));
  Stream &first = stream ? *stream : *streams[0];
  if (runsHalves)
    return halves->run(first);
  if (options.poison)
    MOERT_CHECK(poison(first, tokens));
  return runResolved(first, thePlan->findVariant(tokens));
}

bool Executor::hasMicroBatches(int64_t tokens) const {
  return microBatchesFrom > 0 &&
         tokens / thePlan->mesh.tokenRanks() >= microBatchesFrom;
}

Result<bool> Executor::isHalved(int64_t tokens) const {
  if (!hasMicroBatches(tokens))
    return false;
  return mayRunBeside(*thePlan, tokens);
}

Status Executor::resolve(int64_t tokens, WorkspaceView workspace) {
  if (tokens != resolvedTokens || workspace.data != resolvedWorkspace.data ||
      workspace.bytes < resolvedWorkspace.bytes)
    return resolveRun(tokens, workspace);
  if (!hasMoved)
    return Status::ok();
  if (runsHalves)
    return resolveHalves(tokens, workspace);
  moveArguments();
  return Status::ok();
}

Status Executor::resolveHalves(int64_t tokens, WorkspaceView workspace) {
  resolvedTokens = -1;
  if (!halves) {
    Result<std::unique_ptr<MicroBatches>> made = MicroBatches::create(*this);
    if (!made)
      return made.status();
    halves = std::move(*made);
  }
  Result<int64_t> bytes = halves->resolve(*this, tokens, workspace);
  if (!bytes)
    return bytes.status();
  // What moves is bound by the halves.
  isEncoded.assign(thePlan->tensors.size(), false);
  hasMoved = false;
  lastTokens = tokens;
  resolvedWorkspace = {workspace.data, *bytes};
  resolvedTokens = tokens;
  runsHalves = true;
  return Status::ok();
}

void Executor::dropHalves() {
  // Nobody knows where the latest run had its tensors.
  if (runsHalves)
    lastTokens = resolvedTokens = -1;
  runsHalves = false;
  halves.reset();
}

Result<int64_t> Executor::layOut(int64_t tokens) {
  if (tokens != layoutTokens) {
    const Variant &variant = thePlan->variants[thePlan->findVariant(tokens)];
    Result<WorkspaceLayout> made = layoutWorkspace(*thePlan, variant, tokens);
    if (!made)
      return made.status();
    layout = std::move(*made);
    layoutTokens = tokens;
  }
  return layout.bytes;
}

Status Executor::resolveRun(int64_t tokens, WorkspaceView workspace) {
  resolvedTokens = -1;
  MOERT_CHECK(checkReady(tokens));
  Result<bool> halved = isHalved(tokens);
  if (!halved)
    return halved.status();
  runsHalves = false;
  if (*halved)
    return resolveHalves(tokens, workspace);
  int64_t variantIndex = thePlan->findVariant(tokens);
  const Variant &variant = thePlan->variants[variantIndex];
  if (Result<int64_t> bytes = layOut(tokens); !bytes)
    return bytes.status();
  if (workspace.bytes < layout.bytes)
    return invalidArgument("run: the workspace has " +
                           std::to_string(workspace.bytes) + " bytes, " +
                           std::to_string(tokens) + " tokens need " +
                           std::to_string(layout.bytes) +
                           "; allocate what workspaceBytes() answers");
  auto base = reinterpret_cast<uintptr_t>(workspace.data);
  if (layout.bytes > 0 && (base == 0 || base % kWorkspaceAlignment != 0))
    return invalidArgument("run: the workspace's address " +
                           std::to_string(base) + " is not a multiple of " +
                           std::to_string(kWorkspaceAlignment));

  addresses.assign(thePlan->tensors.size(), nullptr);
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (layout.offsets[i] >= 0)
      addresses[i] = static_cast<char *>(workspace.data) + layout.offsets[i];
    else
      addresses[i] = addressOf(i);
  }
  MOERT_CHECK(placeResults(variantIndex, tokens));
  lastTokens = tokens;
  MOERT_CHECK(resolveSteps(variant.steps, variantName(variantIndex) + ".steps",
                           tokens));
  resolvedWorkspace = {workspace.data, layout.bytes};
  resolvedTokens = tokens;
  return Status::ok();
}

/// Results of gathers that are copied lie where other ranks copy to, one behind
/// the other, and not in the workspace. Sizes, and therefore places, follow
/// from the tokens, which all ranks agree on. Two halves have as many rows as a
/// whole; where they take more all the same, each result being rounded up, what
/// has no room goes by the kernel.
Status Executor::placeResults(int64_t variant, int64_t tokens) {
  isCopied.assign(addresses.size(), false);
  resultEnds = resultBegins;
  if (copiedResults.empty())
    return Status::ok();
  for (const CopiedResult &result : copiedResults[variant]) {
    Result<bool> large =
        isLargeEnough(*thePlan, thePlan->variants[variant], result, tokens,
                      communicator->leastCopiedBytes());
    if (!large)
      return large.status();
    Result<int64_t> bytes =
        Expr::roundUp(tensorBytes(thePlan->tensors[result.tensor]),
                      kWorkspaceAlignment)
            .evaluate(tokens);
    if (!bytes)
      return bytes.status();
    void *results = communicator->results(result.axis);
    auto axis = static_cast<size_t>(result.axis);
    if (!*large || !results || *bytes > resultBytes[axis] - resultEnds[axis])
      continue;
    addresses[result.tensor] = static_cast<char *>(results) + resultEnds[axis];
    isCopied[result.tensor] = true;
    resultEnds[axis] += *bytes;
  }
  return Status::ok();
}

/// Whether calls bring the tensor: it is often elsewhere in the next one.
static bool isMovable(const TensorDecl &tensor) {
  return tensor.role == TensorRole::Input || tensor.role == TensorRole::Output;
}

void Executor::moveArguments() {
  for (size_t i = 0; i < addresses.size(); ++i)
    if (isMovable(thePlan->tensors[i]))
      addresses[i] = bindings[i].data;
  for (const MovableArgument &arg : movableArgs)
    resolvedArgs[arg.index] =
        reinterpret_cast<uintptr_t>(addresses[arg.tensor]);
  hasMoved = false;
}

Status Executor::checkReady(int64_t tokens) const {
  return checkReadyNow(tokens).withContext("run(" + std::to_string(tokens) +
                                           ")");
}

Status Executor::checkReadyNow(int64_t tokens) const {
  if (tokens < 0 || tokens > thePlan->maxTokens)
    return outOfRange(
        "0 to max_tokens = " + std::to_string(thePlan->maxTokens) +
        " tokens are accepted; compile with a larger "
        "max_tokens or split the batch");
  if (tokens % thePlan->mesh.tokenRanks() != 0)
    return invalidArgument("tokens are those of a group of " +
                           std::to_string(thePlan->mesh.tokenRanks()) +
                           " ranks; give a multiple of that");
  if (thePlan->mesh.numRanks() > 1 && !communicator)
    return invalidArgument("the layer is for the ranks of " +
                           thePlan->mesh.str() +
                           "; call useCommunicator() first");
  if (!isPrepared)
    return invalidArgument("the weights are not prepared; call "
                           "prepareWeights() first");
  std::vector<bool> isRead;
  if (isFromFile)
    isRead = findReadByRuns();
  for (size_t i = 0; i < bindings.size(); ++i) {
    const TensorDecl &tensor = thePlan->tensors[i];
    if (tensor.role == TensorRole::Workspace ||
        tensor.role == TensorRole::Prepared ||
        (tensor.role == TensorRole::Weight && isFromFile && !isRead[i]))
      continue;
    if (!bindings[i].bound)
      return invalidArgument(std::string(tensorRoleName(tensor.role)) + " '" +
                             tensor.name + "' is not bound; bind it first");
    if (tensor.shape.empty())
      continue;
    Result<int64_t> rows = tensor.shape[0].evaluate(tokens);
    if (!rows)
      return rows.status();
    if (bindings[i].shape[0] < *rows)
      return invalidArgument("tensor '" + tensor.name + "' is bound with " +
                             std::to_string(bindings[i].shape[0]) + " rows, " +
                             std::to_string(*rows) +
                             " are needed; bind a larger one");
  }
  return Status::ok();
}

Status Executor::growWorkspace(int64_t tokens) {
  Result<int64_t> bytes = workspaceBytes(tokens);
  if (!bytes)
    return bytes.status();
  if (ownWorkspace && ownWorkspace->size() >= static_cast<size_t>(*bytes)) {
    ownWorkspaceTokens = tokens;
    return Status::ok();
  }
  // An earlier run may still use the memory that is about to go.
  MOERT_CHECK(synchronize());
  ownWorkspace.reset();
  ownWorkspaceTokens = lastTokens = resolvedTokens = -1;
  Result<std::unique_ptr<Buffer>> buffer =
      device.allocate(*bytes, kWorkspaceAlignment);
  if (!buffer)
    return buffer.status().withContext("run: workspace for " +
                                       std::to_string(tokens) + " tokens");
  ownWorkspace = std::move(*buffer);
  ownWorkspaceTokens = tokens;
  return Status::ok();
}

Status Executor::poison(Stream &stream, int64_t tokens) {
  MOERT_CHECK(device.fill(stream, resolvedWorkspace.data, 0xFF,
                          resolvedWorkspace.bytes));
  for (size_t i = 0; i < addresses.size(); ++i) {
    const TensorDecl &tensor = thePlan->tensors[i];
    if (tensor.role != TensorRole::Output)
      continue;
    Result<int64_t> outputBytes = tensorBytes(tensor).evaluate(tokens);
    if (!outputBytes)
      return outputBytes.status();
    MOERT_CHECK(device.fill(stream, addresses[i], 0xFF, *outputBytes));
  }
  return Status::ok();
}

static std::string stepName(const std::string &where, size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

Status Executor::resolveSteps(const std::vector<Step> &steps,
                              const std::string &where, int64_t tokens) {
  resolved.clear();
  resolvedArgs.clear();
  resolvedMaps.clear();
  resolvedParts.clear();
  movableArgs.clear();
  isEncoded.assign(thePlan->tensors.size(), false);
  hasMoved = false;
  for (size_t i = 0; i < steps.size(); ++i)
    if (Status status = resolveStep(steps[i], tokens); !status)
      return status.withContext(stepName(where, i));
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != Step::Kind::Collective)
      continue;
    resolved[i].collective.where = halfPrefix() + stepName(where, i);
    if (steps[i].sumStep >= 0)
      resolved[static_cast<size_t>(steps[i].sumStep)].isOfCollective = true;
  }
  return Status::ok();
}

Status Executor::resolveStep(const Step &step, int64_t tokens) {
  ResolvedStep &made = resolved.emplace_back();
  made.kind = step.kind;
  made.stream = step.stream;
  if (step.kind == Step::Kind::Launch)
    return resolveLaunch(step, tokens, made);
  if (step.kind == Step::Kind::Collective)
    return resolveCollective(step, tokens, made);
  made.event = events[step.event].get();
  return Status::ok();
}

/// A dependent launch comes after the latest launch of its stream in this run,
/// as long as nothing else is in between. Launches of no CTAs are left out; if
/// nothing is before it then, what is on the stream belongs to somebody else,
/// as the run before this one, and does not count on being overtaken.
bool Executor::mayBeginEarly(const Step &step) const {
  if (!step.dependent || !options.dependentLaunches)
    return false;
  for (size_t i = resolved.size() - 1; i-- > 0;) {
    const ResolvedStep &before = resolved[i];
    if (before.stream != step.stream)
      continue;
    if (before.kind != Step::Kind::Launch)
      return false;
    if (before.dims.grid > 0)
      return true;
  }
  return false;
}

Status Executor::resolveLaunch(const Step &step, int64_t tokens,
                               ResolvedStep &made) {
  const KernelDecl &decl = thePlan->kernels[step.kernel];
  Result<int64_t> grid = decl.grid.evaluate(tokens);
  if (!grid)
    return grid.status();
  made.kernel = kernels[step.kernel];
  made.dims = {*grid, decl.block, decl.shared, mayBeginEarly(step),
               decl.resident};
  made.firstArg = resolvedArgs.size();
  for (const Argument &arg : step.args) {
    if (arg.kind == Argument::Kind::Tensor) {
      if (isMovable(thePlan->tensors[arg.tensor]))
        movableArgs.push_back({arg.tensor, resolvedArgs.size()});
      resolvedArgs.push_back(
          reinterpret_cast<uintptr_t>(addresses[arg.tensor]));
      if (thePlan->tensors[arg.tensor].strided) {
        const std::vector<int64_t> &strides = bindings[arg.tensor].strides;
        resolvedArgs.insert(resolvedArgs.end(), strides.begin(),
                            strides.end() - 1);
      }
      continue;
    }
    Result<int64_t> value = arg.scalar.evaluate(tokens);
    if (!value)
      return value.status();
    resolvedArgs.push_back(static_cast<uint64_t>(*value));
  }
  made.numArgs = resolvedArgs.size() - made.firstArg;
  made.firstMap = resolvedMaps.size();
  made.numMaps = decl.tensorMaps.size();
  return resolveMaps(step, tokens);
}

Status Executor::resolveCollective(const Step &step, int64_t tokens,
                                   ResolvedStep &made) {
  made.firstPart = resolvedParts.size();
  for (const Argument &arg : step.args)
    isEncoded[arg.tensor] = true;
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    int64_t in = step.args[2 * pair].tensor,
            out = step.args[2 * pair + 1].tensor;
    const TensorDecl &one = thePlan->tensors[getOwnPart(step, pair)];
    int64_t count = 1;
    for (const Expr &size : one.shape) {
      Result<int64_t> value = size.evaluate(tokens);
      if (!value)
        return value.status();
      count *= *value;
      if (size.dependsOnTokens())
        made.collective.rows = *value;
    }
    resolvedParts.push_back({addresses[in], addresses[out], one.dtype, count});
  }
  made.collective.kind = step.collectiveKind;
  made.collective.axis = step.axis;
  made.collective.numParts = resolvedParts.size() - made.firstPart;
  made.isFollowed = isFollowed(step, *thePlan);
  if (step.kernel < 0)
    return Status::ok();
  const KernelDecl &decl = thePlan->kernels[step.kernel];
  Result<int64_t> grid = decl.grid.evaluate(tokens);
  if (!grid)
    return grid.status();
  made.collective.kernel = kernels[step.kernel];
  if (step.numColumns > 0)
    made.collective.firstColumn = step.firstColumn;
  for (size_t i = 2 * step.numPairs(); i < step.args.size(); ++i)
    made.collective.kernelArgs.push_back(addresses[step.args[i].tensor]);
  // Other ranks wait for it, and what is beside it has all of the GPU behind
  // it.
  made.collective.dims = {*grid,         decl.block,
                          decl.shared,   /*dependent=*/false,
                          decl.resident, /*urgent=*/true};
  return Status::ok();
}

Status Executor::runResolved(Stream &first, int64_t variant) {
  for (size_t i = 0; i < resolved.size(); ++i)
    if (Status status = runStep(resolved[i], first); !status)
      return status.withContext(stepName(
          variant < 0 ? "prepare" : variantName(variant) + ".steps", i));
  return Status::ok();
}

Status Executor::runOfHalf(size_t step, Stream &first) {
  Status status = runStep(resolved[step], first);
  if (status)
    return status;
  auto variant = static_cast<size_t>(thePlan->findVariant(lastTokens));
  return status.withContext(halfPrefix() +
                            stepName(variantName(variant) + ".steps", step));
}

bool Executor::isLeftOut(const ResolvedStep &step) const {
  bool runsKernels = communicator && communicator->runsKernels();
  if (step.kind == Step::Kind::Collective)
    return step.isFollowed && !runsKernels;
  if (step.kind != Step::Kind::Launch)
    return false;
  return step.dims.grid == 0 || (step.isOfCollective && runsKernels);
}

bool Executor::hasSums() const {
  if (runsHalves)
    return halves->hasSums();
  return std::any_of(
      resolved.begin(), resolved.end(),
      [](const ResolvedStep &step) { return step.isOfCollective; });
}

Status Executor::runSums(Stream &stream) {
  if (runsHalves)
    return halves->runSums(stream);
  for (const ResolvedStep &step : resolved) {
    if (!step.isOfCollective || step.dims.grid == 0)
      continue;
    ResolvedStep alone = step;
    alone.dims.dependent = false;
    MOERT_CHECK(launchStep(alone, stream));
  }
  return Status::ok();
}

Status Executor::launchStep(const ResolvedStep &step, Stream &stream) {
  return device.launch(stream, *step.kernel, step.dims,
                       {resolvedArgs.data() + step.firstArg, step.numArgs,
                        resolvedMaps.data() + step.firstMap, step.numMaps});
}

Status Executor::runStep(const ResolvedStep &step, Stream &first) {
  Stream &stream = streamOf(step, first);
  if (isLeftOut(step))
    return Status::ok();
  switch (step.kind) {
  case Step::Kind::RecordEvent:
    return device.record(stream, *step.event);
  case Step::Kind::WaitEvent:
    return device.wait(stream, *step.event);
  case Step::Kind::Collective: {
    Collective collective = step.collective;
    collective.parts = resolvedParts.data() + step.firstPart;
    return communicator->run(stream, collective);
  }
  case Step::Kind::Launch:
    break;
  }
  return launchStep(step, stream);
}

Status Executor::synchronize() {
  for (const std::unique_ptr<Stream> &stream : streams)
    MOERT_CHECK(synchronize(*stream));
  return Status::ok();
}

Status Executor::synchronize(Stream &stream) {
  return communicator ? communicator->synchronize(stream)
                      : device.synchronize(stream);
}

} // namespace moert
