//===- TileSpecialize.cpp - kernels for ranges of tokens --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranges end at powers of two. For each kernel whose schedule has a model of
// its time, the best config of every possible range is known; ranges are then
// those that lose the least against a config of its own for every count, where
// each further range has to pay for its kernels.

#include "mlir/IR/SymbolTable.h"
#include "moec/Analysis/Cost.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <limits>

namespace moec {
#define GEN_PASS_DEF_TILESPECIALIZEPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Points `first` to `last` of the token counts.
struct Span {
  size_t first, last;
};

/// A kernel whose config depends on its load.
class ModelledKernel {
public:
  ModelledKernel(tile::KernelOp kernel, Operation *phase,
                 const Schedule &schedule, const Target &target,
                 tile::LoadAttr load)
      : kernel(kernel), load(load),
        candidates(evaluateCandidates(phase, schedule, target, load)) {
    llvm::erase_if(candidates,
                   [](const Candidate &c) { return !c.whyNot.empty(); });
    if (candidates.empty())
      return;
    for (size_t i = 0; i < candidates.front().us.size(); ++i)
      best.push_back(llvm::min_element(candidates, [&](auto &a, auto &b) {
                       return a.us[i] < b.us[i];
                     })->us[i]);
  }

  bool hasChoice() const { return !candidates.empty(); }
  double getBest(size_t point) const { return best[point]; }

  /// What is chosen for the span: the least mean of relative times, the first
  /// of equals. As the schedule's own choice for a kernel of that load.
  const Candidate &choose(Span span) const {
    auto cost = [&](const Candidate &candidate) {
      double sum = 0;
      for (size_t i = span.first; i <= span.last; ++i)
        sum += candidate.us[i] / best[i];
      return sum;
    };
    return *llvm::min_element(candidates,
                              [&](const Candidate &a, const Candidate &b) {
                                return cost(a) < cost(b);
                              });
  }

  tile::KernelOp kernel;
  tile::LoadAttr load;

private:
  std::vector<Candidate> candidates;
  SmallVector<double> best;
};

class Specializer {
public:
  Specializer(plan::VariantOp variant, SymbolTable &symbols,
              const Target &target, const TileSpecializePassOptions &options)
      : variant(variant), symbols(symbols), target(target), options(options),
        points(getTokenPoints(variant.getMinTokens(), variant.getMaxTokens())) {
  }

  void run() {
    for (auto launch : variant.getBody().getOps<plan::LaunchOp>())
      addKernel(launch);
    if (kernels.empty())
      return;
    SmallVector<Span> spans = chooseSpans();
    for (size_t i = 0; i < kernels.size(); ++i)
      specialize(kernels[i], spans);
    splitVariant(spans);
  }

private:
  void addKernel(plan::LaunchOp launch);
  tile::LoadAttr getLoad(plan::LaunchOp launch, tile::ContractOp phase);
  SmallVector<Span> chooseSpans() const;
  double getLoss(Span span) const;
  size_t countKernels(ArrayRef<Span> spans) const;
  void specialize(ModelledKernel &kernel, ArrayRef<Span> spans);
  void splitVariant(ArrayRef<Span> spans);
  /// The token counts of a span.
  std::pair<int64_t, int64_t> getTokens(Span span) {
    return {span.first ? points[span.first - 1] + 1 : variant.getMinTokens(),
            points[span.last]};
  }

  plan::VariantOp variant;
  SymbolTable &symbols;
  const Target &target;
  const TileSpecializePassOptions &options;
  SmallVector<int64_t> points;
  std::vector<ModelledKernel> kernels;
  llvm::StringSet<llvm::MallocAllocator> seen;
  /// Per kernel: what it is called in each span.
  llvm::StringMap<SmallVector<FlatSymbolRefAttr>> names;
};

void Specializer::addKernel(plan::LaunchOp launch) {
  auto kernel = symbols.lookup<tile::KernelOp>(launch.getKernel());
  if (!kernel || !seen.insert(launch.getKernel()).second ||
      kernel.getLoadAttr())
    return;
  auto phases = kernel.getBody().front().without_terminator();
  if (!llvm::hasSingleElement(phases))
    return;
  auto phase = dyn_cast<tile::ContractOp>(*phases.begin());
  if (!phase || phase.getConfigAttr())
    return;
  SmallVector<const Schedule *> schedules = getSchedulesFor(target, phase);
  if (schedules.empty() || !schedules.front()->costModel)
    return;
  tile::LoadAttr load = getLoad(launch, phase);
  if (!load)
    return;
  ModelledKernel model(kernel, phase, *schedules.front(), target, load);
  if (model.hasChoice())
    kernels.push_back(std::move(model));
}

/// Null where nothing is known of the groups.
tile::LoadAttr Specializer::getLoad(plan::LaunchOp launch,
                                    tile::ContractOp phase) {
  int64_t topK = 1, experts = 1;
  if (phase.getOffsets()) {
    // The kernel that writes the offsets counts rows per expert.
    Value offsets =
        launch.getIns()[cast<BlockArgument>(phase.getOffsets()).getArgNumber()];
    tile::RankOp rank;
    for (auto writer : variant.getBody().getOps<plan::LaunchOp>())
      if (llvm::is_contained(writer.getOuts(), offsets))
        if (auto kernel = symbols.lookup<tile::KernelOp>(writer.getKernel()))
          kernel.walk([&](tile::RankOp op) { rank = op; });
    if (!rank)
      return {};
    topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
    experts = rank.getNumExperts() + rank.getNumZeroExperts();
    // A token may name an expert twice only where it has to.
    experts = std::max(experts, topK);
  }
  return tile::LoadAttr::get(variant.getContext(), variant.getMinTokens(),
                             variant.getMaxTokens(), topK, experts);
}

/// Time over that of the best configs, summed over the points of the span, and
/// relative to the time of all kernels there.
double Specializer::getLoss(Span span) const {
  double loss = 0;
  SmallVector<const Candidate *> chosen;
  for (const ModelledKernel &kernel : kernels)
    chosen.push_back(&kernel.choose(span));
  for (size_t i = span.first; i <= span.last; ++i) {
    double us = 0, best = 0;
    for (auto [kernel, candidate] : llvm::zip(kernels, chosen)) {
      us += candidate->us[i];
      best += kernel.getBest(i);
    }
    loss += us / best - 1;
  }
  return loss;
}

/// Kernels that all the spans need, other than those that no model is about.
size_t Specializer::countKernels(ArrayRef<Span> spans) const {
  size_t count = 0;
  for (const ModelledKernel &kernel : kernels) {
    tile::ConfigAttr last;
    for (Span span : spans) {
      tile::ConfigAttr config = kernel.choose(span).config;
      count += config != last;
      last = config;
    }
  }
  return count;
}

/// The cuts that lose least, by the best ways to cut what comes before.
SmallVector<Span> Specializer::chooseSpans() const {
  // A range has to win so much, summed over its points, to be worth kernels.
  constexpr double price = 0.02;
  size_t number = points.size();
  SmallVector<SmallVector<double>> losses(number,
                                          SmallVector<double>(number, 0));
  for (size_t first = 0; first < number; ++first)
    for (size_t last = first; last < number; ++last)
      losses[first][last] = getLoss({first, last});

  size_t others = seen.size() - kernels.size();
  for (size_t most = std::max<int64_t>(options.maxRanges, 1); most > 0;
       --most) {
    // Of the first `end` points in at most so many spans: the loss, and where
    // the last span begins.
    constexpr double infinity = std::numeric_limits<double>::infinity();
    using Best = std::pair<double, size_t>;
    SmallVector<SmallVector<Best>> table(
        most + 1, SmallVector<Best>(number + 1, {infinity, 0}));
    table[0][0].first = 0;
    for (size_t count = 1; count <= most; ++count)
      for (size_t end = 1; end <= number; ++end)
        for (size_t first = 0; first < end; ++first) {
          double loss =
              table[count - 1][first].first + losses[first][end - 1] + price;
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
    if (spans.size() == 1 ||
        others + countKernels(spans) <= size_t(options.maxKernels))
      return spans;
  }
  llvm_unreachable("one span is always taken");
}

/// A copy of the kernel per config, in place of it.
void Specializer::specialize(ModelledKernel &kernel, ArrayRef<Span> spans) {
  SmallVector<FlatSymbolRefAttr> &inSpans = names[kernel.kernel.getSymName()];
  for (size_t i = 0; i < spans.size();) {
    // Neighbours with the same config share a kernel.
    Span span = spans[i];
    size_t end = i + 1;
    for (; end < spans.size() &&
           kernel.choose(spans[end]).config == kernel.choose(spans[i]).config;
         ++end)
      span.last = spans[end].last;
    auto [minTokens, maxTokens] = getTokens(span);
    tile::KernelOp own = kernel.kernel;
    if (span.last - span.first + 1 < points.size()) {
      own = kernel.kernel.clone();
      own.setSymName(
          (kernel.kernel.getSymName() + "_t" + Twine(maxTokens)).str());
      symbols.insert(own, kernel.kernel->getIterator());
    }
    own.setLoadAttr(tile::LoadAttr::get(variant.getContext(), minTokens,
                                        maxTokens, kernel.load.getTopK(),
                                        kernel.load.getExperts()));
    inSpans.append(end - i, FlatSymbolRefAttr::get(own.getSymNameAttr()));
    i = end;
  }
  if (inSpans.front().getAttr() != kernel.kernel.getSymNameAttr())
    symbols.erase(kernel.kernel);
}

void Specializer::splitVariant(ArrayRef<Span> spans) {
  OpBuilder builder(variant);
  for (auto [i, span] : llvm::enumerate(spans)) {
    auto part = cast<plan::VariantOp>(builder.clone(*variant));
    auto [minTokens, maxTokens] = getTokens(span);
    part.setMinTokens(minTokens);
    part.setMaxTokens(maxTokens);
    for (auto launch : part.getBody().getOps<plan::LaunchOp>())
      if (auto found = names.find(launch.getKernel()); found != names.end())
        launch.setKernelAttr(found->second[i]);
  }
  variant.erase();
}

struct TileSpecialize : moec::impl::TileSpecializePassBase<TileSpecialize> {
  using TileSpecializePassBase::TileSpecializePassBase;

  void runOnOperation() override {
    std::optional<Target> machine = Target::find(target);
    if (!machine) {
      InFlightDiagnostic diagnostic =
          getOperation().emitError("tile-specialize: target '")
          << target << "' is unknown; accepted are ";
      llvm::interleaveComma(Target::getNames(), diagnostic);
      return signalPassFailure();
    }
    SymbolTable symbols(getOperation());
    TileSpecializePassOptions options;
    options.maxRanges = maxRanges;
    options.maxKernels = maxKernels;
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      // Several are somebody's own choice.
      auto variants =
          llvm::to_vector(program.getBody().getOps<plan::VariantOp>());
      if (variants.size() == 1)
        Specializer(variants.front(), symbols, *machine, options).run();
    }
  }
};

} // namespace
