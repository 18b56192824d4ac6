//===- Executor.cpp - runs a plan on a device -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Executor.h"
#include "../plan/BatchHalves.h"
#include "../plan/GatheredResults.h"
#include "../plan/PlanDigest.h"
#include "../support/Check.h"
#include "MicroBatches.h"
#include "Overlap.h"
#include "RunOrder.h"
#include "moert/PeerHeap.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace moert {

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

/// Success if the largest launch of a resident kernel fits on the device;
/// otherwise it would never end.
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
    : device(device), options(std::move(options)) {}

Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(Plan plan, Device &device,
                                                   const ModuleImage &image,
                                                   ExecutorOptions options) {
  MOERT_CHECK(verifyPlan(plan));
  MOERT_CHECK(device.checkTarget(plan.target));
  std::string identity = digestLayer(plan, image, !options.description.empty());
  if (options.keepAll) {
    plan.numSlots = 0;
    for (TensorDecl &tensor : plan.tensors)
      if (tensor.role == TensorRole::Workspace)
        tensor.slot = plan.numSlots++;
    // Without sharing the workspace is larger, and its size may overflow 64
    // bits.
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
  Result<std::unique_ptr<RunOrder>> made = RunOrder::create(device);
  if (!made)
    return made.status();
  order = std::move(*made);
  return Status::ok();
}

Result<std::unique_ptr<Executor>> Executor::clone() const {
  std::unique_ptr<Executor> copy(new Executor(device, options));
  copy->thePlan = thePlan;
  copy->identity = identity;
  copy->ownRank = ownRank;
  copy->communicator = communicator;
  copy->microBatchesFrom = microBatchesFrom;
  copy->gatheredResults = gatheredResults;
  copy->resultBytes = resultBytes;
  copy->module = module;
  copy->kernels = kernels;
  copy->prepared = prepared;
  copy->ownWeights = ownWeights;
  copy->isPrepared = isPrepared;
  copy->haveWeightsMoved = haveWeightsMoved;
  copy->isFromFile = isFromFile;
  copy->prepareReport = prepareReport;
  copy->encodedMaps = encodedMaps;
  copy->bindings.resize(bindings.size());
  for (size_t i = 0; i < bindings.size(); ++i)
    if (thePlan->tensors[i].role == TensorRole::Weight ||
        thePlan->tensors[i].role == TensorRole::Prepared) {
      copy->bindings[i] = bindings[i];
      // Otherwise both executors would prepare in it.
      copy->bindings[i].isNew = false;
    }
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
  std::shared_ptr<SharedWorkspace> made(
      new SharedWorkspace(std::move(*buffer), aligned));
  for (std::unique_ptr<RunOrder> &order : made->orders) {
    Result<std::unique_ptr<RunOrder>> created = RunOrder::create(device);
    if (!created)
      return created.status();
    order = std::move(*created);
  }
  return made;
}

SharedWorkspace::SharedWorkspace(std::unique_ptr<Buffer> buffer, int64_t bytes)
    : buffer(std::move(buffer)), bytes(bytes) {}

SharedWorkspace::~SharedWorkspace() = default;

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
  // Runs may still use the memory that is about to be freed.
  MOERT_CHECK(synchronize());
  resolvedTokens = lastTokens = -1;
  sharedWorkspace = std::move(workspace);
  sharedSlot = slot;
  if (sharedWorkspace)
    ownWorkspace = capturedWorkspace = OwnWorkspace();
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

/// Bytes that the collective needs in a receive buffer of a heap, at the
/// maximum token count.
static Result<int64_t> countPlaceBytes(const Plan &plan, const Step &step) {
  int64_t total = 0;
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    Result<int64_t> bytes =
        tensorBytes(plan.tensors[step.ownPart(pair)]).maxUpTo(plan.maxTokens);
    if (!bytes)
      return bytes;
    total += PeerHeap::partBytes(plan.mesh.size(step.axis), *bytes);
  }
  return total;
}

/// Per axis: the maximum bytes of results over all variants, for up to
/// `maxTokens` tokens.
static Result<std::array<int64_t, 2>>
countResults(const Plan &plan,
             const std::vector<std::vector<GatheredResult>> &gathered,
             int64_t maxTokens) {
  std::array<int64_t, 2> most = {};
  for (size_t i = 0; i < gathered.size(); ++i) {
    std::array<int64_t, 2> bytes = {};
    for (const GatheredResult &result : gathered[i]) {
      Result<int64_t> counted = countResultBytes(
          plan, result, std::min(plan.variants[i].maxTokens, maxTokens));
      if (!counted)
        return counted.status();
      bytes[static_cast<size_t>(result.axis)] += *counted;
    }
    for (size_t axis = 0; axis < most.size(); ++axis)
      most[axis] = std::max(most[axis], bytes[axis]);
  }
  return most;
}

/// Buffer sizes of an all-to-all at the maximum token count.
static Result<PackedRoom> countPackedRoom(const Plan &plan, const Step &step) {
  PackedRoom room;
  room.ownersOfRow = countOwnersOfRow(plan, step);
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    const TensorDecl &tensor = plan.tensors[step.ownPart(pair)];
    if (tensor.shape.empty() || !tensor.shape[0].dependsOnTokens())
      continue;
    Result<int64_t> rows = tensor.shape[0].maxUpTo(plan.maxTokens);
    if (!rows)
      return rows.status();
    room.rows = std::max(room.rows, *rows);
    int64_t bits = dtypeBits(tensor.dtype);
    for (size_t i = 1; i < tensor.shape.size(); ++i)
      bits *= tensor.shape[i].constantValue();
    room.rowBytes.push_back(bits / 8);
  }
  return room;
}

static Status reservePackedRooms(const Plan &plan, Communicator &communicator) {
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor}) {
    std::vector<PackedRoom> rooms;
    for (const Variant &variant : plan.variants)
      for (const Step &step : variant.steps) {
        if (step.kind != Step::Kind::Collective || step.axis != axis ||
            !step.isPacked())
          continue;
        Result<PackedRoom> room = countPackedRoom(plan, step);
        if (!room)
          return room.status();
        rooms.push_back(std::move(*room));
      }
    if (!rooms.empty())
      MOERT_CHECK(communicator.reservePacked(axis, rooms));
  }
  return Status::ok();
}

/// Reserves memory for a plan's collectives in the communicator.
static Status reservePlaces(const Plan &plan,
                            const std::array<int64_t, 2> &resultBytes,
                            Communicator &communicator) {
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor}) {
    int64_t most = 0;
    for (const Variant &variant : plan.variants)
      for (const Step &step : variant.steps) {
        if (step.kind != Step::Kind::Collective || step.axis != axis ||
            step.toResults)
          continue;
        Result<int64_t> bytes = countPlaceBytes(plan, step);
        if (!bytes)
          return bytes.status();
        most = std::max(most, *bytes);
      }
    int64_t results = resultBytes[static_cast<size_t>(axis)];
    if (most > 0 || results > 0)
      MOERT_CHECK(communicator.reserve(axis, most, results));
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
                                  "it ahead of giving a communicator");
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
  // All ranks must agree on micro-batches, or they deadlock.
  if (microBatchesFrom > 0)
    what += ", two micro-batches from " + std::to_string(microBatchesFrom) +
            " tokens per rank on";
  MOERT_CHECK(made->agree("the layer's plan", what));
  std::vector<std::vector<GatheredResult>> gathered;
  for (const Variant &variant : thePlan->variants)
    gathered.push_back(findResults(*thePlan, variant));
  Result<std::array<int64_t, 2>> bytes =
      countResults(*thePlan, gathered, thePlan->maxTokens);
  if (!bytes)
    return bytes.status();
  if (microBatchesFrom > 0) {
    // Each result is padded, so two halves may need more than a whole batch.
    Result<std::array<int64_t, 2>> first = countResults(
        *thePlan, gathered, cutBatch(*thePlan, thePlan->maxTokens)[0]);
    if (!first)
      return first.status();
    for (size_t axis = 0; axis < bytes->size(); ++axis)
      (*bytes)[axis] = std::max((*bytes)[axis], 2 * (*first)[axis]);
  }
  MOERT_CHECK(reservePlaces(*thePlan, *bytes, *made));
  MOERT_CHECK(reservePackedRooms(*thePlan, *made));
  gatheredResults = std::move(gathered);
  resultBytes = *bytes;
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
    if (bindings[i].released && !isFromFile)
      return invalidArgument(weight + "was released once it had been prepared; "
                                      "bind it anew with its values");
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
    if (tensor.inPlaceOf >= 0) {
      // May be set if it was read from a prepared file.
      prepared[i].reset();
      report.inPlaceBytes += *bytes;
      continue;
    }
    if (hasGivenMemory(i)) {
      prepared[i].reset();
      continue;
    }
    bindings[i] = Binding();
    report.bytes += *bytes;
    if (!haveWeightsMoved)
      continue;
    prepared[i].reset();
    Result<std::unique_ptr<Buffer>> buffer =
        device.allocate(*bytes, kWorkspaceAlignment);
    if (!buffer)
      return buffer.status().withContext("prepareWeights: tensor '" +
                                         tensor.name + "'");
    prepared[i] = std::move(*buffer);
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
  return isPrepared ? prepareReport : prepare();
}

Result<PrepareReport> Executor::prepareAgain() {
  if (!isPrepared)
    return prepareWeights();
  if (thePlan->prepare.empty())
    return prepareReport;
  if (isFromFile)
    return invalidArgument("prepareAgain: the weights are from a file of "
                           "prepared ones; read another file, or bind "
                           "weights");
  return prepare();
}

Status Executor::releaseWeights() {
  if (!isPrepared)
    return invalidArgument("releaseWeights: the weights are not prepared; "
                           "prepare them first");
  std::vector<bool> isRead = findMemoryReadByRuns();
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (thePlan->tensors[i].role != TensorRole::Weight || isRead[i])
      continue;
    bindings[i] = Binding();
    bindings[i].released = true;
  }
  resolvedTokens = -1;
  dropHalves();
  return Status::ok();
}

Result<PrepareReport> Executor::prepare() {
  auto start = std::chrono::steady_clock::now();
  MOERT_CHECK(checkWeights());
  haveWeightsMoved |= isFromFile;
  MOERT_CHECK(checkPrepareMemory());
  // Keep memory that an earlier run still reads until that run is complete.
  MOERT_CHECK(synchronize());
  lastTokens = resolvedTokens = -1;
  dropHalves();
  PrepareReport report;
  isPrepared = false;
  MOERT_CHECK(allocatePrepared(report));
  haveWeightsMoved = false;
  addresses.assign(bindings.size(), nullptr);
  for (size_t i = 0; i < bindings.size(); ++i)
    addresses[i] = addressOf(i);
  MOERT_CHECK(resolveSteps(thePlan->prepare, "prepare", /*tokens=*/0));
  // Set even if a step fails, since weights may be partly overwritten.
  for (const TensorDecl &tensor : thePlan->tensors)
    if (tensor.inPlaceOf >= 0)
      bindings[tensor.inPlaceOf].overwritten = true;
  MOERT_CHECK(runResolved(*streams[0], /*variant=*/-1));
  MOERT_CHECK(synchronize());
  isPrepared = true;
  isFromFile = false;
  for (Binding &binding : bindings)
    binding.isNew = false;
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  prepareReport = report;
  return report;
}

} // namespace moert
