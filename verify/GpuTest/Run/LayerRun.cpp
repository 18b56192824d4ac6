//===- LayerRun.cpp - runs a layer on the device ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerRun.h"

#include "Tools/OnDevice/RuntimeType.h"
#include "llvm/ADT/STLExtras.h"

using namespace moec;
using namespace moec::gputest;
using moert::Result;
using moert::Status;

#define RETURN_IF_FAILED(expression)                                           \
  do {                                                                         \
    if (Status failed = (expression); !failed)                                 \
      return failed;                                                           \
  } while (false)

Result<LoadedLayer> LoadedLayer::load(moert::Device &device,
                                      const LoadableLayer &layer) {
  LoadedLayer loaded;
  for (bool isInspected : {false, true}) {
    moert::ExecutorOptions options;
    options.keepAll = options.poison = isInspected;
    Result<std::unique_ptr<moert::Executor>> executor =
        moert::Executor::create(layer.plan, device, layer.image, options);
    if (!executor)
      return executor.status();
    (isInspected ? loaded.inspected : loaded.executor) = std::move(*executor);
  }
  return loaded;
}

Result<std::unique_ptr<LayerRun>>
LayerRun::create(moert::Device &device, DeviceGenerator &generator,
                 LoadedLayer layer, const Inputs &inputs, int64_t pitch) {
  std::unique_ptr<LayerRun> run(
      new LayerRun(device, generator, std::move(layer), inputs, pitch));
  Result<std::unique_ptr<moert::Stream>> stream = device.createStream();
  if (!stream)
    return stream.status();
  run->stream = std::move(*stream);
  for (const InputTensor &tensor : inputs.getTensors())
    RETURN_IF_FAILED(run->place(tensor));
  RETURN_IF_FAILED(run->placeOutputs());
  moert::Executor &executor = *run->layer.executor;
  RETURN_IF_FAILED(run->start(executor));
  Result<int64_t> bytes = executor.workspaceBytes(run->tokens);
  if (!bytes)
    return bytes.status();
  Result<GuardedBuffer> workspace =
      GuardedBuffer::create(device, "workspace", static_cast<size_t>(*bytes));
  if (!workspace)
    return workspace.status();
  run->workspace = run->buffers.size();
  run->buffers.push_back(std::move(*workspace));
  return run;
}

Status LayerRun::fill(const InputTensor &tensor, const GuardedBuffer &buffer) {
  const HostTensor &host = tensor.host;
  if (!tensor.random)
    return buffer.size() == 0
               ? Status::ok()
               : device.copyIn(buffer.data(), host.data(), buffer.size());
  // Padding stays NaN, so that a kernel that uses it is detected.
  if (pitch > 0)
    RETURN_IF_FAILED(device.fill(*stream, buffer.data(), 0xFF, buffer.size()));
  return generator.write(*stream, *tensor.random, 0, host.getNumElements(),
                         buffer.data(), host.shape.back(), pitch);
}

Status LayerRun::place(const InputTensor &tensor) {
  moert::TensorView view = {nullptr, tensor.host.dtype, tensor.host.shape, {}};
  size_t bytes = tensor.host.getNumBytes();
  if (tensor.random && pitch > 0) {
    int64_t stride = 1;
    view.strides.resize(view.shape.size());
    for (size_t i = view.shape.size(); i-- > 0;) {
      view.strides[i] = stride;
      stride *= view.shape[i] + (i + 1 == view.shape.size() ? pitch : 0);
    }
    bytes = static_cast<size_t>(stride * moert::dtypeBits(view.dtype) / 8);
  }
  Result<GuardedBuffer> buffer =
      GuardedBuffer::create(device, tensor.host.name, bytes);
  if (!buffer)
    return buffer.status();
  view.data = buffer->data();
  views[tensor.host.name] = view;
  buffers.push_back(std::move(*buffer));
  return fill(tensor, buffers.back());
}

Status LayerRun::placeOutputs() {
  output = buffers.size();
  for (const TensorInfo &info : getTensorSignature(inputs.getSpec())) {
    if (info.role != TensorRole::Output)
      continue;
    Result<moert::DType> type = getRuntimeType(info);
    if (!type)
      return type.status();
    moert::TensorView view = {nullptr, *type, info.shape, {}};
    if (view.shape[0] == kTokenDimension)
      view.shape[0] = tokens;
    int64_t elements = 1;
    for (int64_t size : view.shape)
      elements *= size;
    Result<GuardedBuffer> buffer = GuardedBuffer::create(
        device, info.name,
        static_cast<size_t>(elements * moert::dtypeBits(*type) / 8));
    if (!buffer)
      return buffer.status();
    view.data = buffer->data();
    buffers.push_back(std::move(*buffer));
    views[info.name] = view;
  }
  return Status::ok();
}

Status LayerRun::start(moert::Executor &executor) {
  // The weights were generated on another stream.
  RETURN_IF_FAILED(device.synchronize(*stream));
  for (const auto &[name, view] : views)
    RETURN_IF_FAILED(executor.bind(name, view));
  Result<moert::PrepareReport> prepared = executor.prepareWeights();
  if (!prepared)
    return prepared.status();
  return executor.synchronize();
}

Status LayerRun::poison() {
  for (size_t i = output; i <= workspace; ++i)
    if (buffers[i].size() > 0)
      RETURN_IF_FAILED(
          device.fill(*stream, buffers[i].data(), 0xFF, buffers[i].size()));
  return Status::ok();
}

Status LayerRun::run() {
  RETURN_IF_FAILED(poison());
  RETURN_IF_FAILED(
      layer.executor->run(tokens,
                          {buffers[workspace].data(),
                           static_cast<int64_t>(buffers[workspace].size())},
                          stream.get()));
  return device.synchronize(*stream);
}

Result<Bytes> LayerRun::readOutput() {
  Bytes bytes(buffers[output].size());
  if (!bytes.empty())
    RETURN_IF_FAILED(
        device.copyOut(bytes.data(), buffers[output].data(), bytes.size()));
  return bytes;
}

Result<Bytes> LayerRun::readRecords() {
  Bytes all;
  for (size_t i = output + 1; i < workspace; ++i) {
    size_t first = all.size();
    all.resize(first + buffers[i].size());
    if (buffers[i].size() > 0)
      RETURN_IF_FAILED(device.copyOut(all.data() + first, buffers[i].data(),
                                      buffers[i].size()));
  }
  return all;
}

Status LayerRun::checkGuards() const {
  for (const GuardedBuffer &buffer : buffers)
    RETURN_IF_FAILED(buffer.check());
  return Status::ok();
}

Status LayerRun::spoilGuard() {
  uint8_t byte = 0;
  return device.copyIn(buffers[workspace].getGuardBehind() + 7, &byte, 1);
}

Status LayerRun::update(const HostTensor &tensor) {
  if (tensor.getNumBytes() == 0)
    return Status::ok();
  return device.copyIn(views.at(tensor.name).data, tensor.data(),
                       tensor.getNumBytes());
}

Status LayerRun::capture() {
  Result<std::unique_ptr<moert::Graph>> captured =
      moert::captureGraph(device, *stream, [&] {
        return layer.executor->run(
            tokens,
            {buffers[workspace].data(),
             static_cast<int64_t>(buffers[workspace].size())},
            stream.get());
      });
  if (!captured)
    return captured.status();
  graph = std::move(*captured);
  return Status::ok();
}

Status LayerRun::replay() {
  if (!graph)
    return moert::internalError("no graph has been captured");
  RETURN_IF_FAILED(poison());
  RETURN_IF_FAILED(device.launchGraph(*stream, *graph));
  return device.synchronize(*stream);
}

Result<std::vector<double>> LayerRun::time(int64_t count) {
  if (!graph)
    return moert::internalError("no graph has been captured");
  std::vector<std::unique_ptr<moert::Event>> events;
  for (int64_t i = 0; i <= count; ++i) {
    Result<std::unique_ptr<moert::Event>> event = device.createTimedEvent();
    if (!event)
      return event.status();
    events.push_back(std::move(*event));
  }
  RETURN_IF_FAILED(device.record(*stream, *events[0]));
  for (int64_t i = 1; i <= count; ++i) {
    RETURN_IF_FAILED(device.launchGraph(*stream, *graph));
    RETURN_IF_FAILED(device.record(*stream, *events[i]));
  }
  RETURN_IF_FAILED(device.synchronize(*stream));
  std::vector<double> times;
  for (int64_t i = 1; i <= count; ++i) {
    Result<double> seconds = device.elapsedSeconds(*events[i - 1], *events[i]);
    if (!seconds)
      return seconds.status();
    times.push_back(*seconds);
  }
  llvm::sort(times);
  return times;
}

Status LayerRun::runInspected() {
  bool wasPrepared = !layer.executor->plan().prepare.empty();
  graph.reset();
  layer.executor.reset();
  // Preparation may have overwritten weights in place.
  if (wasPrepared)
    for (auto [tensor, buffer] : llvm::zip(inputs.getTensors(), buffers))
      RETURN_IF_FAILED(fill(tensor, buffer));
  RETURN_IF_FAILED(start(*layer.inspected));
  RETURN_IF_FAILED(poison());
  RETURN_IF_FAILED(layer.inspected->run(tokens, stream.get()));
  return device.synchronize(*stream);
}

Result<std::optional<HostTensor>> LayerRun::inspect(const std::string &name) {
  if (layer.inspected->plan().findTensor(name) < 0)
    return std::optional<HostTensor>();
  Result<moert::TensorView> view = layer.inspected->view(name);
  if (!view)
    return std::optional<HostTensor>();
  HostTensor copy;
  copy.name = name;
  copy.dtype = view->dtype;
  copy.shape = view->shape;
  RETURN_IF_FAILED(copy.allocate());
  if (copy.getNumBytes() > 0)
    RETURN_IF_FAILED(
        device.copyOut(copy.data(), view->data, copy.getNumBytes()));
  return std::optional<HostTensor>(std::move(copy));
}
