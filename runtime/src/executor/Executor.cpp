//===- Executor.cpp - runs a plan on a device -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Executor.h"
#include "../support/Check.h"
#include "Bindings.h"
#include "LatestRun.h"
#include "LayerRanks.h"
#include "LoadedLayer.h"
#include "PreparedFile.h"
#include "Workspaces.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <chrono>

namespace moert {

namespace {

class Stopwatch {
public:
  double read() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  }

private:
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
};

} // namespace

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

Executor::~Executor() = default;

Result<std::unique_ptr<Executor>>
Executor::create(std::shared_ptr<const LoadedLayer> layer, Bindings bindings,
                 LayerRanks ranks) {
  std::unique_ptr<Executor> made(new Executor());
  Result<std::unique_ptr<LatestRun>> latest = LatestRun::create(layer);
  if (!latest)
    return latest.status();
  made->latest = std::move(*latest);
  Result<std::unique_ptr<RunOrder>> order = RunOrder::create(layer->device);
  if (!order)
    return order.status();
  made->workspaces = std::make_unique<Workspaces>();
  made->workspaces->order = std::move(*order);
  made->bindings = std::make_unique<Bindings>(std::move(bindings));
  made->ranks = std::make_unique<LayerRanks>(std::move(ranks));
  made->layer = std::move(layer);
  return made;
}

Result<std::unique_ptr<Executor>> Executor::create(Plan plan, Device &device,
                                                   const ModuleImage &image,
                                                   ExecutorOptions options) {
  auto layer =
      LoadedLayer::load(std::move(plan), device, image, std::move(options));
  if (!layer)
    return layer.status();
  return create(*layer, Bindings(*layer), LayerRanks(*layer));
}

Result<std::unique_ptr<Executor>> Executor::clone() const {
  return create(layer, bindings->shareWeights(), *ranks);
}

const Plan &Executor::plan() const { return layer->plan; }

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

Status Executor::bind(const std::string &name, const TensorView &view) {
  if (bindings->ownsWeight(name)) {
    MOERT_CHECK(bindings->check(name, view));
    // Runs may still read the memory that is about to be freed.
    MOERT_CHECK(synchronize().withContext("bind '" + name + "'"));
  }
  return bindings->bind(name, view);
}

Status Executor::checkBinding(const std::string &name,
                              const TensorView &view) const {
  return bindings->check(name, view);
}

Status Executor::bindAll(
    const std::vector<std::pair<std::string, TensorView>> &tensors) {
  Bindings before = *bindings;
  for (const auto &[name, view] : tensors)
    if (Status status = bind(name, view); !status) {
      *bindings = std::move(before);
      return status;
    }
  return Status::ok();
}

Result<TensorView> Executor::bound(const std::string &name) const {
  return bindings->find(name);
}

Result<TensorView> Executor::view(const std::string &name) const {
  int64_t index = layer->plan.findTensor(name);
  if (index < 0)
    return notFound("view: the plan has no tensor '" + name + "'");
  int64_t tokens = latest->tokens();
  if (tokens < 0)
    return unavailable("view '" + name + "': nothing has run yet");
  const TensorDecl &tensor = layer->plan.tensors[index];
  const ResolvedRun *whole = latest->whole();
  if (!whole && tensor.role == TensorRole::Workspace)
    return unavailable(
        "view '" + name +
        "': the latest run was two micro-batches, each with its own tensor; "
        "run fewer tokens, or disable micro-batches");
  TensorView view;
  view.data = whole ? whole->addresses[index] : bindings->addressOf(index);
  view.dtype = tensor.dtype;
  for (const Expr &size : tensor.shape) {
    Result<int64_t> value = size.evaluate(tokens);
    if (!value)
      return value.status();
    view.shape.push_back(*value);
  }
  if (tensor.strided)
    view.strides = (*bindings)[index].strides;
  if (!view.data && tensor.role == TensorRole::Workspace &&
      std::find(view.shape.begin(), view.shape.end(), 0) == view.shape.end())
    return notFound("view '" + name + "': the variant for " +
                    std::to_string(tokens) +
                    " tokens does not use this tensor");
  return view;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

bool Executor::isPrepared() const { return bindings->isPrepared(); }

Result<PrepareReport> Executor::prepareWeights() {
  return bindings->isPrepared() ? bindings->prepareReport() : prepare();
}

Result<PrepareReport> Executor::prepareAgain() {
  if (!bindings->isPrepared() || layer->plan.prepare.empty())
    return prepareWeights();
  if (bindings->isFromFile())
    return invalidArgument(
        "prepareAgain: the weights come from a file of prepared weights; read "
        "another file, or bind weights");
  return prepare();
}

Result<PrepareReport> Executor::prepare() {
  Stopwatch watch;
  MOERT_CHECK(bindings->checkPrepare());
  // Keep memory that an earlier run still reads until that run is complete.
  MOERT_CHECK(synchronize());
  latest->forget();
  Result<PrepareReport> report = bindings->beginPrepare();
  if (!report)
    return report.status();
  Result<ResolvedRun> steps =
      resolvePrepare(layer, *bindings, bindings->mapCache());
  if (!steps)
    return steps.status();
  // Even if a step fails, since weights may be partly overwritten.
  bindings->markOverwritten();
  const RunStreams &streams = latest->streams();
  MOERT_CHECK(steps->enqueue(streams, streams.first()));
  MOERT_CHECK(synchronize());
  report->seconds = watch.read();
  bindings->endPrepare(*report);
  return report;
}

Status Executor::releaseWeights() { return bindings->release(); }

Result<PreparedFileReport>
Executor::writePrepared(const std::string &path,
                        const PreparedFileOptions &options) {
  Stopwatch watch;
  if (options.rank && rank() && *options.rank != *rank())
    return invalidArgument("writePrepared: rank is " +
                           std::to_string(*options.rank) +
                           ", but the weights are those of rank " +
                           std::to_string(*rank()) + "; leave it out");
  if (options.rank)
    MOERT_CHECK(setRank(*options.rank).withContext("writePrepared"));
  const Mesh &mesh = layer->plan.mesh;
  if (mesh.numRanks() > 1 && !rank())
    return invalidArgument(
        "writePrepared: the layer has the ranks of " + mesh.str() +
        "; give the rank of these weights, or set a communicator first");
  MOERT_CHECK(prepareWeights().status());
  Result<int64_t> bytes =
      writePreparedFile(*layer, *bindings, rank(), path, options);
  if (!bytes)
    return bytes.status();
  return PreparedFileReport{*bytes, watch.read()};
}

Result<PreparedFileReport>
Executor::bindPrepared(const std::string &path,
                       const PreparedFileOptions &options) {
  Stopwatch watch;
  if (options.rank)
    MOERT_CHECK(checkRank(*options.rank).withContext("bindPrepared"));
  Result<PreparedWeights> weights = readPreparedFile(
      *layer, options.rank ? options.rank : rank(), path, options);
  if (!weights)
    return weights.status();
  // Keep memory that an earlier run still reads until that run is complete.
  MOERT_CHECK(synchronize());
  latest->forget();
  MOERT_CHECK(bindings->useFile(weights->tensors));
  ranks->rank = weights->rank;
  return PreparedFileReport{weights->bytes, watch.read()};
}

//===----------------------------------------------------------------------===//
// Ranks and workspaces
//===----------------------------------------------------------------------===//

std::optional<int64_t> Executor::rank() const { return ranks->rank; }

Status Executor::checkRank(int64_t rank) const {
  return ranks->checkRank(rank);
}

Status Executor::setRank(int64_t rank) {
  MOERT_CHECK(checkRank(rank));
  ranks->rank = rank;
  return Status::ok();
}

Status Executor::useMicroBatches(int64_t fromTokens) {
  return ranks->useMicroBatches(fromTokens);
}

Status Executor::useCommunicator(std::shared_ptr<Communicator> communicator) {
  MOERT_CHECK(ranks->checkCommunicator(communicator.get()));
  MOERT_CHECK(synchronize());
  latest->forget();
  return ranks->useCommunicator(std::move(communicator));
}

Result<int64_t> Executor::workspaceBytes(int64_t tokens) const {
  return ranks->workspaceBytes(tokens);
}

Status Executor::useWorkspace(std::shared_ptr<SharedWorkspace> workspace,
                              int slot) {
  if (slot < 0 || slot >= SharedWorkspace::kNumSlots)
    return outOfRange("useWorkspace: slot " + std::to_string(slot) +
                      "; 0 and 1 are accepted");
  // Runs may still use the memory that is about to be freed.
  MOERT_CHECK(synchronize());
  latest->forget();
  if (workspace)
    workspaces->own = workspaces->captured = OwnWorkspace();
  workspaces->shared = std::move(workspace);
  workspaces->slot = slot;
  return Status::ok();
}

Status Executor::growWorkspace(OwnWorkspace &own, int64_t tokens) {
  Result<int64_t> bytes = workspaceBytes(tokens);
  if (!bytes)
    return bytes.status();
  if (own.buffer && own.buffer->size() >= static_cast<size_t>(*bytes)) {
    own.tokens = tokens;
    return Status::ok();
  }
  // An earlier run may still use the memory that is about to be freed. Graphs
  // keep theirs.
  if (&own == &workspaces->own && own.buffer)
    MOERT_CHECK(synchronize());
  own = OwnWorkspace();
  latest->forget();
  Result<std::unique_ptr<Buffer>> buffer =
      layer->device.allocate(*bytes, kWorkspaceAlignment);
  if (!buffer)
    return buffer.status().withContext("run: workspace for " +
                                       std::to_string(tokens) + " tokens");
  own = {std::move(*buffer), tokens};
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

Stream &Executor::ownStream() const { return latest->streams().first(); }

Status Executor::run(int64_t tokens, Stream *stream) {
  Stream &first = stream ? *stream : ownStream();
  Result<StreamState> state = layer->device.inspect(first);
  if (!state)
    return state.status();
  RunOrder &order = workspaces->orderOfRuns();
  if (workspaces->shared)
    return run(tokens, workspaces->shared->slot(workspaces->slot),
               workspaces->shared, order, first, *state);
  MOERT_CHECK(latest->checkReady(*bindings, *ranks, tokens));
  OwnWorkspace &own = state->capture ? workspaces->captured : workspaces->own;
  // Avoid growth: each one leaves earlier graphs with a workspace of their own.
  int64_t served =
      state->capture ? std::max(tokens, workspaces->own.tokens) : tokens;
  if (!own.serves(served))
    MOERT_CHECK(growWorkspace(own, served));
  return run(tokens, own.view(), own.buffer, order, first, *state);
}

Status Executor::run(int64_t tokens, WorkspaceView workspace, Stream *stream) {
  Stream &first = stream ? *stream : ownStream();
  Result<StreamState> state = layer->device.inspect(first);
  if (!state)
    return state.status();
  return run(tokens, workspace, nullptr, *workspaces->order, first, *state);
}

Status Executor::run(int64_t tokens, WorkspaceView workspace,
                     std::shared_ptr<const void> owner, RunOrder &order,
                     Stream &first, const StreamState &state) {
  MOERT_CHECK(latest->resolve(*bindings, *ranks, tokens, workspace));
  wasCaptured = state.capture.has_value();
  if (wasCaptured) {
    struct Used {
      std::shared_ptr<const LoadedLayer> layer;
      std::vector<std::shared_ptr<Buffer>> weights;
      std::shared_ptr<const void> workspace;
    };
    MOERT_CHECK(layer->device.retain(
        first, std::make_shared<const Used>(
                   Used{layer, bindings->findOwnMemory(), std::move(owner)})));
  }
  return order.run(first, state, [&] { return latest->enqueue(first); });
}

bool Executor::hasReplaced(Replaced made) const {
  return latest->hasReplaced(made);
}

Status Executor::runReplaced(Replaced made, Stream &stream) {
  return latest->enqueueReplaced(made, stream);
}

Status Executor::synchronize() {
  const RunStreams &streams = latest->streams();
  MOERT_CHECK(workspaces->order->await(streams.first()));
  if (workspaces->shared)
    MOERT_CHECK(workspaces->orderOfRuns().await(streams.first()));
  for (const std::unique_ptr<Stream> &stream : streams.streams)
    MOERT_CHECK(synchronize(*stream));
  return Status::ok();
}

Status Executor::synchronize(Stream &stream) {
  return ranks->synchronize(stream);
}

} // namespace moert
