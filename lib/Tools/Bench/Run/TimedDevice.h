//===- TimedDevice.h - a device that times its launches ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_TIMEDDEVICE_H
#define MOEC_LIB_TOOLS_BENCH_RUN_TIMEDDEVICE_H

#include "moert/Device.h"

namespace moec::bench {

/// A device that forwards to another one. Between startTiming() and
/// stopTiming() it records an event before and after each launch.
class TimedDevice : public moert::Device {
public:
  explicit TimedDevice(moert::Device &device) : device(device) {}

  struct Launch {
    std::string kernel;
    std::unique_ptr<moert::Event> begin, end;
  };

  void startTiming() { isTiming = true; }
  /// Until stopApart() no launch begins before the previous one has ended.
  void startApart() { isApart = true; }
  void stopApart() { isApart = false; }
  /// Returns the launches since startTiming() in order; their events are
  /// complete once their streams are.
  std::vector<Launch> stopTiming() {
    isTiming = false;
    return std::move(launches);
  }

  const std::string &name() const override { return device.name(); }
  std::string architecture() const override { return device.architecture(); }
  int64_t multiprocessors() const override { return device.multiprocessors(); }
  int64_t memoryBytes() const override { return device.memoryBytes(); }
  int numThreads() const override { return device.numThreads(); }
  moert::Status setNumThreads(int numThreads) override {
    return device.setNumThreads(numThreads);
  }
  bool takesMachineCode() const override { return device.takesMachineCode(); }
  moert::Status checkTarget(const std::string &target) const override {
    return device.checkTarget(target);
  }
  moert::Result<std::unique_ptr<moert::Buffer>>
  allocate(size_t bytes, size_t alignment) override {
    return device.allocate(bytes, alignment);
  }
  moert::Status copyIn(void *to, const void *from, size_t bytes) override {
    return device.copyIn(to, from, bytes);
  }
  moert::Status copyOut(void *to, const void *from, size_t bytes) override {
    return device.copyOut(to, from, bytes);
  }
  moert::Status fill(moert::Stream &stream, void *to, uint8_t value,
                     size_t bytes) override {
    return device.fill(stream, to, value, bytes);
  }
  moert::Status copyRows(moert::Stream &stream,
                         const moert::RowCopy &rows) override {
    return device.copyRows(stream, rows);
  }
  moert::Result<std::unique_ptr<moert::Module>>
  loadModule(const moert::ModuleImage &image) override {
    return device.loadModule(image);
  }
  moert::Result<std::unique_ptr<moert::Stream>> createStream() override {
    return device.createStream();
  }
  moert::Result<std::unique_ptr<moert::Stream>>
  wrapStream(void *native) override {
    return device.wrapStream(native);
  }
  moert::Result<std::unique_ptr<moert::Event>> createEvent() override {
    return device.createEvent();
  }
  moert::Result<std::unique_ptr<moert::Event>> createTimedEvent() override {
    return device.createTimedEvent();
  }
  moert::Result<double> elapsedSeconds(moert::Event &from,
                                       moert::Event &to) override {
    return device.elapsedSeconds(from, to);
  }
  moert::Status checkAddress(const void *address) const override {
    return device.checkAddress(address);
  }
  moert::Status checkResident(moert::Kernel &kernel,
                              const moert::LaunchDims &dims) override {
    return device.checkResident(kernel, dims);
  }
  moert::Status launch(moert::Stream &stream, moert::Kernel &kernel,
                       const moert::LaunchDims &dims,
                       const moert::LaunchArgs &args) override;
  moert::Status record(moert::Stream &stream, moert::Event &event) override {
    return device.record(stream, event);
  }
  moert::Status wait(moert::Stream &stream, moert::Event &event) override {
    return device.wait(stream, event);
  }
  moert::Status synchronize(moert::Stream &stream) override {
    return device.synchronize(stream);
  }
  moert::Status beginCapture(moert::Stream &stream) override {
    return device.beginCapture(stream);
  }
  moert::Result<std::unique_ptr<moert::Graph>>
  endCapture(moert::Stream &stream) override {
    return device.endCapture(stream);
  }
  moert::Result<moert::StreamState> inspect(moert::Stream &stream) override {
    return device.inspect(stream);
  }
  moert::Status retain(moert::Stream &stream,
                       std::shared_ptr<const void> owned) override {
    return device.retain(stream, std::move(owned));
  }
  moert::Status launchGraph(moert::Stream &stream,
                            moert::Graph &graph) override {
    return device.launchGraph(stream, graph);
  }
  moert::Result<moert::TensorMap>
  encodeTensorMap(const moert::TensorMapRecipe &recipe) override {
    return device.encodeTensorMap(recipe);
  }

private:
  moert::Device &device;
  bool isTiming = false, isApart = false;
  std::vector<Launch> launches;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_TIMEDDEVICE_H
