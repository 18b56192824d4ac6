//===- Fit.cpp - fits a part's coefficients to times ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fit.h"

#include "../../Run/PlanRun.h"
#include "../Run/LayerModule.h"
#include "../Run/Profile.h"
#include "../TryStatus.h"
#include "moec/Schedules/Cost.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"

#include <cmath>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

/// Samples `count` of a kernel's configs, which are sorted best first, at
/// geometrically growing indices up to the middle.
static std::vector<std::string> spread(llvm::ArrayRef<std::string> all,
                                       size_t count) {
  std::vector<std::string> some;
  double last = static_cast<double>(all.size() / 2);
  for (size_t i = 0; i < count && some.size() < all.size(); ++i) {
    double share = static_cast<double>(i) /
                   static_cast<double>(std::max<size_t>(count - 1, 1));
    auto index = static_cast<size_t>(std::pow(last + 1, share)) - 1;
    if (index < all.size() && !llvm::is_contained(some, all[index]))
      some.push_back(all[index]);
  }
  return some;
}

Result<TimedConfigs> moec::bench::timeConfigs(Session &session,
                                              LayerOnDevice &layer, RowRun &run,
                                              const Row &row,
                                              const TuneLimits &limits) {
  double end = getSeconds() + limits.seconds;
  auto isOver = [&] { return getSeconds() > end; };
  constexpr size_t all = 1000;
  std::vector<TunableKernel> kernels;
  MOEC_TRY_ASSIGN(kernels,
                  findTunableKernels(session, layer.getLayer(), row, all));
  if (kernels.empty())
    return moert::invalidArgument("no kernel has a cost model");
  KernelConfigs chosen;
  for (const TunableKernel &kernel : kernels)
    chosen.emplace_back(kernel.name, kernel.chosen);
  std::vector<KernelConfigs> wanted = {chosen};
  // Round-robin, so that each kernel has some when time runs out.
  std::vector<std::vector<std::string>> others;
  for (const TunableKernel &kernel : kernels)
    others.push_back(spread(kernel.candidates, limits.candidates));
  for (size_t i = 0; i < limits.candidates; ++i)
    for (auto [k, texts] : llvm::enumerate(others))
      if (i < texts.size()) {
        wanted.push_back(chosen);
        wanted.back()[k].second = texts[i];
      }

  TimedConfigs timed;
  Trials trials(session, layer, run, row);
  for (llvm::ArrayRef<KernelConfigs> left(wanted);
       !left.empty() && !isOver();) {
    llvm::ArrayRef<KernelConfigs> some =
        left.take_front(std::min(left.size(), Trials::getNumThreads()));
    left = left.drop_front(some.size());
    std::vector<std::optional<Result<ReadyLayer>>> compiled =
        trials.compile(some.vec(), isOver);
    for (auto [configs, ready] : llvm::zip(some, compiled)) {
      if (!ready || isOver())
        break;
      Result<double> seconds = trials.measure(std::move(*ready));
      if (!seconds) {
        ++timed.numFailed;
        if (!session.device.allocate(256, 256))
          return seconds.status();
        continue;
      }
      timed.runs.push_back({configs, *seconds});
    }
  }
  if (timed.runs.empty())
    return moert::invalidArgument("no time is left; give more --seconds");
  RowProfile profile;
  MOEC_TRY_ASSIGN(profile, profileRow(session, layer, run, row));
  for (const KernelProfile &kernel : profile.kernels)
    if (llvm::none_of(kernels, [&](const TunableKernel &modelled) {
          return llvm::StringRef(kernel.name).starts_with(modelled.name);
        }))
      timed.othersSeconds += kernel.seconds;
  return timed;
}

void moec::bench::writeTimedConfigs(const TimedConfigs &row,
                                    llvm::json::Object &result) {
  llvm::json::Array runs;
  for (const TimedConfigs::Run &run : row.runs) {
    llvm::json::Object configs;
    for (const auto &[kernel, text] : run.configs)
      configs[kernel] = text;
    runs.push_back(llvm::json::Object{{"us", run.seconds * 1e6},
                                      {"configs", std::move(configs)}});
  }
  result[kTimedField] = std::move(runs);
  result["fit_others_us"] = row.othersSeconds * 1e6;
  result["fit_failed"] = row.numFailed;
}

TimedConfigs moec::bench::readTimedConfigs(const llvm::json::Object &result) {
  TimedConfigs row;
  row.othersSeconds = result.getNumber("fit_others_us").value_or(0) * 1e-6;
  row.numFailed = result.getInteger("fit_failed").value_or(0);
  const llvm::json::Array *runs = result.getArray(kTimedField);
  if (!runs)
    return row;
  for (const llvm::json::Value &value : *runs) {
    const llvm::json::Object *fields = value.getAsObject();
    const llvm::json::Object *configs =
        fields ? fields->getObject("configs") : nullptr;
    if (!configs)
      continue;
    TimedConfigs::Run run;
    run.seconds = fields->getNumber("us").value_or(0) * 1e-6;
    for (const auto &[kernel, text] : *configs)
      run.configs.emplace_back(kernel.str(), text.getAsString().value_or(""));
    if (run.seconds > 0)
      row.runs.push_back(std::move(run));
  }
  return row;
}

namespace {

/// A run whose launches are at level tile.
struct LoweredRun {
  size_t row;
  int64_t tokens;
  double us;
  std::unique_ptr<LayerModule> module;
  std::vector<ModelledPhase> phases;

  double predict(const DeviceRates &rates) const {
    Target target = module->getTarget();
    target.rates = &rates;
    double sum = 0;
    for (const ModelledPhase &phase : phases)
      sum += phase.schedule->costModel(phase.phase, phase.load, target)
                 ->predict(phase.getConfig(), tokens)
                 .us;
    return sum;
  }
};

} // namespace

Result<PartRates>
moec::bench::fitPart(const Session &session, const Table &table,
                     const Ceilings &ceilings,
                     const std::map<std::string, TimedConfigs> &rows) {
  const PartFacts *part = findPart(session.jit.compile.part);
  if (!part)
    return moert::invalidArgument(
        "this device matches no known GPU model; describe it in "
        "lib/Support/Parts.cpp first, or give --device-part");
  std::vector<LoweredRun> lowered;
  std::vector<const BenchLayer *> layers;
  std::vector<const TimedConfigs::Run *> measured;
  std::vector<double> others;
  for (const Row &row : table.rows) {
    auto found = rows.find(row.getName());
    if (found == rows.end())
      continue;
    for (const TimedConfigs::Run &run : found->second.runs) {
      lowered.push_back(
          {others.size(), row.tokens, run.seconds * 1e6, nullptr, {}});
      layers.push_back(&table.getLayer(row));
      measured.push_back(&run);
    }
    others.push_back(found->second.othersSeconds * 1e6);
  }
  std::vector<Status> failures(lowered.size(), Status::ok());
  llvm::parallelFor(0, lowered.size(), [&](size_t i) {
    Session small = session;
    small.maxTokens = lowered[i].tokens;
    std::vector<std::string> configs;
    for (const auto &[kernel, text] : measured[i]->configs)
      configs.push_back((llvm::Twine(kernel) + ":" + text).str());
    auto module = LayerModule::lower(small, *layers[i], &configs,
                                     /*productsApart=*/true);
    if (!module) {
      failures[i] = module.status();
      return;
    }
    lowered[i].module = std::move(*module);
    lowered[i].phases = lowered[i].module->getPhases(lowered[i].tokens);
  });
  for (const Status &failure : failures)
    MOEC_TRY(failure);

  DeviceRates start = getPartRates(*part);
  start.readBytes = ceilings.bandwidth;
  start.bf16Operations = ceilings.bf16;
  start.fp8Operations = ceilings.fp8;
  std::vector<TimedRun> runs;
  for (const LoweredRun &run : lowered)
    runs.push_back({run.row, run.us, [&run](const DeviceRates &rates) {
                      return run.predict(rates);
                    }});
  return PartRates{fitRates(start, runs, others), runs.size(), others.size()};
}
