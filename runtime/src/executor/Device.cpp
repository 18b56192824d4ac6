//===- Device.cpp - the interface of a device -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Device.h"
#include "../support/Check.h"

namespace moert {

Buffer::~Buffer() = default;
Kernel::~Kernel() = default;
Module::~Module() = default;
Stream::~Stream() = default;
Event::~Event() = default;
Graph::~Graph() = default;
Device::~Device() = default;

std::string Device::architecture() const { return {}; }

int64_t Device::multiprocessors() const { return 0; }

int Device::numThreads() const { return 0; }

Status Device::setNumThreads(int) {
  return invalidArgument("setNumThreads: '" + name() +
                         "' runs no kernels on threads of the process");
}

int64_t Device::memoryBytes() const { return 0; }

bool Device::takesMachineCode() const { return true; }

Result<std::unique_ptr<Stream>> Device::wrapStream(void *) {
  return unavailable("stream: " + name() +
                     " has none of the caller's; give MOERT_LAYER_STREAM");
}

Result<std::unique_ptr<Event>> Device::createTimedEvent() {
  return unavailable("createTimedEvent: " + name() +
                     " has no clock; measure times on the host");
}

Result<double> Device::elapsedSeconds(Event &, Event &) {
  return unavailable("elapsedSeconds: " + name() +
                     " has no clock; measure times on the host");
}

Status Device::copyRows(Stream &, const RowCopy &) {
  return unavailable("copyRows: " + name() +
                     " does not copy rows; copy by way of the host");
}

Status Device::checkAddress(const void *) const { return Status::ok(); }

Status Device::checkResident(Kernel &, const LaunchDims &) {
  return Status::ok();
}

Status DeviceWithoutGraphs::beginCapture(Stream &) {
  return unavailable("beginCapture: " + name() + " has no graphs; run without");
}

Result<std::unique_ptr<Graph>> DeviceWithoutGraphs::endCapture(Stream &) {
  return unavailable("endCapture: " + name() + " has no graphs; run without");
}

Result<StreamState> DeviceWithoutGraphs::inspect(Stream &) {
  return StreamState();
}

Result<bool> Device::isCapturing(Stream &stream) {
  Result<StreamState> state = inspect(stream);
  if (!state)
    return state.status();
  return state->capture.has_value();
}

Status DeviceWithoutGraphs::retain(Stream &, std::shared_ptr<const void>) {
  return unavailable("retain: " + name() + " has no graphs; run without");
}

Status DeviceWithoutGraphs::launchGraph(Stream &, Graph &) {
  return unavailable("launchGraph: " + name() + " has no graphs; run without");
}

Result<std::unique_ptr<Graph>>
captureGraph(Device &device, Stream &stream,
             const std::function<Status()> &body) {
  MOERT_CHECK(device.beginCapture(stream));
  Status captured = body();
  // End the capture in any case, or the stream would stay in it.
  Result<std::unique_ptr<Graph>> graph = device.endCapture(stream);
  MOERT_CHECK(captured);
  return graph;
}

const char *moduleImageKindName(ModuleImage::Kind kind) {
  switch (kind) {
  case ModuleImage::Kind::HostFunctions:
    return "host functions";
  case ModuleImage::Kind::Cubin:
    return "cubin";
  case ModuleImage::Kind::Ptx:
    return "PTX";
  }
  return "unknown";
}

} // namespace moert
