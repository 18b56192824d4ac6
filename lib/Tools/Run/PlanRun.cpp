//===- PlanRun.cpp - runs a plan on a device --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanRun.h"

#include "../Progress.h"
#include "PartTimes.h"
#include "Timing.h"
#include "llvm/ADT/STLExtras.h"

#include <chrono>
#include <cstring>

using namespace moec;
using moert::Result;
using moert::Status;

double moec::getSeconds() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

HostTensor moec::copyTensor(std::string name, const moert::TensorView &view) {
  HostTensor copy;
  copy.name = std::move(name);
  copy.dtype = view.dtype;
  copy.shape = view.shape;
  if (copy.allocate() && copy.getNumBytes() > 0)
    std::memcpy(copy.data(), view.data, copy.getNumBytes());
  return copy;
}

llvm::ArrayRef<llvm::StringLiteral> moec::getDetailNames() {
  static constexpr llvm::StringLiteral names[] = {"topk_ids", "topk_weights",
                                                  "expert_offsets"};
  return names;
}

void moec::addExpertCounts(std::vector<HostTensor> &details) {
  auto offsets = llvm::find_if(details, [](const HostTensor &tensor) {
    return tensor.name == "expert_offsets";
  });
  if (offsets == details.end() || offsets->dtype != moert::DType::I32 ||
      offsets->shape.size() != 1 || offsets->shape[0] < 1)
    return;
  HostTensor counts;
  counts.name = "expert_counts";
  counts.dtype = moert::DType::I32;
  counts.shape = {offsets->shape[0] - 1};
  if (!counts.allocate())
    return;
  auto *from = reinterpret_cast<const int32_t *>(offsets->data());
  for (int64_t e = 0; e < counts.shape[0]; ++e)
    reinterpret_cast<int32_t *>(counts.data())[e] = from[e + 1] - from[e];
  details.push_back(std::move(counts));
}

Status PlanRun::run(RunResult &result) {
  if (Status status = place(); !status)
    return status;
  // Runs without collectives read rows that an earlier run has left in buffers,
  // so these must not share memory.
  if (Status status = start(/*keepAll=*/!options.timesAt.empty()); !status)
    return status;
  if (Status status = prepare(result); !status)
    return status;
  if (Status status = writePrepared(); !status)
    return status;
  Result<int64_t> bytes = executor->workspaceBytes(options.tokens);
  if (!bytes)
    return bytes.status();
  result.workspaceBytes = *bytes;
  if (Status status = runOnce(); !status)
    return status;
  if (Status status = readOutput(); !status)
    return status;
  result.output = copyTensor("output", getOutput().getView());
  if (options.graph) {
    if (Status status = capture(); !status)
      return status;
    if (Status status = replay(); !status)
      return status;
    if (Status status =
            checkOutput(result, "the output of a replayed graph differs from "
                                "the output of the captured run");
        !status)
      return status;
  }
  if (Status status = compareRuns(result); !status)
    return status;
  if (Status status = time(result); !status)
    return status;
  if (Status status = trace(result); !status)
    return status;
  return options.careful ? readDetails(result) : Status::ok();
}

static moert::PreparedFileOptions describeFile(const RunOptions &options,
                                               Progress &progress) {
  moert::PreparedFileOptions file;
  file.decoderLayer = options.decoderLayer;
  file.step = [&](uint64_t done, uint64_t all) { progress.step(done, all); };
  return file;
}

Status PlanRun::prepare(RunResult &result) {
  if (!options.prepared.empty()) {
    Progress progress("moe-run", "prepared weights are read");
    return executor
        ->bindPrepared(options.prepared, describeFile(options, progress))
        .status();
  }
  Result<moert::PrepareReport> prepared = executor->prepareWeights();
  if (!prepared)
    return prepared.status();
  result.prepare = *prepared;
  return Status::ok();
}

Status PlanRun::writePrepared() {
  if (options.writePrepared.empty())
    return Status::ok();
  Progress progress("moe-run", "prepared weights are written");
  return executor
      ->writePrepared(options.writePrepared, describeFile(options, progress))
      .status();
}

HostTensor &PlanRun::getOutput() {
  return *llvm::find_if(tensors, [](const HostTensor &tensor) {
    return tensor.role == moert::TensorRole::Output;
  });
}

Status PlanRun::launch() {
  return graph ? device.launchGraph(*stream, *graph)
               : executor->run(options.tokens, stream.get());
}

Status PlanRun::time(RunResult &result) {
  bool hasClock = options.isOnGpu() && device.takesMachineCode();
  Result<std::vector<double>> seconds = (hasClock ? timeOnGpu : timeOnHost)(
      device, *executor, *stream, options.repeat, [&] { return launch(); });
  if (!seconds)
    return seconds.status();
  result.seconds = std::move(*seconds);
  if (options.timesAt.empty())
    return Status::ok();
  graph.reset();
  auto parts = PartTimer(device, *executor, *stream, options).run();
  if (!parts)
    return parts.status();
  result.parts = std::move(*parts);
  return Status::ok();
}

Status PlanRun::trace(RunResult &result) {
  if (!options.trace)
    return Status::ok();
  // Lets all ranks begin together.
  if (options.communicator)
    if (Status status = options.communicator->agree("what is run", "trace");
        !status)
      return status;
  auto traced = executor->trace(options.tokens, stream.get());
  if (!traced)
    return traced.status();
  result.traces = {std::move(*traced)};
  return Status::ok();
}

/// Copies tensors into the bound inputs of the same names.
Status PlanRun::copyInputs(const std::vector<HostTensor> &from) {
  for (const HostTensor &tensor : from)
    for (auto [bound, view] : llvm::zip(tensors, views))
      if (bound.name == tensor.name)
        if (Status status =
                device.copyIn(view.data, tensor.data(), tensor.getNumBytes());
            !status)
          return status;
  return Status::ok();
}

Status PlanRun::compareRuns(const RunResult &result) {
  if (options.comparedRuns == 0)
    return Status::ok();
  constexpr int64_t kRunsPerInputs = 50;
  std::vector<HostTensor> given;
  for (const HostTensor &tensor : tensors)
    if (tensor.role == moert::TensorRole::Input)
      given.push_back(copyTensor(tensor.name, tensor.getView()));
  std::vector<const std::vector<HostTensor> *> inputs = {&given};
  llvm::append_range(inputs, options.otherInputs);
  std::vector<RunResult> first(inputs.size());
  first[0].output = copyTensor("output", result.output.getView());
  size_t output = &getOutput() - tensors.data();
  for (int64_t i = 0; i < options.comparedRuns; ++i) {
    if (i == options.skippedRun)
      continue;
    size_t place = size_t(i / kRunsPerInputs) % inputs.size();
    bool isNew = first[place].output.shape.empty();
    if (i % kRunsPerInputs == 0)
      if (Status status = copyInputs(*inputs[place]); !status)
        return status;
    // Fills the output with NaN, so that an unwritten element is noticed.
    Status status = device.fill(*stream, views[output].data, 0xFF,
                                getOutput().getNumBytes());
    // The first run with new inputs is not a replay.
    if (status)
      status = isNew ? executor->run(options.tokens, stream.get()) : launch();
    if (status)
      status = executor->synchronize(*stream);
    if (status)
      status =
          isNew ? readOutput()
                : checkOutput(first[place], "the output differs from that of "
                                            "the first run with equal inputs");
    if (!status)
      return status.withContext("run " + std::to_string(i) + " of " +
                                std::to_string(options.comparedRuns) +
                                ", inputs " + std::to_string(place));
    if (isNew)
      first[place].output = copyTensor("output", getOutput().getView());
  }
  if (Status status = copyInputs(given); !status)
    return status;
  // Restores the result of the given inputs for later steps.
  if (Status status = runOnce(); !status)
    return status;
  return readOutput();
}

/// Adds gaps between the rows of weights that allow it, and copies the tensors
/// to a device with memory of its own.
Status PlanRun::place() {
  // Gives rows the pitch of a view of longer rows.
  constexpr int64_t kGap = 128;
  for (const HostTensor &tensor : tensors) {
    moert::TensorView &view = views.emplace_back(tensor.getView());
    if (!isBound(tensor))
      continue;
    const HostTensor *from = &tensor;
    int64_t index = plan.findTensor(tensor.name);
    if (index >= 0 && plan.tensors[index].strided) {
      if (Status status =
              tensor.spreadRows(kGap, spread.emplace_back(), view.strides);
          !status)
        return status;
      from = &spread.back();
      view.data = from->data();
    }
    if (options.isOnGpu())
      if (Status status = place(*from, view); !status)
        return status.withContext("tensor '" + tensor.name + "'");
  }
  return Status::ok();
}

Status PlanRun::place(const HostTensor &tensor, moert::TensorView &view) {
  Result<std::unique_ptr<moert::Buffer>> buffer =
      device.allocate(tensor.getNumBytes(), moert::kWorkspaceAlignment);
  if (!buffer)
    return buffer.status();
  view.data = (*buffer)->data();
  buffers.push_back(std::move(*buffer));
  if (tensor.role == moert::TensorRole::Output)
    return Status::ok();
  return device.copyIn(view.data, tensor.data(), tensor.getNumBytes());
}

Status PlanRun::start(bool keepAll) {
  Result<std::unique_ptr<moert::Stream>> ownStream = device.createStream();
  if (!ownStream)
    return ownStream.status();
  stream = std::move(*ownStream);
  moert::ExecutorOptions executorOptions;
  executorOptions.keepAll = keepAll;
  executorOptions.poison = options.poison;
  executorOptions.description = options.description;
  executorOptions.dependentLaunches = options.compile.dependentLaunches;
  Result<std::unique_ptr<moert::Executor>> made =
      moert::Executor::create(plan, device, image, executorOptions);
  if (!made)
    return made.status();
  executor = std::move(*made);
  if (options.microBatchesFrom > 0)
    if (Status status = executor->useMicroBatches(options.microBatchesFrom);
        !status)
      return status;
  if (options.communicator)
    if (Status status = executor->useCommunicator(options.communicator);
        !status)
      return status;
  for (auto [tensor, view] : llvm::zip(tensors, views))
    if (isBound(tensor))
      if (Status status = executor->bind(tensor.name, view); !status)
        return status;
  return Status::ok();
}

Status PlanRun::capture() {
  Result<std::unique_ptr<moert::Graph>> captured =
      moert::captureGraph(device, *stream, [&] {
        return executor->run(options.tokens, stream.get());
      });
  if (!captured)
    return captured.status();
  graph = std::move(*captured);
  // Fills the output with NaN, so that an element that the graph does not write
  // is noticed.
  size_t output = &getOutput() - tensors.data();
  return device.fill(*stream, views[output].data, 0xFF,
                     getOutput().getNumBytes());
}

Status PlanRun::replay() {
  if (Status status = device.launchGraph(*stream, *graph); !status)
    return status;
  return executor->synchronize(*stream);
}

Status PlanRun::runOnce() {
  if (Status status = executor->run(options.tokens, stream.get()); !status)
    return status;
  return executor->synchronize(*stream);
}

Status PlanRun::readOutput() {
  HostTensor &output = getOutput();
  const moert::TensorView &view = views[&output - tensors.data()];
  if (view.data == output.data())
    return Status::ok();
  return device.copyOut(output.data(), view.data, output.getNumBytes());
}

Status PlanRun::checkOutput(const RunResult &result,
                            llvm::StringRef otherwise) {
  if (Status status = readOutput(); !status)
    return status;
  const HostTensor &output = getOutput();
  if (output.getNumBytes() > 0 &&
      std::memcmp(output.data(), result.output.data(), output.getNumBytes()) !=
          0)
    return moert::internalError(otherwise.str());
  return Status::ok();
}

/// Runs with a workspace slot per buffer. Equal outputs show that no two
/// buffers that live at the same time share a slot in the plan.
Status PlanRun::readDetails(RunResult &result) {
  graph.reset();
  if (Status status = start(/*keepAll=*/true); !status)
    return status;
  if (Status status = prepare(result); !status)
    return status;
  if (Status status = runOnce(); !status)
    return status;
  if (Status status = checkOutput(
          result, "the output depends on which buffers share a workspace slot: "
                  "'plan-assign-slots' has assigned one slot to buffers that "
                  "are alive at the same time");
      !status)
    return status;
  for (llvm::StringRef name : getDetailNames()) {
    if (plan.findTensor(name.str()) < 0)
      continue;
    Result<moert::TensorView> view = executor->view(name.str());
    if (!view)
      continue;
    HostTensor copy;
    copy.name = name.str();
    copy.dtype = view->dtype;
    copy.shape = view->shape;
    if (Status status = copy.allocate(); !status)
      return status;
    if (Status status =
            device.copyOut(copy.data(), view->data, copy.getNumBytes());
        !status)
      return status;
    result.details.push_back(std::move(copy));
  }
  addExpertCounts(result.details);
  return Status::ok();
}
