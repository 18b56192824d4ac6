//===- ExecutorRun.cpp - resolves a run and launches its steps --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A run is resolved once for its tokens, workspace and bindings: addresses,
// grids, arguments. After that its steps are only enqueued on their streams.
//
//===----------------------------------------------------------------------===//

#include "../plan/GatheredResults.h"
#include "../support/Check.h"
#include "MicroBatches.h"
#include "Overlap.h"
#include "RunOrder.h"
#include "moert/Executor.h"

#include <algorithm>

namespace moert {

static std::string variantName(size_t index) {
  return "variants[" + std::to_string(index) + "]";
}

static std::string stepName(const std::string &where, size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

Status Executor::run(int64_t tokens, Stream *stream) {
  Stream &first = stream ? *stream : *streams[0];
  Result<StreamState> state = device.inspect(first);
  if (!state)
    return state.status();
  if (sharedWorkspace)
    return run(tokens, sharedWorkspace->slot(sharedSlot), sharedWorkspace,
               orderOfRuns(), first, *state);
  if (tokens != resolvedTokens)
    MOERT_CHECK(checkReady(tokens));
  OwnWorkspace &own = state->capture ? capturedWorkspace : ownWorkspace;
  // Avoid growth: each one leaves earlier graphs with a workspace of their own.
  int64_t served =
      state->capture ? std::max(tokens, ownWorkspace.tokens) : tokens;
  if (served > own.tokens || !own.buffer)
    MOERT_CHECK(growWorkspace(own, served));
  return run(tokens, own.view(), own.buffer, *order, first, *state);
}

Status Executor::run(int64_t tokens, WorkspaceView workspace, Stream *stream) {
  Stream &first = stream ? *stream : *streams[0];
  Result<StreamState> state = device.inspect(first);
  if (!state)
    return state.status();
  return run(tokens, workspace, nullptr, *order, first, *state);
}

Status Executor::run(int64_t tokens, WorkspaceView workspace,
                     std::shared_ptr<const void> owner, RunOrder &order,
                     Stream &first, const StreamState &state) {
  MOERT_CHECK(resolve(tokens, workspace));
  wasCaptured = state.capture.has_value();
  if (wasCaptured)
    MOERT_CHECK(retain(first, std::move(owner)));
  return order.run(first, state, [&]() -> Status {
    if (runsHalves)
      return halves->run(first);
    if (options.poison)
      MOERT_CHECK(poison(first, tokens));
    return runResolved(first, thePlan->findVariant(tokens));
  });
}

Status Executor::retain(Stream &capturing,
                        std::shared_ptr<const void> workspace) {
  struct Used {
    std::shared_ptr<Module> module;
    std::vector<std::shared_ptr<Buffer>> prepared, ownWeights;
    std::shared_ptr<const void> workspace;
  };
  return device.retain(
      capturing, std::make_shared<const Used>(
                     Used{module, prepared, ownWeights, std::move(workspace)}));
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
  bool isResolved =
      tokens == resolvedTokens && workspace.data == resolvedWorkspace.data &&
      workspace.bytes >= resolvedWorkspace.bytes && !haveResultsMoved();
  if (isResolved && !hasMoved)
    return Status::ok();
  if (isResolved && !runsHalves) {
    moveArguments();
  } else {
    MOERT_CHECK(isResolved ? resolveHalves(tokens, workspace)
                           : resolveRun(tokens, workspace));
  }
  Status status = checkOverlap(tokens);
  if (!status)
    resolvedTokens = -1;
  return status;
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
  // Arguments are bound and moved by the halves.
  isEncoded.assign(thePlan->tensors.size(), false);
  hasMoved = false;
  lastTokens = tokens;
  resolvedWorkspace = {workspace.data, *bytes};
  resolvedTokens = tokens;
  runsHalves = true;
  return Status::ok();
}

void Executor::dropHalves() {
  // The addresses of the latest run are lost with its halves.
  if (runsHalves)
    lastTokens = resolvedTokens = -1;
  runsHalves = false;
  halves.reset();
  memory.reset();
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

/// Tensors that other ranks write are in results(), consecutively, instead of
/// the workspace. Sizes, and hence offsets, follow from the token count, which
/// is equal on all ranks.
Status Executor::placeResults(int64_t variant, int64_t tokens) {
  isCopied.assign(addresses.size(), false);
  resultEnds = resultBegins;
  resolvedResults = {};
  if (!communicator || !communicator->runsKernels())
    return Status::ok();
  for (const GatheredResult &result : gatheredResults[variant]) {
    Result<int64_t> bytes = countResultBytes(*thePlan, result, tokens);
    if (!bytes)
      return bytes.status();
    Result<bool> copied =
        moert::isCopied(*thePlan, thePlan->variants[variant], result, tokens,
                        communicator->leastCopiedBytes());
    if (!copied)
      return copied.status();
    void *results = communicator->results(result.axis);
    auto axis = static_cast<size_t>(result.axis);
    if (!results || *bytes > resultBytes[axis] - resultEnds[axis])
      return internalError("results of " + std::to_string(tokens) +
                           " tokens were not reserved");
    resolvedResults[axis] = results;
    addresses[result.tensor] = static_cast<char *>(results) + resultEnds[axis];
    isCopied[result.tensor] = *copied;
    resultEnds[axis] += *bytes;
  }
  return Status::ok();
}

bool Executor::haveResultsMoved() const {
  if (runsHalves)
    return halves->haveResultsMoved();
  auto hasMoved = [&](MeshAxis axis) {
    void *results = resolvedResults[static_cast<size_t>(axis)];
    return results && communicator->results(axis) != results;
  };
  return hasMoved(MeshAxis::Data) || hasMoved(MeshAxis::Tensor);
}

void Executor::moveArguments() {
  for (size_t i = 0; i < addresses.size(); ++i)
    if (isArgument(thePlan->tensors[i]))
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
                           "; give it a communicator first");
  if (!isPrepared)
    return invalidArgument("the weights are not prepared; prepare "
                           "them first");
  for (size_t i = 0; i < bindings.size(); ++i) {
    const TensorDecl &tensor = thePlan->tensors[i];
    if (tensor.role == TensorRole::Workspace ||
        tensor.role == TensorRole::Prepared || bindings[i].released)
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
  if (&own == &ownWorkspace && own.buffer)
    MOERT_CHECK(synchronize());
  own = OwnWorkspace();
  lastTokens = resolvedTokens = -1;
  Result<std::unique_ptr<Buffer>> buffer =
      device.allocate(*bytes, kWorkspaceAlignment);
  if (!buffer)
    return buffer.status().withContext("run: workspace for " +
                                       std::to_string(tokens) + " tokens");
  own = {std::move(*buffer), tokens};
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
    if (steps[i].replacedStep >= 0)
      resolved[static_cast<size_t>(steps[i].replacedStep)].replaced =
          steps[i].collectiveKind == CollectiveKind::AllGather ? Replaced::Codes
                                                               : Replaced::Sums;
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

/// A dependent launch may begin early only behind a launch of this run on the
/// same stream, with nothing in between. Launches of 0 CTAs are left out. If
/// none precedes it, the earlier work of the stream is not this run's, and may
/// not permit overlap.
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
      if (isArgument(thePlan->tensors[arg.tensor]))
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

static bool isOwned(const Step &step, size_t pair) {
  return std::find(step.ownedPairs.begin(), step.ownedPairs.end(),
                   static_cast<int64_t>(pair)) != step.ownedPairs.end();
}

Status Executor::resolveCollective(const Step &step, int64_t tokens,
                                   ResolvedStep &made) {
  made.firstPart = resolvedParts.size();
  for (const Argument &arg : step.args)
    isEncoded[arg.tensor] = true;
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    int64_t in = step.args[2 * pair].tensor,
            out = step.args[2 * pair + 1].tensor;
    const TensorDecl &one = thePlan->tensors[step.ownPart(pair)];
    int64_t count = 1, ofRow = 1;
    for (const Expr &size : one.shape) {
      Result<int64_t> value = size.evaluate(tokens);
      if (!value)
        return value.status();
      count *= *value;
      if (size.dependsOnTokens())
        made.collective.rows = *value;
      else
        ofRow *= *value;
    }
    bool hasRows = !one.shape.empty() && one.shape[0].dependsOnTokens();
    resolvedParts.push_back({addresses[in], addresses[out], one.dtype, count,
                             isCopied[out], hasRows ? ofRow : 0,
                             isOwned(step, pair)});
  }
  made.collective.kind = step.collectiveKind;
  made.collective.axis = step.axis;
  made.collective.numParts = resolvedParts.size() - made.firstPart;
  made.isFollowed = isFollowed(step, *thePlan);
  if (step.isPacked())
    MOERT_CHECK(resolvePacked(step, tokens, made));
  if (step.kernel < 0)
    return Status::ok();
  const KernelDecl &decl = thePlan->kernels[step.kernel];
  Result<int64_t> grid = decl.grid.evaluate(tokens);
  if (!grid)
    return grid.status();
  made.collective.kernel = kernels[step.kernel];
  made.collective.toResults = step.toResults;
  if (step.numColumns > 0)
    made.collective.firstColumn = step.firstColumn;
  for (size_t i = 2 * step.numPairs(); i < step.args.size(); ++i)
    made.collective.kernelArgs.push_back(addresses[step.args[i].tensor]);
  // Urgent: other ranks wait for the collective, and work beside it has the
  // whole GPU afterwards.
  made.collective.dims = {*grid,         decl.block,
                          decl.shared,   /*dependent=*/false,
                          decl.resident, /*urgent=*/true};
  return Status::ok();
}

Status Executor::resolvePacked(const Step &step, int64_t tokens,
                               ResolvedStep &made) {
  PackedKernels packed;
  auto resolveOne = [&](int64_t index, Kernel *&kernel,
                        LaunchDims &dims) -> Status {
    const KernelDecl &decl = thePlan->kernels[index];
    Result<int64_t> grid = decl.grid.evaluate(tokens);
    if (!grid)
      return grid.status();
    kernel = kernels[index];
    dims = {*grid, decl.block, decl.shared};
    return Status::ok();
  };
  MOERT_CHECK(resolveOne(step.routeKernel, packed.route, packed.routeDims));
  MOERT_CHECK(resolveOne(step.packKernel, packed.pack, packed.packDims));
  packed.ids = addresses[step.packedIds()];
  packed.owners = addresses[step.packedOwners()];
  packed.ownersOfRow = countOwnersOfRow(*thePlan, step);
  made.collective.packed = packed;
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
  return step.dims.grid == 0 || (step.replaced && runsKernels);
}

bool Executor::hasReplaced(Replaced made) const {
  if (runsHalves)
    return halves->hasReplaced(made);
  return std::any_of(
      resolved.begin(), resolved.end(),
      [&](const ResolvedStep &step) { return step.replaced == made; });
}

Status Executor::runReplaced(Replaced made, Stream &stream) {
  if (runsHalves)
    return halves->runReplaced(made, stream);
  for (const ResolvedStep &step : resolved) {
    if (step.replaced != made || step.dims.grid == 0)
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
  MOERT_CHECK(order->await(*streams[0]));
  if (sharedWorkspace)
    MOERT_CHECK(orderOfRuns().await(*streams[0]));
  for (const std::unique_ptr<Stream> &stream : streams)
    MOERT_CHECK(synchronize(*stream));
  return Status::ok();
}

Status Executor::synchronize(Stream &stream) {
  return communicator ? communicator->synchronize(stream)
                      : device.synchronize(stream);
}

} // namespace moert
