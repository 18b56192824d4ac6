//===- RowRun.cpp - timed and checked runs of a row -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowRun.h"

#include "../TryStatus.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

static constexpr int64_t kMinReplays = 5, kMaxReplays = 400;

Result<std::unique_ptr<RowRun>> RowRun::create(Session &session,
                                               LayerOnDevice &layer,
                                               const Row &row, int64_t sets,
                                               std::vector<Routing> routings) {
  std::unique_ptr<RowRun> run(
      new RowRun(session, layer, row, std::move(routings)));
  MOEC_TRY_ASSIGN(run->stream, session.device.createStream());
  for (int64_t i = 0; i < sets; ++i)
    MOEC_TRY(run->addSet());
  MOEC_TRY(session.device.synchronize(*run->stream));
  return run;
}

Status RowRun::addSet() {
  auto index = static_cast<int64_t>(sets.size());
  const LayerSpec &spec = layer.getSpec();
  int64_t count = row.tokens * spec.hiddenSize;
  Set set = {nullptr, nullptr, nullptr, nullptr,
             RandomTensor{RandomStream(static_cast<uint64_t>(index) + 1,
                                       "hidden_states"),
                          reference::getRuntimeType(spec.dtype), getFactor(1)}};
  auto allocate = [&](std::unique_ptr<moert::Buffer> &buffer,
                      int64_t bytes) -> Status {
    MOEC_TRY_ASSIGN(buffer,
                    session.device.allocate(static_cast<size_t>(bytes), 256));
    return Status::ok();
  };
  MOEC_TRY(allocate(set.hidden, 2 * count));
  MOEC_TRY(allocate(set.output, 2 * count));
  MOEC_TRY(session.generator.write(*stream, set.random, 0, count,
                                   set.hidden->data()));
  if (spec.entry == Entry::Ids) {
    const Routing &routing = routings[index];
    size_t bytes = routing.ids.size() * sizeof(int32_t);
    MOEC_TRY(allocate(set.ids, static_cast<int64_t>(bytes)));
    MOEC_TRY(allocate(set.weights, static_cast<int64_t>(bytes)));
    MOEC_TRY(copyRouting(set, routing));
  }
  sets.push_back(std::move(set));
  return Status::ok();
}

Status RowRun::copyRouting(const Set &set, const Routing &routing) {
  size_t bytes = routing.ids.size() * sizeof(int32_t);
  MOEC_TRY(session.device.copyIn(set.ids->data(), routing.ids.data(), bytes));
  return session.device.copyIn(set.weights->data(), routing.weights.data(),
                               bytes);
}

Status RowRun::setRoutings(std::vector<Routing> given) {
  routings = std::move(given);
  samples.clear();
  for (auto [set, routing] : llvm::zip(sets, routings))
    MOEC_TRY(copyRouting(set, routing));
  return Status::ok();
}

Status RowRun::start(int64_t index) {
  const Set &set = sets[index];
  const LayerSpec &spec = layer.getSpec();
  moert::Executor &executor = layer.getExecutor();
  std::vector<int64_t> wide = {row.tokens, spec.hiddenSize};
  moert::DType dtype = reference::getRuntimeType(spec.dtype);
  MOEC_TRY(
      executor.bind("hidden_states", {set.hidden->data(), dtype, wide, {}}));
  MOEC_TRY(executor.bind("output", {set.output->data(), dtype, wide, {}}));
  if (set.ids) {
    std::vector<int64_t> narrow = {row.tokens, spec.topK};
    MOEC_TRY(executor.bind("topk_ids",
                           {set.ids->data(), moert::DType::I32, narrow, {}}));
    MOEC_TRY(executor.bind(
        "topk_weights", {set.weights->data(), moert::DType::F32, narrow, {}}));
  }
  return executor.run(row.tokens, stream.get());
}

Status RowRun::runAll() {
  for (auto [i, set] : llvm::enumerate(sets)) {
    // NaN marks elements that a run does not write.
    MOEC_TRY(session.device.fill(*stream, set.output->data(), 0xFF,
                                 set.output->size()));
    MOEC_TRY(start(static_cast<int64_t>(i)));
  }
  return session.device.synchronize(*stream);
}

Status RowRun::capture() {
  MOEC_TRY_ASSIGN(graph, moert::captureGraph(session.device, *stream, [&] {
                    for (int64_t i = 0; i < getNumSets(); ++i)
                      MOEC_TRY(start(i));
                    return Status::ok();
                  }));
  return Status::ok();
}

/// Seconds of each of `count` replays, in order.
Result<std::vector<double>>
RowRun::replay(int64_t count, llvm::function_ref<void()> meanwhile) {
  moert::Device &device = session.device;
  std::vector<std::unique_ptr<moert::Event>> events(count + 1);
  for (std::unique_ptr<moert::Event> &event : events)
    MOEC_TRY_ASSIGN(event, device.createTimedEvent());
  MOEC_TRY(device.record(*stream, *events[0]));
  for (int64_t i = 1; i <= count; ++i) {
    MOEC_TRY(device.launchGraph(*stream, *graph));
    MOEC_TRY(device.record(*stream, *events[i]));
  }
  meanwhile();
  MOEC_TRY(device.synchronize(*stream));
  std::vector<double> times(count);
  for (int64_t i = 0; i < count; ++i)
    MOEC_TRY_ASSIGN(times[i],
                    device.elapsedSeconds(*events[i], *events[i + 1]));
  return times;
}

static double getMedian(std::vector<double> values) {
  llvm::sort(values);
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half]
                           : (values[half - 1] + values[half]) / 2;
}

Result<Observation> RowRun::observe(double seconds) {
  if (!graph)
    return moert::internalError("no graph has been captured");
  std::vector<double> times;
  MOEC_TRY_ASSIGN(times, replay(2, [] {}));
  auto count = std::clamp(static_cast<int64_t>(seconds / times.back()),
                          kMinReplays, kMaxReplays);
  MOEC_TRY_ASSIGN(times, replay(count, [] {}));
  return Observation{getMedian(times) / static_cast<double>(getNumSets()),
                     count};
}

Result<Observation> RowRun::sustain(double seconds,
                                    llvm::function_ref<void()> meanwhile) {
  if (!graph)
    return moert::internalError("no graph has been captured");
  std::vector<double> times;
  MOEC_TRY_ASSIGN(times, replay(2, [] {}));
  auto count = std::max(static_cast<int64_t>(std::ceil(seconds / times.back())),
                        kMinReplays);
  MOEC_TRY_ASSIGN(times, replay(count, meanwhile));
  times.erase(times.begin(), times.begin() + count / 2);
  return Observation{getMedian(times) / static_cast<double>(getNumSets()),
                     count};
}
