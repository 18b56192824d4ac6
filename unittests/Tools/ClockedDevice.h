//===- ClockedDevice.h - a simulated device with a clock --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TOOLS_CLOCKEDDEVICE_H
#define MOEC_UNITTESTS_TOOLS_CLOCKEDDEVICE_H

#include "Tools/Bench/Run/TimedDevice.h"

#include <algorithm>
#include <functional>
#include <set>

namespace moec::testing {

constexpr double kTick = 1e-2;

class TickEvent : public moert::Event {
public:
  int64_t tick = -1;
};

class RecordedGraph : public moert::Graph {
public:
  std::vector<std::function<moert::Status()>> launches;
  std::vector<std::shared_ptr<const void>> owned;
  bool hasRun = false;
};

/// The simulated device with graphs, and a clock that ticks with each launch.
class ClockedDevice : public bench::TimedDevice {
public:
  explicit ClockedDevice(moert::Device &inner)
      : TimedDevice(inner), inner(inner) {}

  int64_t tick = 0, numReplays = 0;
  /// Dependent launches outside of graphs.
  int64_t numDependent = 0;

  moert::Result<std::unique_ptr<moert::Buffer>>
  allocate(size_t bytes, size_t alignment) override {
    // Large buffers only keep a real device busy, so a small one suffices.
    return inner.allocate(std::min(bytes, size_t(1) << 20), alignment);
  }

  moert::Status launch(moert::Stream &stream, moert::Kernel &kernel,
                       const moert::LaunchDims &dims,
                       const moert::LaunchArgs &args) override {
    if (!graph) {
      ++tick;
      numDependent += dims.dependent;
      return inner.launch(stream, kernel, dims, args);
    }
    std::vector<uint64_t> slots(args.slots, args.slots + args.numSlots);
    std::vector<moert::TensorMap> maps(args.maps, args.maps + args.numMaps);
    graph->launches.push_back([=, &stream, &kernel] {
      ++tick;
      return inner.launch(
          stream, kernel, dims,
          {slots.data(), slots.size(), maps.data(), maps.size()});
    });
    return moert::Status::ok();
  }
  moert::Result<std::unique_ptr<moert::Event>> createTimedEvent() override {
    return std::unique_ptr<moert::Event>(new TickEvent());
  }
  moert::Status record(moert::Stream &stream, moert::Event &event) override {
    if (auto *timed = dynamic_cast<TickEvent *>(&event)) {
      timed->tick = tick;
      return moert::Status::ok();
    }
    if (graph)
      recorded.insert(&event);
    return inner.record(stream, event);
  }
  /// As in CUDA, captured work waits for captured work alone.
  moert::Status wait(moert::Stream &stream, moert::Event &event) override {
    if (graph && recorded.count(&event) == 0)
      return moert::invalidArgument("wait: the event was recorded elsewhere");
    return inner.wait(stream, event);
  }
  moert::Result<double> elapsedSeconds(moert::Event &from,
                                       moert::Event &to) override {
    return kTick * static_cast<double>(static_cast<TickEvent &>(to).tick -
                                       static_cast<TickEvent &>(from).tick);
  }
  moert::Status beginCapture(moert::Stream &) override {
    graph = std::make_unique<RecordedGraph>();
    ++numCaptures;
    recorded.clear();
    return moert::Status::ok();
  }
  moert::Result<moert::StreamState> inspect(moert::Stream &) override {
    return moert::StreamState{0, graph ? std::optional<uint64_t>(numCaptures)
                                       : std::nullopt};
  }
  moert::Status retain(moert::Stream &,
                       std::shared_ptr<const void> owned) override {
    graph->owned.push_back(std::move(owned));
    return moert::Status::ok();
  }
  moert::Result<std::unique_ptr<moert::Graph>>
  endCapture(moert::Stream &) override {
    return std::unique_ptr<moert::Graph>(std::move(graph));
  }
  moert::Status launchGraph(moert::Stream &, moert::Graph &captured) override {
    ++numReplays;
    auto &recorded = static_cast<RecordedGraph &>(captured);
    // Repeating a graph takes the simulator long and changes nothing.
    if (recorded.hasRun) {
      tick += static_cast<int64_t>(recorded.launches.size());
      return moert::Status::ok();
    }
    recorded.hasRun = true;
    for (auto &launch : recorded.launches)
      if (moert::Status status = launch(); !status)
        return status;
    return moert::Status::ok();
  }

private:
  moert::Device &inner;
  std::unique_ptr<RecordedGraph> graph;
  uint64_t numCaptures = 0;
  /// Events of the capture.
  std::set<moert::Event *> recorded;
};

} // namespace moec::testing

#endif // MOEC_UNITTESTS_TOOLS_CLOCKEDDEVICE_H
