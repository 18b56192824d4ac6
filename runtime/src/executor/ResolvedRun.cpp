//===- ResolvedRun.cpp - enqueues a resolved run ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ResolvedRun.h"
#include "../support/Check.h"

#include <algorithm>

namespace moert {

bool ResolvedRun::serves(const RunRequest &request) const {
  return request.tokens == tokens && request.workspace.data == workspace.data &&
         request.workspace.bytes >= workspace.bytes &&
         request.communicator == communicator &&
         request.resultBegins == resultBegins && request.half == half &&
         !haveResultsMoved();
}

bool ResolvedRun::haveResultsMoved() const {
  auto hasMoved = [&](MeshAxis axis) {
    void *used = results[static_cast<size_t>(axis)];
    return used && communicator->results(axis) != used;
  };
  return hasMoved(MeshAxis::Data) || hasMoved(MeshAxis::Tensor);
}

bool ResolvedRun::moveArguments(const std::vector<void *> &moved) {
  const std::vector<TensorDecl> &tensors = layer->plan.tensors;
  for (size_t i = 0; i < addresses.size(); ++i)
    if (isArgument(tensors[i]) && isEncoded[i] && addresses[i] != moved[i])
      return false;
  for (size_t i = 0; i < addresses.size(); ++i)
    if (isArgument(tensors[i]))
      addresses[i] = moved[i];
  for (const MovableArgument &arg : movable)
    args[arg.index] = reinterpret_cast<uintptr_t>(addresses[arg.tensor]);
  return true;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

static std::string nameOf(const Step &step, const Plan &plan) {
  if (step.kind == Step::Kind::Launch)
    return plan.kernels[step.kernel].name;
  std::string name = std::string(collectiveKindName(step.collectiveKind)) +
                     " " + meshAxisName(step.axis);
  if (step.numColumns > 0)
    name += " columns " + std::to_string(step.firstColumn) + " to " +
            std::to_string(step.firstColumn + step.numColumns - 1);
  return name;
}

TracedStep ResolvedRun::describe(size_t step) const {
  const Plan &plan = layer->plan;
  const Step &decl = plan.variants[variant].steps[step];
  TracedStep traced;
  traced.name = halfPrefix(half) + nameOf(decl, plan);
  // Later collectives may read copied rows, so only the gather itself is
  // marked.
  if (decl.toResults &&
      std::any_of(decl.args.begin(), decl.args.end(),
                  [&](const Argument &arg) { return isCopied[arg.tensor]; }))
    traced.name += " (rows copied)";
  traced.stream = decl.stream + (half && *half == 1 ? plan.numStreams : 0);
  return traced;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

bool ResolvedRun::isLeftOut(const ResolvedStep &step) const {
  bool runsKernels = communicator && communicator->runsKernels();
  switch (step.kind) {
  case Step::Kind::Collective:
    // Without kernels the last chunk moves whole rows.
    return step.isFollowed && !runsKernels;
  case Step::Kind::Launch:
    return step.dims.grid == 0 || (step.replaced && runsKernels);
  case Step::Kind::RecordEvent:
  case Step::Kind::WaitEvent:
    break;
  }
  return false;
}

Status ResolvedRun::launch(const ResolvedStep &step, const LaunchDims &dims,
                           Stream &stream) const {
  return layer->device.launch(stream, *step.kernel, dims,
                              {args.data() + step.firstArg, step.numArgs,
                               maps.data() + step.firstMap, step.numMaps});
}

Status ResolvedRun::enqueueStep(size_t index, const RunStreams &streams,
                                Stream &first) const {
  const ResolvedStep &step = steps[index];
  if (isLeftOut(step))
    return Status::ok();
  Stream &stream = streams.find(step.stream, first);
  Status status;
  switch (step.kind) {
  case Step::Kind::RecordEvent:
    status = layer->device.record(stream, *streams.events[step.event]);
    break;
  case Step::Kind::WaitEvent:
    status = layer->device.wait(stream, *streams.events[step.event]);
    break;
  case Step::Kind::Collective: {
    Collective collective = step.collective;
    collective.parts = parts.data() + step.firstPart;
    status = communicator->run(stream, collective);
    break;
  }
  case Step::Kind::Launch:
    status = launch(step, step.dims, stream);
    break;
  }
  return status ? status : status.withContext(nameStep(index));
}

Status ResolvedRun::enqueue(const RunStreams &streams, Stream &first) const {
  for (size_t i = 0; i < steps.size(); ++i)
    MOERT_CHECK(enqueueStep(i, streams, first));
  return Status::ok();
}

bool ResolvedRun::hasReplaced(Replaced made) const {
  return std::any_of(steps.begin(), steps.end(), [&](const ResolvedStep &step) {
    return step.replaced == made;
  });
}

Status ResolvedRun::enqueueReplaced(Replaced made, Stream &stream) const {
  for (const ResolvedStep &step : steps) {
    if (step.replaced != made || step.dims.grid == 0)
      continue;
    LaunchDims alone = step.dims;
    alone.dependent = false;
    MOERT_CHECK(launch(step, alone, stream));
  }
  return Status::ok();
}

Status ResolvedRun::poison(Stream &stream) const {
  Device &device = layer->device;
  MOERT_CHECK(device.fill(stream, workspace.data, 0xFF, workspace.bytes));
  for (size_t i = 0; i < addresses.size(); ++i) {
    const TensorDecl &tensor = layer->plan.tensors[i];
    if (tensor.role != TensorRole::Output)
      continue;
    Result<int64_t> bytes = tensorBytes(tensor).evaluate(tokens);
    if (!bytes)
      return bytes.status();
    MOERT_CHECK(device.fill(stream, addresses[i], 0xFF, *bytes));
  }
  return Status::ok();
}

} // namespace moert
