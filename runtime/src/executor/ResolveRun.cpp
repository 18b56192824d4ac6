//===- ResolveRun.cpp - evaluates the steps of a run ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../plan/TensorMaps.h"
#include "../support/Check.h"
#include "ResolvedRun.h"

#include <algorithm>

namespace moert {

namespace {

/// Appends evaluated steps to a run whose tensors have addresses.
class StepResolver {
public:
  StepResolver(ResolvedRun &run, const Bindings &bindings, TensorMapCache &maps)
      : run(run), plan(run.layer->plan), bindings(bindings), maps(maps) {}

  Status resolve(const std::vector<Step> &steps);

private:
  Status resolveStep(const Step &step);
  Status resolveLaunch(const Step &step, ResolvedStep &made);
  Status resolveMaps(const Step &step);
  Status resolveCollective(const Step &step, ResolvedStep &made);
  Status resolvePart(const Step &step, size_t pair, ResolvedStep &made);
  Status resolvePacked(const Step &step, ResolvedStep &made);
  Result<LaunchDims> findDims(int64_t kernel) const;
  bool mayBeginEarly(const Step &step) const;

  ResolvedRun &run;
  const Plan &plan;
  const Bindings &bindings;
  TensorMapCache &maps;
};

} // namespace

Status StepResolver::resolve(const std::vector<Step> &steps) {
  run.isEncoded.assign(plan.tensors.size(), false);
  run.isCopied.resize(plan.tensors.size());
  for (size_t i = 0; i < steps.size(); ++i)
    if (Status status = resolveStep(steps[i]); !status)
      return status.withContext(run.nameStep(i));
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != Step::Kind::Collective)
      continue;
    run.steps[i].collective.where = run.nameStep(i);
    if (steps[i].replacedStep >= 0)
      run.steps[static_cast<size_t>(steps[i].replacedStep)].replaced =
          steps[i].collectiveKind == CollectiveKind::AllGather
              ? Replaced::Quantized
              : Replaced::Sums;
  }
  return Status::ok();
}

Status StepResolver::resolveStep(const Step &step) {
  ResolvedStep &made = run.steps.emplace_back();
  made.kind = step.kind;
  made.stream = step.stream;
  made.event = step.event;
  if (step.kind == Step::Kind::Launch)
    return resolveLaunch(step, made);
  if (step.kind == Step::Kind::Collective)
    return resolveCollective(step, made);
  return Status::ok();
}

/// A dependent launch may begin early only behind a launch of this run on the
/// same stream, with nothing in between. Launches of 0 CTAs are left out. If
/// none precedes it, the earlier work of the stream is not this run's, and may
/// not permit overlap.
bool StepResolver::mayBeginEarly(const Step &step) const {
  if (!step.dependent || !run.layer->options.dependentLaunches)
    return false;
  for (size_t i = run.steps.size() - 1; i-- > 0;) {
    const ResolvedStep &before = run.steps[i];
    if (before.stream != step.stream)
      continue;
    if (before.kind != Step::Kind::Launch)
      return false;
    if (before.dims.grid > 0)
      return true;
  }
  return false;
}

Result<LaunchDims> StepResolver::findDims(int64_t kernel) const {
  const KernelDecl &decl = plan.kernels[kernel];
  Result<int64_t> grid = decl.grid.evaluate(run.tokens);
  if (!grid)
    return grid.status();
  return LaunchDims{*grid, decl.block, decl.shared};
}

Status StepResolver::resolveLaunch(const Step &step, ResolvedStep &made) {
  const KernelDecl &decl = plan.kernels[step.kernel];
  Result<LaunchDims> dims = findDims(step.kernel);
  if (!dims)
    return dims.status();
  made.kernel = &run.layer->kernel(step.kernel);
  made.dims = *dims;
  made.dims.dependent = mayBeginEarly(step);
  made.dims.resident = decl.resident;
  made.firstArg = run.args.size();
  for (const Argument &arg : step.args) {
    if (arg.kind == Argument::Kind::Tensor) {
      auto tensor = static_cast<size_t>(arg.tensor);
      if (isArgument(plan.tensors[tensor]))
        run.movable.push_back({tensor, run.args.size()});
      run.args.push_back(reinterpret_cast<uintptr_t>(run.addresses[tensor]));
      if (plan.tensors[tensor].strided) {
        const std::vector<int64_t> &strides = bindings[tensor].strides;
        run.args.insert(run.args.end(), strides.begin(), strides.end() - 1);
      }
      continue;
    }
    Result<int64_t> value = arg.scalar.evaluate(run.tokens);
    if (!value)
      return value.status();
    run.args.push_back(static_cast<uint64_t>(*value));
  }
  made.numArgs = run.args.size() - made.firstArg;
  made.firstMap = run.maps.size();
  made.numMaps = decl.tensorMaps.size();
  return resolveMaps(step);
}

Status StepResolver::resolveMaps(const Step &step) {
  const KernelDecl &kernel = plan.kernels[step.kernel];
  for (size_t i = 0; i < kernel.tensorMaps.size(); ++i) {
    int64_t tensor = step.args[kernel.tensorMaps[i].argument].tensor;
    run.isEncoded[tensor] = true;
    const TensorDecl &decl = plan.tensors[tensor];
    Result<int64_t> rows = decl.shape[0].evaluate(run.tokens);
    if (!rows)
      return rows.status();
    Result<TensorMap> map = maps.encode(
        *run.layer, {step.kernel, i, tensor}, run.addresses[tensor], *rows,
        decl.strided ? bindings[tensor].strides : tensorStrides(decl));
    if (!map)
      return map.status();
    run.maps.push_back(*map);
  }
  return Status::ok();
}

Status StepResolver::resolvePart(const Step &step, size_t pair,
                                 ResolvedStep &made) {
  int64_t in = step.args[2 * pair].tensor, out = step.args[2 * pair + 1].tensor;
  const TensorDecl &one = plan.tensors[step.ownPart(pair)];
  int64_t count = 1, ofRow = 1;
  for (const Expr &size : one.shape) {
    Result<int64_t> value = size.evaluate(run.tokens);
    if (!value)
      return value.status();
    count *= *value;
    if (size.dependsOnTokens())
      made.collective.rows = *value;
    else
      ofRow *= *value;
  }
  bool hasRows = !one.shape.empty() && one.shape[0].dependsOnTokens();
  bool isRouted =
      std::find(step.routedPairs.begin(), step.routedPairs.end(),
                static_cast<int64_t>(pair)) != step.routedPairs.end();
  run.parts.push_back({run.addresses[in], run.addresses[out], one.dtype, count,
                       run.isCopied[out], hasRows ? ofRow : 0, isRouted});
  return Status::ok();
}

Status StepResolver::resolveCollective(const Step &step, ResolvedStep &made) {
  made.firstPart = run.parts.size();
  for (const Argument &arg : step.args)
    run.isEncoded[arg.tensor] = true;
  for (size_t pair = 0; pair < step.numPairs(); ++pair)
    MOERT_CHECK(resolvePart(step, pair, made));
  made.collective.kind = step.collectiveKind;
  made.collective.axis = step.axis;
  made.collective.numParts = run.parts.size() - made.firstPart;
  made.isFollowed = isFollowed(step, plan);
  if (step.isPacked())
    MOERT_CHECK(resolvePacked(step, made));
  if (step.kernel < 0)
    return Status::ok();
  Result<LaunchDims> dims = findDims(step.kernel);
  if (!dims)
    return dims.status();
  made.collective.kernel = &run.layer->kernel(step.kernel);
  made.collective.toResults = step.toResults;
  if (step.numColumns > 0)
    made.collective.firstColumn = step.firstColumn;
  for (size_t i = 2 * step.numPairs(); i < step.args.size(); ++i)
    made.collective.kernelArgs.push_back(run.addresses[step.args[i].tensor]);
  made.collective.dims = *dims;
  made.collective.dims.resident = plan.kernels[step.kernel].resident;
  // Other ranks wait for the collective, and work beside it has the whole GPU
  // afterwards.
  made.collective.dims.urgent = true;
  return Status::ok();
}

Status StepResolver::resolvePacked(const Step &step, ResolvedStep &made) {
  Result<LaunchDims> route = findDims(step.routeKernel);
  if (!route)
    return route.status();
  Result<LaunchDims> pack = findDims(step.packKernel);
  if (!pack)
    return pack.status();
  PackedKernels packed;
  packed.route = &run.layer->kernel(step.routeKernel);
  packed.routeDims = *route;
  packed.pack = &run.layer->kernel(step.packKernel);
  packed.packDims = *pack;
  packed.ids = run.addresses[step.packedIds()];
  packed.destinations = run.addresses[step.packedDestinations()];
  packed.destinationsOfRow = countDestinationsOfRow(plan, step);
  made.collective.packed = packed;
  return Status::ok();
}

/// Moves tensors that other ranks write from the workspace into results(),
/// consecutively. Sizes, and hence offsets, follow from the token count, which
/// is equal on all ranks. A communicator that skips its kernels for a time
/// still has results().
static Status placeResults(const RunRequest &request, ResolvedRun &run) {
  const Plan &plan = run.layer->plan;
  run.resultEnds = run.resultBegins;
  run.isCopied.assign(plan.tensors.size(), false);
  if (!run.communicator)
    return Status::ok();
  for (const GatheredResult &result : run.layer->gatheredResults[run.variant]) {
    Result<int64_t> bytes = countResultBytes(plan, result, run.tokens);
    if (!bytes)
      return bytes.status();
    Result<bool> copied =
        isCopied(plan, plan.variants[run.variant], result, run.tokens,
                 run.communicator->leastCopiedBytes());
    if (!copied)
      return copied.status();
    void *results = run.communicator->results(result.axis);
    if (!results && !run.communicator->runsKernels())
      continue;
    auto axis = static_cast<size_t>(result.axis);
    if (!results || *bytes > request.resultBytes[axis] - run.resultEnds[axis])
      return internalError("results of " + std::to_string(run.tokens) +
                           " tokens were not reserved");
    run.results[axis] = results;
    run.addresses[result.tensor] =
        static_cast<char *>(results) + run.resultEnds[axis];
    run.isCopied[result.tensor] = *copied;
    run.resultEnds[axis] += *bytes;
  }
  return Status::ok();
}

Result<ResolvedRun> resolveRun(std::shared_ptr<const LoadedLayer> layer,
                               const Bindings &bindings,
                               const WorkspaceLayout &layout,
                               RunRequest request, TensorMapCache &maps) {
  ResolvedRun run;
  run.layer = std::move(layer);
  const Plan &plan = run.layer->plan;
  run.communicator = request.communicator;
  run.tokens = request.tokens;
  run.variant = plan.findVariant(request.tokens);
  run.half = request.half;
  run.where = halfPrefix(run.half) + std::string("variants[") +
              std::to_string(run.variant) + "].steps";
  run.workspace = {request.workspace.data, layout.bytes};
  run.resultBegins = request.resultBegins;
  run.addresses = std::move(request.addresses);
  for (size_t i = 0; i < run.addresses.size(); ++i)
    if (layout.offsets[i] >= 0)
      run.addresses[i] =
          static_cast<char *>(run.workspace.data) + layout.offsets[i];
  MOERT_CHECK(placeResults(request, run));
  MOERT_CHECK(StepResolver(run, bindings, maps)
                  .resolve(plan.variants[run.variant].steps));
  return run;
}

Result<ResolvedRun> resolvePrepare(std::shared_ptr<const LoadedLayer> layer,
                                   const Bindings &bindings,
                                   TensorMapCache &maps) {
  ResolvedRun run;
  run.layer = std::move(layer);
  run.where = "prepare";
  run.addresses = bindings.findAddresses();
  MOERT_CHECK(
      StepResolver(run, bindings, maps).resolve(run.layer->plan.prepare));
  return run;
}

} // namespace moert
