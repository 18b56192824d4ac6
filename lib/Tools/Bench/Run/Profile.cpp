//===- Profile.cpp - times of the launches of a row -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Profile.h"

#include "../TryStatus.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <set>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

namespace {

/// Fills of a buffer of this size keep the device busy while launches are
/// enqueued.
constexpr size_t kBusyBytes = size_t(1) << 30;
constexpr int kBusyFills = 3;
constexpr double kGraphSeconds = 0.2;

/// The least bytes and operations of a launch.
class KernelWork {
public:
  KernelWork(const moert::Plan &plan, const BenchLayer &layer, const Row &row,
             const Work &work)
      : plan(plan), layer(layer), row(row), work(work) {}

  void count(const moert::Step &step, KernelProfile &profile) const {
    std::set<int64_t> tensors;
    for (const moert::Argument &argument : step.args)
      if (argument.kind == moert::Argument::Kind::Tensor)
        tensors.insert(argument.tensor);
    for (int64_t index : tensors)
      count(plan.tensors[index], profile);
  }

private:
  void count(const moert::TensorDecl &decl, KernelProfile &profile) const {
    double elements = 1, inner = 1;
    std::vector<int64_t> shape;
    for (const moert::Expr &size : decl.shape)
      shape.push_back(*size.evaluate(row.tokens));
    for (auto [i, size] : llvm::enumerate(shape)) {
      elements *= static_cast<double>(size);
      if (i > 0)
        inner *= static_cast<double>(size);
    }
    bool isWeight = decl.role == moert::TensorRole::Weight ||
                    decl.role == moert::TensorRole::Prepared;
    bool isScale = llvm::StringRef(decl.name).ends_with("_scale");
    if (isWeight && shape.size() == 3 && shape[0] == layer.localExperts) {
      elements = work.experts * inner;
      if (!isScale)
        profile.operations += 2 * work.rows * inner;
    } else if (isWeight && shape.size() == 2) {
      profile.operations += 2 * static_cast<double>(row.tokens) * elements;
    } else if (!isWeight && shape.size() == 2 &&
               shape[0] == row.tokens * layer.topK) {
      // A row per valid slot.
      elements = work.rows * inner;
    }
    profile.bytes += elements * moert::dtypeBits(decl.dtype) / 8;
  }

  const moert::Plan &plan;
  const BenchLayer &layer;
  const Row &row;
  const Work &work;
};

class Profiler {
public:
  Profiler(Session &session, LayerOnDevice &layer, RowRun &run, const Row &row)
      : session(session), layer(layer), run(run), row(row) {}

  Result<RowProfile> profile(int64_t numSamples) {
    MOEC_TRY(describe());
    if (numSamples == 0) {
      MOEC_TRY(runApart());
      return std::move(result);
    }
    if (!session.hasClock)
      return std::move(result);
    MOEC_TRY_ASSIGN(busy, session.device.allocate(kBusyBytes, 256));
    int64_t sets = run.getNumSets();
    int64_t repeats = (numSamples + sets - 1) / sets;
    for (int64_t i = 0; i < repeats * sets; ++i)
      MOEC_TRY(sample(i % sets));
    for (auto [i, times] : llvm::enumerate(samples))
      result.kernels[i].seconds = getMedian(times);
    result.emptySeconds = getMedian(empty);
    busy.reset();
    MOEC_TRY(run.capture());
    Observation observation;
    MOEC_TRY_ASSIGN(observation, run.observe(kGraphSeconds));
    result.graphSeconds = observation.seconds;
    return std::move(result);
  }

private:
  static double getMedian(std::vector<double> &values) {
    llvm::sort(values);
    return values.empty() ? 0 : values[values.size() / 2];
  }

  Status describe() {
    const moert::Plan &plan = layer.getPlan();
    Work work = run.getRoutings().empty()
                    ? estimate()
                    : getWork(layer.getLayer(), row, run.getRoutings());
    KernelWork counter(plan, layer.getLayer(), row, work);
    for (const moert::Step &step :
         plan.variants[plan.findVariant(row.tokens)].steps) {
      if (step.kind != moert::Step::Kind::Launch)
        continue;
      const moert::KernelDecl &kernel = plan.kernels[step.kernel];
      KernelProfile profile;
      profile.name = kernel.name;
      MOEC_TRY_ASSIGN(profile.ctas, kernel.grid.evaluate(row.tokens));
      profile.threads = kernel.block;
      if (profile.ctas == 0)
        continue;
      counter.count(step, profile);
      result.kernels.push_back(std::move(profile));
    }
    samples.resize(result.kernels.size());
    return Status::ok();
  }

  /// The work of the row; for a layer with its router that of uniform routing.
  Work estimate() const {
    return getWork(
        layer.getLayer(), row,
        drawRoutings(layer.getLayer(), row, run.getNumSets(), nullptr));
  }

  /// Runs once without overlap of launches.
  Status runApart() {
    session.device.startApart();
    Status status = run.start(0);
    session.device.stopApart();
    MOEC_TRY(std::move(status));
    return session.device.synchronize(run.getStream());
  }

  Status sample(int64_t set) {
    TimedDevice &device = session.device;
    moert::Stream &stream = run.getStream();
    std::unique_ptr<moert::Event> first, second;
    MOEC_TRY_ASSIGN(first, device.createTimedEvent());
    MOEC_TRY_ASSIGN(second, device.createTimedEvent());
    for (int i = 0; i < kBusyFills; ++i)
      MOEC_TRY(device.fill(stream, busy->data(), 0, busy->size()));
    MOEC_TRY(run.start((set + 1) % run.getNumSets()));
    device.startTiming();
    Status status = run.start(set);
    std::vector<TimedDevice::Launch> launches = device.stopTiming();
    MOEC_TRY(std::move(status));
    MOEC_TRY(device.record(stream, *first));
    MOEC_TRY(device.record(stream, *second));
    MOEC_TRY(device.synchronize(stream));
    if (launches.size() != samples.size())
      return moert::internalError(
          "a run has " + std::to_string(launches.size()) +
          " launches, its plan " + std::to_string(samples.size()));
    double seconds = 0;
    for (auto [launch, times] : llvm::zip(launches, samples)) {
      MOEC_TRY_ASSIGN(seconds,
                      device.elapsedSeconds(*launch.begin, *launch.end));
      times.push_back(seconds);
    }
    MOEC_TRY_ASSIGN(seconds, device.elapsedSeconds(*first, *second));
    empty.push_back(seconds);
    return Status::ok();
  }

  Session &session;
  LayerOnDevice &layer;
  RowRun &run;
  const Row &row;
  RowProfile result;
  std::unique_ptr<moert::Buffer> busy;
  /// Per launch.
  std::vector<std::vector<double>> samples;
  std::vector<double> empty;
};

} // namespace

Result<RowProfile> moec::bench::profileRow(Session &session,
                                           LayerOnDevice &layer, RowRun &run,
                                           const Row &row, int64_t samples) {
  return Profiler(session, layer, run, row).profile(samples);
}

llvm::json::Array moec::bench::describeLaunches(const RowProfile &profile) {
  llvm::json::Array launches;
  for (const KernelProfile &kernel : profile.kernels) {
    llvm::json::Object launch{{"kernel", kernel.name},
                              {"ctas", kernel.ctas},
                              {"threads", kernel.threads},
                              {"bytes", kernel.bytes},
                              {"operations", kernel.operations}};
    if (kernel.seconds > 0)
      launch["us"] = kernel.seconds * 1e6;
    launches.push_back(std::move(launch));
  }
  return launches;
}

void moec::bench::printProfile(const RowProfile &profile, llvm::StringRef title,
                               const BenchLayer &layer, const Work &work,
                               const Ceilings &ceilings,
                               llvm::raw_ostream &os) {
  double floor = work.getSeconds(layer, ceilings);
  double sum = 0;
  for (const KernelProfile &kernel : profile.kernels)
    sum += kernel.seconds;
  os << llvm::formatv("{0}: floor {1:F1} us", title, floor * 1e6);
  if (profile.graphSeconds > 0)
    os << llvm::formatv(", graph {0:F1} us ({1:F3} of the floor); sum of "
                        "kernels {2:F1} us, each with about {3:F1} us of its "
                        "two events",
                        profile.graphSeconds * 1e6,
                        floor / profile.graphSeconds, sum * 1e6,
                        profile.emptySeconds * 1e6);
  os << llvm::formatv("\n  {0,-24} {1,8} {2,6} {3,6} {4,9} {5,6} {6,8} {7,9} "
                      "{8,8}\n",
                      "kernel", "us", "share", "CTAs", "MB", "TB/s", "TFLOP/s",
                      "floor us", "of floor");
  for (const KernelProfile &kernel : profile.kernels) {
    double least = std::max(kernel.operations / ceilings.getRate(layer),
                            kernel.bytes / ceilings.bandwidth);
    os << llvm::formatv("  {0,-24} ", kernel.name);
    if (kernel.seconds > 0)
      os << llvm::formatv("{0,8:F2} {1,6:F3} ", kernel.seconds * 1e6,
                          kernel.seconds / sum);
    else
      os << llvm::formatv("{0,8} {0,6} ", "-");
    os << llvm::formatv("{0,6} {1,9:F3} ", kernel.ctas, kernel.bytes / 1e6);
    if (kernel.seconds > 0)
      os << llvm::formatv("{0,6:F2} {1,8:F1} {2,9:F2} {3,8:F3}\n",
                          kernel.bytes / kernel.seconds / 1e12,
                          kernel.operations / kernel.seconds / 1e12,
                          least * 1e6, least / kernel.seconds);
    else
      os << llvm::formatv("{0,6} {0,8} {1,9:F2} {0,8}\n", "-", least * 1e6);
  }
}
