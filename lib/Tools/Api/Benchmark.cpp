//===- Benchmark.cpp - times of a layer, for C ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Run/HostTensor.h"
#include "../Run/Timing.h"
#include "Jit/CApi.h"

#include <algorithm>

using namespace moec;
using namespace moec::capi;
using moert::Result;
using moert::Status;

namespace {

/// Runs a clone of a layer on its own tensors.
class Benchmark {
public:
  Benchmark(moert_layer &layer, int64_t tokens, uint64_t seed)
      : device(layer.device), plan(layer.executor->plan()), tokens(tokens),
        seed(seed), isHost(device.checkTarget("cpu")) {}

  Status run(const moert_layer &layer, int repeat, double *seconds);

private:
  Status bindTensors();
  Status capture();
  Status runOnce() {
    return graph ? device.launchGraph(*stream, *graph)
                 : executor->run(tokens, stream.get());
  }

  moert::Device &device;
  const moert::Plan &plan;
  const int64_t tokens;
  const uint64_t seed;
  const bool isHost;
  std::unique_ptr<moert::Stream> stream;
  std::vector<std::unique_ptr<moert::Buffer>> buffers;
  std::unique_ptr<moert::Executor> executor;
  std::unique_ptr<moert::Graph> graph;
};

} // namespace

/// The number of experts that generated ids may name.
static int64_t countExperts(const moert::Plan &plan) {
  int64_t index = plan.findTensor("experts.w13");
  if (index < 0 || plan.tensors[size_t(index)].shape.empty())
    return 1;
  Result<int64_t> count = plan.tensors[size_t(index)].shape[0].evaluate(0);
  return count ? std::max<int64_t>(*count, 1) : 1;
}

/// Gives each token an adapter, all of them in turn, so that the bytes read are
/// those of a full batch.
static void spreadAdapters(const moert::Plan &plan,
                           std::vector<HostTensor> &tensors) {
  int64_t index = plan.findTensor("lora.up_a");
  if (index < 0)
    return;
  Result<int64_t> count = plan.tensors[size_t(index)].shape[0].evaluate(0);
  for (HostTensor &tensor : tensors)
    for (int64_t i = 0;
         count && tensor.name == "adapter_ids" && i < tensor.getNumElements();
         ++i)
      reinterpret_cast<int32_t *>(tensor.data())[i] = int32_t(i % *count);
}

Status Benchmark::bindTensors() {
  Result<std::vector<HostTensor>> allocated = allocateTensors(
      plan, tokens, {moert::TensorRole::Input, moert::TensorRole::Output});
  if (!allocated)
    return allocated.status();
  std::vector<HostTensor> &tensors = *allocated;
  GenerateOptions generate;
  generate.seed = seed;
  generate.numExperts = countExperts(plan);
  if (Status status = generateTensors(tensors, generate); !status)
    return status;
  spreadAdapters(plan, tensors);
  for (const HostTensor &tensor : tensors) {
    Result<std::unique_ptr<moert::Buffer>> buffer =
        device.allocate(tensor.getNumBytes(), moert::kWorkspaceAlignment);
    if (!buffer)
      return buffer.status();
    moert::TensorView view = tensor.getView();
    view.data = (*buffer)->data();
    buffers.push_back(std::move(*buffer));
    if (tensor.role == moert::TensorRole::Input)
      if (Status status =
              device.copyIn(view.data, tensor.data(), tensor.getNumBytes());
          !status)
        return status;
    if (Status status = executor->bind(tensor.name, view); !status)
      return status;
  }
  return Status::ok();
}

Status Benchmark::capture() {
  Result<std::unique_ptr<moert::Graph>> captured =
      moert::captureGraph(device, *stream, [&] { return runOnce(); });
  if (!captured)
    return captured.status();
  graph = std::move(*captured);
  return Status::ok();
}

Status Benchmark::run(const moert_layer &layer, int repeat, double *seconds) {
  if (tokens < 1 || tokens > plan.maxTokens)
    return moert::outOfRange("benchmark: " + std::to_string(tokens) +
                             " tokens; 1 to max_tokens = " +
                             std::to_string(plan.maxTokens) + " are accepted");
  Result<std::unique_ptr<moert::Executor>> clone = layer.executor->clone();
  if (!clone)
    return clone.status();
  executor = std::move(*clone);
  Result<std::unique_ptr<moert::Stream>> made = device.createStream();
  if (!made)
    return made.status();
  stream = std::move(*made);
  if (Status status = bindTensors(); !status)
    return status;
  Result<moert::PrepareReport> prepared = executor->prepareWeights();
  if (!prepared)
    return prepared.status();
  if (Status status = runOnce(); !status)
    return status;
  if (Status status = executor->synchronize(*stream); !status)
    return status;
  if (!isHost)
    if (Status status = capture(); !status)
      return status;
  Result<std::vector<double>> took = (isHost ? timeOnHost : timeOnGpu)(
      device, *executor, *stream, repeat, [&] { return runOnce(); });
  if (!took)
    return took.status();
  std::copy(took->begin(), took->end(), seconds);
  return Status::ok();
}

moert_status *moejit_layer_benchmark(moert_layer *layer, int64_t tokens,
                                     int repeat, uint64_t seed,
                                     double *seconds) {
  MOEJIT_NEEDED(layer);
  MOEJIT_NEEDED(seconds);
  if (repeat < 1)
    return answer(moert::invalidArgument("moejit_layer_benchmark: repeat is " +
                                         std::to_string(repeat) +
                                         "; 1 or more is accepted"));
  std::fill(seconds, seconds + repeat, 0.0);
  return answer(Benchmark(*layer, layer->getGroupTokens(tokens), seed)
                    .run(*layer, repeat, seconds));
}
