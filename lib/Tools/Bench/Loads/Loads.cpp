//===- Loads.cpp - times of configs with many loads -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loads.h"

#include "../../Run/PlanRun.h"
#include "../TryStatus.h"
#include "llvm/ADT/STLExtras.h"

#include <map>
#include <set>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

/// Seconds of one observation.
static constexpr double kObserveSeconds = 0.025;
/// Observations of a config with a load, an even number: configs take turns in
/// alternating order, so that what drifts with the device's temperature is the
/// same for all.
static constexpr int kPasses = 4;
/// Seconds under load until the device's clock has settled: at first, and after
/// the checks of a load, during which the device rests. An H200 at its limit of
/// power slows down by 5 % after about a second.
static constexpr double kSettleSeconds = 2, kSettleAgainSeconds = 1.5;
/// The share of the time for checks of results, beyond those of each kind.
static constexpr double kCheckShare = 0.3;

/// Candidates of each kernel, the best ones of a skewed and of a uniform load
/// in turn.
static Result<std::vector<TunableKernel>> findKernels(const Session &session,
                                                      const BenchLayer &layer,
                                                      const Row &row,
                                                      size_t most) {
  constexpr size_t all = 1000;
  std::vector<TunableKernel> kernels, uniform;
  MOEC_TRY_ASSIGN(kernels, findTunableKernels(session, layer, row, all,
                                              /*isSkewed=*/true));
  MOEC_TRY_ASSIGN(uniform, findTunableKernels(session, layer, row, all));
  for (auto [kernel, other] : llvm::zip(kernels, uniform)) {
    std::vector<std::string> skewed = std::move(kernel.candidates);
    kernel.candidates.clear();
    for (size_t i = 0; i < skewed.size(); ++i)
      for (const std::string &text : {skewed[i], other.candidates[i]})
        if (kernel.candidates.size() < most &&
            !llvm::is_contained(kernel.candidates, text))
          kernel.candidates.push_back(text);
  }
  return kernels;
}

/// Configs in which one kernel has another config, and such in which all have.
static std::vector<KernelConfigs>
combine(llvm::ArrayRef<TunableKernel> kernels) {
  KernelConfigs chosen;
  size_t most = 0;
  for (const TunableKernel &kernel : kernels) {
    chosen.emplace_back(kernel.name, kernel.chosen);
    most = std::max(most, kernel.candidates.size());
  }
  std::vector<KernelConfigs> wanted;
  for (size_t i = 0; i < most; ++i) {
    KernelConfigs both = chosen;
    for (auto [k, kernel] : llvm::enumerate(kernels)) {
      if (i >= kernel.candidates.size())
        continue;
      both[k].second = kernel.candidates[i];
      wanted.push_back(chosen);
      wanted.back()[k].second = kernel.candidates[i];
    }
    if (kernels.size() > 1)
      wanted.push_back(std::move(both));
  }
  return wanted;
}

/// The kernels whose configs differ from the chosen ones.
static std::string describe(const KernelConfigs &configs,
                            llvm::ArrayRef<TunableKernel> kernels) {
  std::string text;
  for (auto [config, kernel] : llvm::zip(configs, kernels))
    if (config.second != kernel.chosen)
      text += (text.empty() ? "" : "; ") + config.first + ": " + config.second;
  return text;
}

namespace {

class LoadMeter {
public:
  LoadMeter(Session &session, LayerOnDevice &layer, const Row &row,
            const LoadsLimits &limits, llvm::raw_ostream &os)
      : session(session), layer(layer), row(row), limits(limits),
        begin(getSeconds()), os(os) {}

  Result<LoadsOfRow> measure() {
    std::vector<ExpertLoad> loads =
        makeLoads(layer.getLayer(), std::max<int64_t>(limits.loads, 1));
    routings = draw(loads.front(), 0);
    MOEC_TRY(add(layer, "as compiled"));
    MOEC_TRY(addOthers());
    if (session.hasClock)
      MOEC_TRY(configs.front().run->observe(kSettleSeconds).status());
    for (auto [i, load] : llvm::enumerate(loads)) {
      if (isOver() && !result.loads.empty())
        break;
      MOEC_TRY(measure(load, i));
    }
    return std::move(result);
  }

private:
  struct Config {
    std::unique_ptr<LayerOnDevice> owned;
    std::unique_ptr<RowRun> run;
  };

  bool isOver() const { return getSeconds() - begin > limits.seconds; }

  std::vector<bench::Routing> draw(const ExpertLoad &load, size_t index) {
    std::vector<bench::Routing> drawn;
    for (int64_t set = 0; set < limits.sets; ++set)
      drawn.push_back(drawRouting(layer.getLayer(), row.tokens, load,
                                  index * limits.sets + set + 1));
    return drawn;
  }

  Status add(LayerOnDevice &placed, std::string name) {
    Config &config = configs.emplace_back();
    MOEC_TRY_ASSIGN(config.run, RowRun::create(session, placed, row,
                                               limits.sets, routings));
    MOEC_TRY(config.run->runAll());
    if (session.hasClock)
      MOEC_TRY(config.run->capture());
    result.configs.push_back(std::move(name));
    return Status::ok();
  }

  /// Compiles the other configs and loads those that work.
  Status addOthers() {
    std::vector<TunableKernel> kernels;
    MOEC_TRY_ASSIGN(kernels, findKernels(session, layer.getLayer(), row,
                                         limits.candidates));
    std::vector<KernelConfigs> wanted = combine(kernels);
    Trials trials(session, layer, *configs.front().run, row);
    // Half of the time is for measurements.
    auto isLate = [&] { return getSeconds() - begin > limits.seconds / 2; };
    std::vector<std::optional<Result<ReadyLayer>>> compiled =
        trials.compile(wanted, isLate);
    for (auto [others, ready] : llvm::zip(wanted, compiled)) {
      if (!ready)
        continue;
      std::string name = describe(others, kernels);
      if (Status status = place(std::move(*ready), name); !status)
        MOEC_TRY(drop(name, status));
    }
    return Status::ok();
  }

  Status place(Result<ReadyLayer> ready, const std::string &name) {
    if (!ready)
      return ready.status();
    std::unique_ptr<LayerOnDevice> placed;
    MOEC_TRY_ASSIGN(
        placed, LayerOnDevice::createBeside(session, layer, std::move(*ready)));
    size_t before = configs.size();
    if (Status status = add(*placed, name); !status) {
      configs.resize(before);
      return status;
    }
    configs.back().owned = std::move(placed);
    return Status::ok();
  }

  /// Counts a config that failed; fails if the device is lost.
  Status drop(const std::string &name, const Status &why) {
    ++result.numFailed;
    os << "    " << name << ": "
       << llvm::StringRef(why.message()).split('\n').first << "\n";
    return session.device.allocate(256, 256).status();
  }

  Status measure(const ExpertLoad &load, size_t index) {
    routings = draw(load, index);
    MeasuredLoad measured;
    measured.load = load;
    measured.experts = routings.front().experts;
    std::map<int32_t, int64_t> rows;
    for (int32_t id : routings.front().ids)
      if (id >= 0)
        measured.mostRows = std::max(measured.mostRows, ++rows[id]);
    measured.isChecked = checkedKinds.insert(load.kind).second ||
                         checkSeconds < kCheckShare * (getSeconds() - begin);
    for (size_t i = 0; i < configs.size();) {
      Status status = prepare(*configs[i].run, measured.isChecked);
      if (status) {
        ++i;
        continue;
      }
      // Nothing is compared with a layer that fails as compiled.
      if (i == 0)
        return status;
      MOEC_TRY(drop(result.configs[i], status));
      remove(i);
    }
    measured.observations.resize(configs.size());
    if (session.hasClock)
      MOEC_TRY(observe(measured.observations));
    result.loads.push_back(std::move(measured));
    return Status::ok();
  }

  /// Gives a run the present routings.
  Status prepare(RowRun &run, bool doCheck) {
    MOEC_TRY(run.setRoutings(routings));
    if (!doCheck)
      return Status::ok();
    double start = getSeconds();
    MOEC_TRY(run.runAll());
    RowRun &first = *configs.front().run;
    if (&run != &first)
      run.expectLike(first);
    MOEC_TRY(run.check().status());
    checkSeconds += getSeconds() - start;
    return Status::ok();
  }

  Status observe(std::vector<std::vector<double>> &observations) {
    MOEC_TRY(configs.front().run->observe(kSettleAgainSeconds).status());
    for (int pass = 0; pass < kPasses; ++pass)
      for (size_t i = 0; i < configs.size(); ++i) {
        size_t config = pass % 2 ? configs.size() - 1 - i : i;
        Observation observation;
        MOEC_TRY_ASSIGN(observation,
                        configs[config].run->observe(kObserveSeconds));
        observations[config].push_back(observation.seconds);
      }
    for (Config &config : configs)
      MOEC_TRY(config.run->checkAgain());
    return Status::ok();
  }

  /// Forgets a config and its times.
  void remove(size_t i) {
    // The graph goes before its kernels.
    configs[i].run.reset();
    configs.erase(configs.begin() + i);
    result.configs.erase(result.configs.begin() + i);
    for (MeasuredLoad &load : result.loads)
      load.observations.erase(load.observations.begin() + i);
  }

  Session &session;
  LayerOnDevice &layer;
  const Row &row;
  LoadsLimits limits;
  double begin, checkSeconds = 0;
  llvm::raw_ostream &os;
  std::vector<bench::Routing> routings;
  std::vector<Config> configs;
  std::set<llvm::StringRef> checkedKinds;
  LoadsOfRow result;
};

} // namespace

Result<LoadsOfRow> moec::bench::measureLoads(Session &session,
                                             LayerOnDevice &layer,
                                             const Row &row,
                                             const LoadsLimits &limits,
                                             llvm::raw_ostream &os) {
  return LoadMeter(session, layer, row, limits, os).measure();
}
