//===- Tune.cpp - other configs of a row's products -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tune.h"

#include "../Run/PlanRun.h"
#include "TryStatus.h"
#include "moec/Analysis/Cost.h"
#include "moec/Compiler/Registry.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Import/BuildLayer.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <atomic>
#include <numeric>
#include <optional>
#include <thread>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

/// Of one measurement, and how much better it has to be to be believed.
static constexpr double kMeasureSeconds = 0.06, kMinGain = 0.005;

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

/// The kernels of level tile that a run with so many tokens launches.
static std::vector<tile::KernelOp> getLaunched(mlir::ModuleOp module,
                                               int64_t tokens) {
  std::vector<tile::KernelOp> kernels;
  mlir::SymbolTable symbols(module);
  module.walk([&](plan::VariantOp variant) {
    if (tokens < static_cast<int64_t>(variant.getMinTokens()) ||
        tokens > static_cast<int64_t>(variant.getMaxTokens()))
      return;
    for (auto launch : variant.getBody().getOps<plan::LaunchOp>())
      if (auto kernel = symbols.lookup<tile::KernelOp>(launch.getKernel()))
        kernels.push_back(kernel);
  });
  return kernels;
}

static std::string getBaseName(tile::KernelOp kernel) {
  llvm::StringRef name = kernel.getSymName();
  if (tile::LoadAttr load = kernel.getLoadAttr())
    name.consume_back("_t" + std::to_string(load.getMaxTokens()));
  return name.str();
}

/// Phases of a kernel that have candidates, and how they are asked for: by the
/// kernel, or, of two products in one kernel, by what they make.
static llvm::SmallVector<std::pair<mlir::Operation *, std::string>>
findPhases(tile::KernelOp kernel, const Target &target) {
  llvm::SmallVector<std::pair<mlir::Operation *, std::string>> found;
  if (!kernel.getLoadAttr())
    return found;
  for (mlir::Operation &op : kernel.getBody().front().without_terminator()) {
    auto config = op.getAttrOfType<tile::ConfigAttr>("config");
    const Schedule *own =
        config ? findSchedule(target, config.getSchedule()) : nullptr;
    if (own && own->as<ModelsTime>())
      found.emplace_back(&op, getBaseName(kernel));
  }
  if (found.size() > 1)
    for (auto &[op, name] : found)
      name = getResultName(op, 0).str();
  return found;
}

Result<std::vector<TunableKernel>>
moec::bench::findTunableKernels(const Session &session, const BenchLayer &layer,
                                const Row &row, size_t most) {
  CompileOptions compile = session.jit.compile;
  compile.configs = session.getConfigs(layer);
  // Other configs are for products apart.
  if (most > 0)
    compile.disable.push_back("join-products");
  std::optional<Target> target =
      Target::find(compile.target, /*lanes=*/0, compile.part);
  if (!target)
    return moert::invalidArgument("target '" + compile.target +
                                  "' is unknown, or does not run on part '" +
                                  compile.part + "'");
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  llvm::FailureOr<LayerSpec> spec = importJson(
      SourceText(layer.name + ".json",
                 layer.printSpec(session.maxTokens, /*withRouter=*/false)),
      {}, diagnostics);
  if (failed(spec))
    return moert::invalidArgument(messages);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) { os << diagnostic.str(); });
  mlir::OwningOpRef<mlir::ModuleOp> module = buildLayer(context, *spec);
  if (!module || failed(lowerToLevel(*module, Level::Tile, compile)))
    return moert::invalidArgument("does not compile: " + messages);

  std::vector<TunableKernel> kernels;
  auto add = [&](tile::KernelOp kernel, mlir::Operation *phase,
                 std::string name) {
    auto config = phase->getAttrOfType<tile::ConfigAttr>("config");
    TunableKernel &tunable = kernels.emplace_back();
    tunable.name = std::move(name);
    tunable.chosen = printWholeConfig(config);
    if (most == 0)
      return;
    std::vector<Candidate> candidates = evaluateCandidates(
        phase, *findSchedule(*target, config.getSchedule())->as<ModelsTime>(),
        *target, kernel.getLoadAttr(), {row.tokens});
    llvm::erase_if(candidates, [](const Candidate &candidate) {
      return !candidate.whyNot.empty();
    });
    // Of equals the one that comes first among the schedule's.
    std::vector<size_t> order(candidates.size());
    std::iota(order.begin(), order.end(), 0);
    llvm::sort(order, [&](size_t a, size_t b) {
      return std::pair(candidates[a].us.front(), a) <
             std::pair(candidates[b].us.front(), b);
    });
    for (size_t i : order) {
      std::string text = printWholeConfig(candidates[i].config);
      if (text != tunable.chosen &&
          !llvm::is_contained(tunable.candidates, text) &&
          tunable.candidates.size() < most)
        tunable.candidates.push_back(text);
    }
  };
  for (tile::KernelOp kernel : getLaunched(*module, row.tokens))
    for (auto &[phase, name] : findPhases(kernel, *target))
      add(kernel, phase, name);
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
      : session(session), layer(layer), run(run), row(row), limits(limits),
        begin(getSeconds()), end(begin + limits.seconds), small(session),
        os(os) {
    // A layer for these tokens alone has few kernels to compile.
    small.maxTokens = row.tokens;
    small.jit.threads = 1;
    small.jit.useCache = false;
    small.jit.compile.disable.push_back("join-products");
  }

  Result<TunedRow> tune() {
    std::vector<TunableKernel> kernels;
    MOEC_TRY_ASSIGN(kernels, findTunableKernels(session, layer.getLayer(), row,
                                                limits.candidates));
    if (kernels.empty())
      return moert::invalidArgument("no kernel has other configs");
    // Of the row before, the layer has the configs that were measured last.
    MOEC_TRY_ASSIGN(result.chosenSeconds,
                    measure(compileLayer(session, layer.getLayer(),
                                         /*withRouter=*/false)));
    for (const TunableKernel &kernel : kernels)
      result.configs.emplace_back(kernel.name, kernel.chosen);
    std::vector<std::optional<Result<ReadyLayer>>> base =
        compile({result.configs});
    if (!base.front())
      return moert::invalidArgument("no time is left; give more --seconds");
    MOEC_TRY_ASSIGN(result.foundSeconds, measure(std::move(*base.front())));
    for (size_t i = 0; i < kernels.size(); ++i) {
      // As much time for each.
      end = begin + limits.seconds * static_cast<double>(i + 1) /
                        static_cast<double>(kernels.size());
      MOEC_TRY(tune(i, kernels[i]));
    }
    return std::move(result);
  }

private:
  using Configs = std::vector<std::pair<std::string, std::string>>;

  bool isOver() const { return getSeconds() > end; }
  static size_t getNumThreads() {
    return std::max(1u, std::thread::hardware_concurrency());
  }

  /// Compiles and measures as many at a time as are compiled side by side, so
  /// that a short time suffices for some. Fails where nothing works any more.
  Status tune(size_t index, const TunableKernel &kernel) {
    llvm::ArrayRef<std::string> left = kernel.candidates;
    while (!left.empty() && !isOver()) {
      llvm::ArrayRef<std::string> some = left.take_front(getNumThreads());
      MOEC_TRY(tune(index, kernel.name, some));
      left = left.drop_front(some.size());
    }
    return Status::ok();
  }

  Status tune(size_t index, const std::string &name,
              llvm::ArrayRef<std::string> candidates) {
    std::vector<Configs> all;
    for (const std::string &text : candidates) {
      all.push_back(result.configs);
      all.back()[index].second = text;
    }
    std::vector<std::optional<Result<ReadyLayer>>> compiled = compile(all);
    for (auto [configs, ready] : llvm::zip(all, compiled)) {
      if (!ready || isOver())
        break;
      Result<double> seconds = measure(std::move(*ready));
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

  /// Side by side; what time does not suffice for has no value.
  std::vector<std::optional<Result<ReadyLayer>>>
  compile(const std::vector<Configs> &all) {
    std::vector<std::optional<Result<ReadyLayer>>> compiled(all.size());
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t i = next++; i < all.size(); i = next++) {
        if (isOver())
          return;
        std::vector<std::string> configs;
        for (const auto &[kernel, text] : all[i])
          configs.push_back((llvm::Twine(kernel) + ":" + text).str());
        compiled[i].emplace(compileLayer(small, layer.getLayer(),
                                         /*withRouter=*/false, configs));
      }
    };
    std::vector<std::thread> others;
    for (size_t i = 1; i < std::min(getNumThreads(), all.size()); ++i)
      others.emplace_back(work);
    work();
    for (std::thread &other : others)
      other.join();
    isRested = true;
    return compiled;
  }

  Result<double> measure(Result<ReadyLayer> ready) {
    if (!ready)
      return ready.status();
    MOEC_TRY(layer.load(session, std::move(*ready)));
    MOEC_TRY(run.runAll());
    MOEC_TRY(run.check().status());
    if (!session.hasClock)
      return 0.0;
    MOEC_TRY(run.capture());
    Observation observation;
    // After a pause the clock is higher for a while than it will be: what is
    // measured first would seem faster than it is.
    if (isRested)
      MOEC_TRY_ASSIGN(observation, run.observe(kMeasureSeconds));
    isRested = false;
    MOEC_TRY_ASSIGN(observation, run.observe(kMeasureSeconds));
    return observation.seconds;
  }

  Session &session;
  LayerOnDevice &layer;
  RowRun &run;
  const Row &row;
  TuneLimits limits;
  double begin, end;
  Session small;
  llvm::raw_ostream &os;
  TunedRow result;
  /// Whether the device has had nothing to do while others were compiled.
  bool isRested = true;
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
