//===- Tune.cpp - tunes the configs of a row's gemms ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tune.h"

#include "../../Run/PlanRun.h"
#include "../Run/LayerModule.h"
#include "../TryStatus.h"
#include "moec/Schedules/Cost.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <optional>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

/// The least relative gain that counts as an improvement.
static constexpr double kMinGain = 0.005;

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

Result<std::vector<TunableKernel>>
moec::bench::findTunableKernels(const Session &session, const BenchLayer &layer,
                                const Row &row, size_t most, bool isSkewed) {
  std::unique_ptr<LayerModule> module;
  // Candidates are evaluated without joined gemms.
  MOEC_TRY_ASSIGN(module, LayerModule::lower(session, layer, nullptr,
                                             /*productsApart=*/most > 0));
  std::vector<TunableKernel> kernels;
  for (const ModelledPhase &found : module->getPhases(row.tokens)) {
    TunableKernel &tunable = kernels.emplace_back();
    tunable.name = found.name;
    tunable.chosen = printWholeConfig(found.getConfig());
    if (most == 0)
      continue;
    std::vector<Candidate> candidates =
        evaluateCandidates(found.phase, *found.schedule, module->getTarget(),
                           found.load, {row.tokens});
    llvm::erase_if(candidates, [](const Candidate &candidate) {
      return !candidate.whyNot.empty();
    });
    std::unique_ptr<CostModel> model =
        found.schedule->costModel(found.phase, found.load, module->getTarget());
    moec::Routing routing =
        isSkewed ? moec::Routing::Zipf : moec::Routing::Uniform;
    // Ties keep the schedule's order.
    std::vector<std::pair<double, size_t>> order;
    for (auto [i, candidate] : llvm::enumerate(candidates))
      order.push_back(
          {model->predict(candidate.config, row.tokens, routing).us, i});
    llvm::sort(order);
    for (auto [us, i] : order) {
      std::string text = printWholeConfig(candidates[i].config);
      if (text != tunable.chosen &&
          !llvm::is_contained(tunable.candidates, text) &&
          tunable.candidates.size() < most)
        tunable.candidates.push_back(text);
    }
  }
  return kernels;
}

//===----------------------------------------------------------------------===//
// Measurement
//===----------------------------------------------------------------------===//

namespace {

class Tuner {
public:
  Tuner(Session &session, LayerOnDevice &layer, RowRun &run, const Row &row,
        const TuneLimits &limits, llvm::raw_ostream &os)
      : session(session), layer(layer), row(row), limits(limits),
        begin(getSeconds()), end(begin + limits.seconds),
        trials(session, layer, run, row), os(os) {}

  Result<TunedRow> tune() {
    std::vector<TunableKernel> kernels;
    MOEC_TRY_ASSIGN(kernels, findTunableKernels(session, layer.getLayer(), row,
                                                limits.candidates));
    if (kernels.empty())
      return moert::invalidArgument("no kernel has other configs");
    // Measures the chosen configs; `layer` still has the last ones of the row
    // before.
    MOEC_TRY_ASSIGN(result.chosenSeconds,
                    trials.measure(compileLayer(session, layer.getLayer(),
                                                /*withRouter=*/false)));
    for (const TunableKernel &kernel : kernels)
      result.configs.emplace_back(kernel.name, kernel.chosen);
    std::vector<std::optional<Result<ReadyLayer>>> base =
        compile({result.configs});
    if (!base.front())
      return moert::invalidArgument("no time is left; give more --seconds");
    MOEC_TRY_ASSIGN(result.foundSeconds,
                    trials.measure(std::move(*base.front())));
    for (size_t i = 0; i < kernels.size(); ++i) {
      // Splits the time evenly between kernels.
      end = begin + limits.seconds * static_cast<double>(i + 1) /
                        static_cast<double>(kernels.size());
      MOEC_TRY(tune(i, kernels[i]));
    }
    return std::move(result);
  }

private:
  bool isOver() const { return getSeconds() > end; }
  std::vector<std::optional<Result<ReadyLayer>>>
  compile(const std::vector<KernelConfigs> &all) {
    return trials.compile(all, [&] { return isOver(); });
  }

  /// Compiles and measures in batches of parallel compilations, so that a short
  /// time suffices for some. Fails if no candidate works any more.
  Status tune(size_t index, const TunableKernel &kernel) {
    llvm::ArrayRef<std::string> left = kernel.candidates;
    while (!left.empty() && !isOver()) {
      llvm::ArrayRef<std::string> some =
          left.take_front(Trials::getNumThreads());
      MOEC_TRY(tune(index, kernel.name, some));
      left = left.drop_front(some.size());
    }
    return Status::ok();
  }

  Status tune(size_t index, const std::string &name,
              llvm::ArrayRef<std::string> candidates) {
    std::vector<KernelConfigs> all;
    for (const std::string &text : candidates) {
      all.push_back(result.configs);
      all.back()[index].second = text;
    }
    std::vector<std::optional<Result<ReadyLayer>>> compiled = compile(all);
    for (auto [configs, ready] : llvm::zip(all, compiled)) {
      if (!ready || isOver())
        break;
      Result<double> seconds = trials.measure(std::move(*ready));
      const std::string &text = configs[index].second;
      if (!seconds) {
        ++result.numFailed;
        os << "    " << name << ": " << text << ": "
           << llvm::StringRef(seconds.status().message()).split('\n').first
           << "\n";
        if (!session.device.allocate(256, 256))
          return seconds.status();
        continue;
      }
      ++result.numMeasured;
      bool isBest = *seconds < result.foundSeconds * (1 - kMinGain);
      os << llvm::formatv("    {0,9:F2} us {1} {2}: {3}\n", *seconds * 1e6,
                          isBest ? "*" : " ", name, text);
      if (!isBest)
        continue;
      result.foundSeconds = *seconds;
      result.configs[index].second = text;
    }
    return Status::ok();
  }

  Session &session;
  LayerOnDevice &layer;
  const Row &row;
  TuneLimits limits;
  double begin, end;
  Trials trials;
  llvm::raw_ostream &os;
  TunedRow result;
};

} // namespace

bool TunedRow::isBetter() const {
  return foundSeconds < chosenSeconds * (1 - kMinGain);
}

Result<TunedRow> moec::bench::tuneRow(Session &session, LayerOnDevice &layer,
                                      RowRun &run, const Row &row,
                                      const TuneLimits &limits,
                                      llvm::raw_ostream &os) {
  return Tuner(session, layer, run, row, limits, os).tune();
}
