//===- Trace.cpp - measures the steps of a run ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "MicroBatches.h"
#include "RunOrder.h"
#include "moert/Executor.h"

#include <algorithm>
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

TracedStep Executor::describeStep(size_t step) const {
  const Step &given =
      thePlan->variants[thePlan->findVariant(lastTokens)].steps[step];
  std::string name = halfPrefix() + nameOf(given, *thePlan);
  // Later collectives may read copied rows, so only the gather itself is
  // marked.
  if (given.toResults &&
      std::any_of(given.args.begin(), given.args.end(),
                  [&](const Argument &arg) { return isCopied[arg.tensor]; }))
    name += " (rows copied)";
  int64_t firstStream = half && *half == 1 ? thePlan->numStreams : 0;
  return {std::move(name), firstStream + given.stream};
}

Result<std::vector<TracedStep>> Executor::trace(int64_t tokens,
                                                Stream *stream) {
  Stream &first = stream ? *stream : *streams[0];
  // Warm up: the first run for a token count has extra work.
  MOERT_CHECK(run(tokens, stream));
  MOERT_CHECK(synchronize(first));
  std::unique_ptr<StepClock> clock;
  if (device.createTimedEvent())
    clock = std::make_unique<DeviceClock>(device);
  else
    clock = std::make_unique<ProcessClock>(*this);
  std::vector<TracedStep> traced;
  GiveStep give = [&](Executor &executor, size_t i, Stream &own) {
    const ResolvedStep &step = executor.resolved[i];
    Stream &stream = executor.streamOf(step, own);
    bool isTraced =
        executor.isExchanged(step) ||
        (step.kind == Step::Kind::Launch && !executor.isLeftOut(step));
    if (isTraced)
      MOERT_CHECK(clock->mark(stream));
    MOERT_CHECK(executor.runStep(step, own));
    if (!isTraced)
      return Status::ok();
    MOERT_CHECK(clock->mark(stream));
    traced.push_back(executor.describeStep(i));
    return Status::ok();
  };
  MOERT_CHECK(clock->begin(first));
  Result<StreamState> state = device.inspect(first);
  if (!state)
    return state.status();
  MOERT_CHECK(orderOfRuns().run(first, *state, [&]() -> Status {
    if (runsHalves)
      return halves->giveSteps(first, give);
    for (size_t i = 0; i < resolved.size(); ++i)
      MOERT_CHECK(give(*this, i, first));
    return Status::ok();
  }));
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
