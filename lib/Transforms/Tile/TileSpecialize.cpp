//===- TileSpecialize.cpp - kernels for ranges of tokens --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranges end at powers of two. For each kernel whose schedule has a cost model,
// the best config of every possible range is known. The experts' gemms are
// split together and every other kernel by itself, so that splitting one kernel
// does not copy others. Ranges minimize the loss against a separate config for
// every count, and each further range must save more than the penalty of its
// kernels. If there are too many kernels, adjacent ranges are merged where that
// loses least. A range for few tokens may be split off behind that, without a
// change to others.

#include "Launches.h"
#include "PassInputs.h"
#include "PhaseLoad.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Threading.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Device.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <limits>
#include <optional>

namespace moec {
#define GEN_PASS_DEF_TILESPECIALIZEPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Points `first` to `last` of the token counts.
struct Span {
  size_t first, last;
};

/// A kernel whose config depends on its load.
class ModelledKernel {
public:
  ModelledKernel(plan::LaunchOp launch, tile::KernelOp kernel, Operation *phase,
                 const ModelsTime &schedule, const Target &target,
                 tile::LoadAttr load, ArrayRef<int64_t> points)
      : launch(launch), kernel(kernel), load(load),
        isGrouped(load.getExperts() > 1),
        candidates(
            evaluateCandidates(phase, schedule, target, load,
                               llvm::map_to_vector(points, [&](int64_t tokens) {
                                 return getLaunchTokens(launch, tokens);
                               }))) {
    llvm::erase_if(candidates,
                   [](const Candidate &c) { return !c.whyNot.empty(); });
    if (candidates.empty())
      return;
    for (size_t i = 0; i < candidates.front().us.size(); ++i)
      best.push_back(llvm::min_element(candidates, [&](auto &a, auto &b) {
                       return a.us[i] < b.us[i];
                     })->us[i]);
    choices.assign(best.size() * best.size(), kUnknown);
  }

  bool hasChoice() const { return !candidates.empty(); }
  double getBest(size_t point) const { return best[point]; }

  /// The choice for a span: the least mean score, the first of equals, like the
  /// schedule's own choice for a kernel of that load.
  const Candidate &choose(Span span) const {
    size_t &known = choices[span.first * best.size() + span.last];
    if (known == kUnknown)
      known = find(span);
    return candidates[known];
  }

  /// Time lost against the best config at a point.
  double getLoss(Span span, size_t point) const {
    return choose(span).us[point] - best[point];
  }

  /// A launch of the kernel.
  plan::LaunchOp launch;
  tile::KernelOp kernel;
  tile::LoadAttr load;
  /// Whether it is a gemm of experts.
  bool isGrouped;
  /// Spans with one config each.
  SmallVector<Span> spans;

private:
  static constexpr size_t kUnknown = -1;

  /// The candidate that `choose` returns.
  size_t find(Span span) const {
    auto cost = [&](const Candidate &candidate) {
      double sum = 0;
      for (size_t i = span.first; i <= span.last; ++i)
        sum += candidate.scores[i];
      return sum;
    };
    auto costs = llvm::map_to_vector(candidates, cost);
    return llvm::min_element(costs) - costs.begin();
  }

  std::vector<Candidate> candidates;
  SmallVector<double> best;
  /// Per first and last point of a span: the choice, once it is known.
  mutable std::vector<size_t> choices;
};

class Specializer {
public:
  Specializer(plan::VariantOp variant, SymbolTable &symbols,
              const Target &target, const TileSpecializePassOptions &options,
              ArrayRef<ForcedConfig> forced)
      : variant(variant), symbols(symbols), target(target), options(options),
        forced(forced),
        points(getTokenPoints(variant.getMinTokens(), variant.getMaxTokens())) {
    addForcedBounds();
  }

  void run() {
    addKernels();
    if (kernels.empty())
      return;
    SmallVector<ModelledKernel *> products;
    for (ModelledKernel &kernel : kernels)
      if (kernel.isGrouped)
        products.push_back(&kernel);
      else
        chooseRanges(&kernel);
    if (!products.empty())
      chooseRanges(products);
    mergeKernels();
    SmallVector<Span> spans = getCommonSpans();
    for (ModelledKernel &kernel : kernels)
      specialize(kernel, spans);
    splitVariant(spans);
  }

private:
  /// Adds the bounds of forced configs' ranges.
  void addForcedBounds();
  void addKernels();
  /// The op of a kernel that may have a cost model, and its load; null if there
  /// is none, or if the kernel is known already.
  std::pair<tile::GemmOp, tile::LoadAttr> findPhase(plan::LaunchOp launch);
  /// Gives the kernels of a group their spans, with equal bounds.
  void chooseRanges(ArrayRef<ModelledKernel *> group);
  SmallVector<Span> chooseSpans(ArrayRef<ModelledKernel *> group);
  /// The time of all kernels at a point with their best configs.
  double getBest(size_t point) const;
  double getLoss(ArrayRef<ModelledKernel *> group, Span span) const;
  /// Ranges with equal keys share a kernel: the forced config and the chosen
  /// one.
  using Key = std::pair<const ForcedConfig *, tile::ConfigAttr>;
  Key getKey(const ModelledKernel &kernel, Span span);
  /// Merges adjacent spans with the same config.
  SmallVector<Span> shareKernels(const ModelledKernel &kernel,
                                 ArrayRef<Span> spans);
  /// The loss if the span and the next one share a kernel.
  double getMergeLoss(const ModelledKernel &kernel, const Span *span);
  void mergeKernels();
  /// Spans that end wherever a span of any kernel does.
  SmallVector<Span> getCommonSpans() const;
  void specialize(ModelledKernel &kernel, ArrayRef<Span> spans);
  void splitVariant(ArrayRef<Span> spans);
  /// Gives the experts' gemms kernels for the tokens of a variant alone.
  void makeOwnKernels(plan::VariantOp part);
  /// The token counts of a span.
  std::pair<int64_t, int64_t> getTokens(Span span) {
    return {span.first ? points[span.first - 1] + 1 : variant.getMinTokens(),
            points[span.last]};
  }

  plan::VariantOp variant;
  SymbolTable &symbols;
  const Target &target;
  const TileSpecializePassOptions &options;
  ArrayRef<ForcedConfig> forced;
  SmallVector<int64_t> points;
  /// Points after which a range always ends.
  llvm::SmallSet<size_t, 4> cuts;
  std::vector<ModelledKernel> kernels;
  llvm::StringSet<llvm::MallocAllocator> seen;
  /// Per kernel: its name in each span.
  llvm::StringMap<SmallVector<FlatSymbolRefAttr>> names;
};

void Specializer::addForcedBounds() {
  SmallVector<int64_t> ends;
  for (const ForcedConfig &config : forced)
    if (config.tokens)
      for (int64_t end : {config.tokens->min - 1, config.tokens->max})
        if (end > 0 && end >= int64_t(variant.getMinTokens()) &&
            end < int64_t(variant.getMaxTokens()))
          ends.push_back(end);
  llvm::append_range(points, ends);
  llvm::sort(points);
  points.erase(llvm::unique(points), points.end());
  for (int64_t end : ends)
    cuts.insert(llvm::find(points, end) - points.begin());
}

Specializer::Key Specializer::getKey(const ModelledKernel &kernel, Span span) {
  auto [minTokens, maxTokens] = getTokens(span);
  tile::KernelOp op = kernel.kernel;
  const ForcedConfig *last = nullptr;
  for (const ForcedConfig &config : forced)
    if (config.kernel == op.getSymName() &&
        (!config.tokens ||
         (config.tokens->min <= std::max<int64_t>(minTokens, 1) &&
          maxTokens <= config.tokens->max)))
      last = &config;
  if (last)
    return {last, {}};
  return {nullptr, kernel.choose(span).config};
}

/// Evaluates the models in parallel, since each takes long.
void Specializer::addKernels() {
  struct Found {
    plan::LaunchOp launch;
    tile::GemmOp phase;
    tile::LoadAttr load;
  };
  SmallVector<Found> phases;
  for (auto launch : variant.getBody().getOps<plan::LaunchOp>())
    if (auto [phase, load] = findPhase(launch); load)
      phases.push_back({launch, phase, load});
  std::vector<std::optional<ModelledKernel>> models(phases.size());
  parallelFor(variant.getContext(), 0, phases.size(), [&](size_t i) {
    auto [launch, phase, load] = phases[i];
    models[i].emplace(launch, phase->getParentOfType<tile::KernelOp>(), phase,
                      *getSchedulesFor(target, phase).front()->as<ModelsTime>(),
                      target, load, points);
  });
  for (std::optional<ModelledKernel> &model : models)
    if (model->hasChoice())
      kernels.push_back(std::move(*model));
}

std::pair<tile::GemmOp, tile::LoadAttr>
Specializer::findPhase(plan::LaunchOp launch) {
  tile::KernelOp kernel = getKernel(launch, symbols);
  if (!kernel || !seen.insert(launch.getKernel()).second ||
      kernel.getLoadAttr())
    return {};
  auto phases = kernel.getBody().front().without_terminator();
  if (!llvm::hasSingleElement(phases))
    return {};
  auto phase = dyn_cast<tile::GemmOp>(*phases.begin());
  if (!phase || phase.getConfigAttr())
    return {};
  SmallVector<const Schedule *> schedules = getSchedulesFor(target, phase);
  if (schedules.empty() || !schedules.front()->as<ModelsTime>())
    return {};
  return {phase, getPhaseLoad(launch, phase, symbols)};
}

double Specializer::getBest(size_t point) const {
  // Kernels without a model count with their launch time only.
  double us = getDeviceRates(target)->getLaunchTime() *
              double(seen.size() - kernels.size());
  for (const ModelledKernel &kernel : kernels)
    us += kernel.getBest(point);
  return us;
}

/// Time lost against the best configs, relative to the time of all kernels at
/// each point, summed over the points of the span.
double Specializer::getLoss(ArrayRef<ModelledKernel *> group, Span span) const {
  for (size_t i = span.first; i < span.last; ++i)
    if (cuts.contains(i))
      return kInfinity;
  double loss = 0;
  for (size_t i = span.first; i <= span.last; ++i)
    for (const ModelledKernel *kernel : group)
      loss += kernel->getLoss(span, i) / getBest(i);
  return loss;
}

/// The spans with the least loss, by dynamic programming over their ends.
SmallVector<Span> Specializer::chooseSpans(ArrayRef<ModelledKernel *> group) {
  // Penalty of one more range.
  double penalty = 0;
  for (const ModelledKernel *kernel : group)
    penalty += getKernelPenalty(kernel->kernel);
  size_t number = points.size();
  SmallVector<SmallVector<double>> losses(number,
                                          SmallVector<double>(number, 0));
  for (size_t first = 0; first < number; ++first)
    for (size_t last = first; last < number; ++last)
      losses[first][last] = getLoss(group, {first, last});

  // For the first `end` points in at most so many spans: the loss, and the
  // begin of the last span.
  size_t most = std::max(size_t(std::max<int64_t>(options.maxRanges, 1)),
                         cuts.size() + 1);
  using Best = std::pair<double, size_t>;
  SmallVector<SmallVector<Best>> table(
      most + 1, SmallVector<Best>(number + 1, {kInfinity, 0}));
  table[0][0].first = 0;
  for (size_t count = 1; count <= most; ++count)
    for (size_t end = 1; end <= number; ++end)
      for (size_t first = 0; first < end; ++first) {
        double loss =
            table[count - 1][first].first + losses[first][end - 1] + penalty;
        if (loss < table[count][end].first)
          table[count][end] = {loss, first};
      }
  size_t count = 1;
  for (size_t i = 2; i <= most; ++i)
    if (table[i][number].first < table[count][number].first)
      count = i;
  SmallVector<Span> spans;
  for (size_t end = number; count > 0; --count) {
    size_t first = table[count][end].second;
    spans.insert(spans.begin(), {first, end - 1});
    end = first;
  }
  return spans;
}

void Specializer::chooseRanges(ArrayRef<ModelledKernel *> group) {
  SmallVector<Span> spans = chooseSpans(group);
  for (ModelledKernel *kernel : group)
    kernel->spans = shareKernels(*kernel, spans);
}

SmallVector<Span> Specializer::shareKernels(const ModelledKernel &kernel,
                                            ArrayRef<Span> spans) {
  SmallVector<Span> shared;
  for (Span span : spans) {
    if (!shared.empty() &&
        getKey(kernel, shared.back()) == getKey(kernel, span))
      shared.back().last = span.last;
    else
      shared.push_back(span);
  }
  return shared;
}

double Specializer::getMergeLoss(const ModelledKernel &kernel,
                                 const Span *span) {
  Span next = span[1], both{span->first, next.last};
  for (Span part : {*span, next, both})
    if (getKey(kernel, part).first)
      return kInfinity;
  double loss = 0;
  for (size_t i = both.first; i <= both.last; ++i)
    loss += (kernel.getLoss(both, i) -
             kernel.getLoss(i <= span->last ? *span : next, i)) /
            getBest(i);
  return loss;
}

void Specializer::mergeKernels() {
  while (true) {
    size_t count = seen.size() - kernels.size();
    for (const ModelledKernel &kernel : kernels)
      count += kernel.spans.size();
    if (count <= size_t(options.maxKernels))
      return;
    double least = kInfinity;
    ModelledKernel *from = nullptr;
    Span *cheapest = nullptr;
    for (ModelledKernel &kernel : kernels)
      for (Span &span : MutableArrayRef(kernel.spans).drop_back())
        if (double loss = getMergeLoss(kernel, &span); loss < least) {
          least = loss;
          from = &kernel;
          cheapest = &span;
        }
    if (!from)
      return;
    cheapest->last = cheapest[1].last;
    from->spans.erase(cheapest + 1);
  }
}

SmallVector<Span> Specializer::getCommonSpans() const {
  SmallVector<Span> spans;
  for (size_t i = 0; i < points.size(); ++i) {
    bool begins = llvm::any_of(kernels, [&](const ModelledKernel &kernel) {
      return llvm::any_of(kernel.spans,
                          [&](Span own) { return own.first == i; });
    });
    if (begins)
      spans.push_back({i, i});
    else
      spans.back().last = i;
  }
  return spans;
}

/// Replaces the kernel by one copy per config.
void Specializer::specialize(ModelledKernel &kernel, ArrayRef<Span> spans) {
  SmallVector<FlatSymbolRefAttr> &inSpans = names[kernel.kernel.getSymName()];
  for (Span own : kernel.spans) {
    auto [minTokens, maxTokens] = getTokens(own);
    tile::KernelOp copy = kernel.kernel;
    if (kernel.spans.size() > 1) {
      copy = kernel.kernel.clone();
      copy.setSymName(
          (kernel.kernel.getSymName() + "_t" + Twine(maxTokens)).str());
      symbols.insert(copy, kernel.kernel->getIterator());
    }
    copy.setLoadAttr(tile::LoadAttr::get(
        variant.getContext(), getLaunchTokens(kernel.launch, minTokens),
        getLaunchTokens(kernel.launch, maxTokens), kernel.load.getTopK(),
        kernel.load.getExperts()));
    for (Span span : spans)
      if (own.first <= span.first && span.last <= own.last)
        inSpans.push_back(FlatSymbolRefAttr::get(copy.getSymNameAttr()));
  }
  if (kernel.spans.size() > 1)
    symbols.erase(kernel.kernel);
}

void Specializer::splitVariant(ArrayRef<Span> spans) {
  OpBuilder builder(variant);
  auto add = [&](size_t span, int64_t minTokens, int64_t maxTokens) {
    auto part = cast<plan::VariantOp>(builder.clone(*variant));
    part.setMinTokens(minTokens);
    part.setMaxTokens(maxTokens);
    for (auto launch : part.getBody().getOps<plan::LaunchOp>())
      if (auto found = names.find(launch.getKernel()); found != names.end())
        launch.setKernelAttr(found->second[span]);
    return part;
  };
  for (auto [i, span] : llvm::enumerate(spans)) {
    auto [minTokens, maxTokens] = getTokens(span);
    if (options.fewTokens > 0 && minTokens <= options.fewTokens &&
        options.fewTokens < maxTokens) {
      makeOwnKernels(add(i, minTokens, options.fewTokens));
      minTokens = options.fewTokens + 1;
    }
    add(i, minTokens, maxTokens);
  }
  variant.erase();
}

void Specializer::makeOwnKernels(plan::VariantOp part) {
  llvm::DenseMap<tile::KernelOp, tile::KernelOp> copies;
  for (auto launch : part.getBody().getOps<plan::LaunchOp>()) {
    tile::KernelOp kernel = getKernel(launch, symbols);
    tile::LoadAttr load = kernel ? kernel.getLoadAttr() : nullptr;
    if (!load || load.getExperts() == 1)
      continue;
    tile::KernelOp &copy = copies[kernel];
    if (!copy) {
      load = tile::LoadAttr::get(load.getContext(),
                                 getLaunchTokens(launch, part.getMinTokens()),
                                 getLaunchTokens(launch, part.getMaxTokens()),
                                 load.getTopK(), load.getExperts());
      copy = kernel.clone();
      copy.setSymName(getNameInRange(kernel, load));
      copy.setLoadAttr(load);
      symbols.insert(copy, kernel->getIterator());
    }
    launch.setKernel(copy.getSymName());
  }
}

struct TileSpecialize : moec::impl::TileSpecializePassBase<TileSpecialize> {
  using TileSpecializePassBase::TileSpecializePassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-specialize", target, part, configs);
    if (!inputs)
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    TileSpecializePassOptions options;
    options.maxRanges = maxRanges;
    options.maxKernels = maxKernels;
    options.fewTokens = fewTokens;
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      // Several variants are the user's choice.
      auto variants =
          llvm::to_vector(program.getBody().getOps<plan::VariantOp>());
      if (variants.size() == 1)
        Specializer(variants.front(), symbols, inputs->target, options,
                    inputs->forced)
            .run();
    }
  }
};

} // namespace
