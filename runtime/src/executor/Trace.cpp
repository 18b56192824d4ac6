//===- Trace.cpp - measures the steps of a run ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "LatestRun.h"
#include "Workspaces.h"
#include "moert/Executor.h"

#include <chrono>

namespace moert {

namespace {

/// Takes times before and after steps.
class StepClock {
public:
  virtual ~StepClock() = default;
  virtual Status begin(Stream &first) = 0;
  virtual Status mark(Stream &stream) = 0;
  /// Seconds from begin() to each mark, in the order of the marks.
  virtual Result<std::vector<double>> read() = 0;
};

/// Events of the device, which do not delay streams.
class DeviceClock final : public StepClock {
public:
  explicit DeviceClock(Device &device) : device(device) {}

  Status begin(Stream &first) override { return mark(first); }

  Status mark(Stream &stream) override {
    Result<std::unique_ptr<Event>> event = device.createTimedEvent();
    if (!event)
      return event.status();
    events.push_back(std::move(*event));
    return device.record(stream, *events.back());
  }

  Result<std::vector<double>> read() override {
    std::vector<double> seconds;
    for (size_t i = 1; i < events.size(); ++i) {
      Result<double> since = device.elapsedSeconds(*events[0], *events[i]);
      if (!since)
        return since.status();
      seconds.push_back(*since);
    }
    return seconds;
  }

private:
  Device &device;
  std::vector<std::unique_ptr<Event>> events;
};

/// The clock of this process: waits after each step.
class ProcessClock final : public StepClock {
public:
  explicit ProcessClock(Executor &executor) : executor(executor) {}

  Status begin(Stream &first) override {
    Status status = executor.synchronize(first);
    start = std::chrono::steady_clock::now();
    return status;
  }

  Status mark(Stream &stream) override {
    Status status = executor.synchronize(stream);
    std::chrono::duration<double> since =
        std::chrono::steady_clock::now() - start;
    seconds.push_back(since.count());
    return status;
  }

  Result<std::vector<double>> read() override { return seconds; }

private:
  Executor &executor;
  std::chrono::steady_clock::time_point start;
  std::vector<double> seconds;
};

} // namespace

Result<std::vector<TracedStep>> Executor::trace(int64_t tokens,
                                                Stream *stream) {
  Device &device = layer->device;
  Stream &first = stream ? *stream : latest->streams().first();
  // Warm up: the first run for a token count has extra work.
  MOERT_CHECK(run(tokens, stream));
  MOERT_CHECK(synchronize(first));
  std::unique_ptr<StepClock> clock;
  if (device.createTimedEvent())
    clock = std::make_unique<DeviceClock>(device);
  else
    clock = std::make_unique<ProcessClock>(*this);
  std::vector<TracedStep> traced;
  GiveStep give = [&](const ResolvedRun &run, size_t i,
                      const RunStreams &streams, Stream &own) {
    const ResolvedStep &step = run.steps[i];
    Stream &stream = streams.find(step.stream, own);
    bool isTraced = run.isExchange(step) ||
                    (step.kind == Step::Kind::Launch && !run.isLeftOut(step));
    if (isTraced)
      MOERT_CHECK(clock->mark(stream));
    MOERT_CHECK(run.enqueueStep(i, streams, own));
    if (!isTraced)
      return Status::ok();
    MOERT_CHECK(clock->mark(stream));
    traced.push_back(run.describe(i));
    return Status::ok();
  };
  MOERT_CHECK(clock->begin(first));
  Result<StreamState> state = device.inspect(first);
  if (!state)
    return state.status();
  MOERT_CHECK(workspaces->orderOfRuns().run(
      first, *state, [&] { return latest->giveSteps(first, give); }));
  MOERT_CHECK(synchronize(first));
  Result<std::vector<double>> seconds = clock->read();
  if (!seconds)
    return seconds.status();
  for (size_t i = 0; i < traced.size(); ++i) {
    traced[i].begin = (*seconds)[2 * i];
    traced[i].end = (*seconds)[2 * i + 1];
  }
  return traced;
}

} // namespace moert
