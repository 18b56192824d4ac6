//===- TileJoinProducts.cpp - two products in one kernel --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchShape.h"
#include "MergedLaunch.h"
#include "PassInputs.h"
#include "moec/Analysis/Cost.h"
#include "moec/Analysis/Rewrites/JoinProducts.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_TILEJOINPRODUCTSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Two launches, of which the second multiplies what the first makes.
struct Pair {
  plan::LaunchOp first, second;
  /// The launch before them that writes their offsets.
  plan::LaunchOp ranking;
};

class ProductJoiner {
public:
  ProductJoiner(plan::ProgramOp program, SymbolTable &symbols,
                const Target &target, ArrayRef<ForcedConfig> forced)
      : program(program), symbols(symbols), target(target), forced(forced) {}

  void run();

private:
  std::optional<Pair> findPair(plan::LaunchOp second);
  std::optional<JoinedConfigs> chooseConfigs(Pair pair, uint64_t minTokens,
                                             uint64_t maxTokens);
  /// The last of the counts for which the two are better one kernel, where they
  /// are not for all counts of the variant.
  std::optional<uint64_t> findLastJoined(Pair pair, plan::VariantOp variant);
  void splitVariant(plan::VariantOp variant);
  void join(Pair pair, const JoinedConfigs &configs);

  plan::ProgramOp program;
  SymbolTable &symbols;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
  MergedKernels kernels;
};

std::optional<Pair> ProductJoiner::findPair(plan::LaunchOp second) {
  auto first = dyn_cast_or_null<plan::LaunchOp>(second->getPrevNode());
  if (!first || first.getStream() != second.getStream())
    return std::nullopt;
  auto one = getPhase<tile::ContractOp>(first, symbols);
  auto other = getPhase<tile::ContractOp>(second, symbols);
  if (!one || !other || !one.getConfig() || !other.getConfig() ||
      one.getConfigAttr().getSchedule() != other.getConfigAttr().getSchedule())
    return std::nullopt;
  // The second would await some rows of the first one's result alone.
  if (!one.takesAllGroups() || !other.takesAllGroups())
    return std::nullopt;
  const Schedule *schedule =
      findSchedule(target, one.getConfigAttr().getSchedule());
  Value offsets = getPassed(first, one.getOffsets());
  if (!schedule || !schedule->as<JoinsProducts>() || !offsets ||
      offsets != getPassed(second, other.getOffsets()) ||
      getPassed(first, one.getIds()) != getPassed(second, other.getIds()) ||
      getPassed(first, one.getResult()) != getPassed(second, other.getInput()))
    return std::nullopt;
  // Rows are in order for maps, which the first product of a kernel has none
  // of.
  plan::LaunchOp before = findWriter(first, getPassed(first, one.getInput()));
  if (before && getPhase<tile::GatherRowsOp>(before, symbols))
    return std::nullopt;
  // It clears the counter, too.
  plan::LaunchOp ranking = findWriter(first, offsets);
  if (!ranking || ranking.getStream() != first.getStream() ||
      !getPhase<tile::RankOp>(ranking, symbols))
    return std::nullopt;
  return Pair{first, second, ranking};
}

std::optional<JoinedConfigs> ProductJoiner::chooseConfigs(Pair pair,
                                                          uint64_t minTokens,
                                                          uint64_t maxTokens) {
  auto one = getPhase<tile::ContractOp>(pair.first, symbols);
  auto other = getPhase<tile::ContractOp>(pair.second, symbols);
  tile::LoadAttr load = getKernel(pair.first, symbols).getLoadAttr();
  bool areFixed = isForced(getKernel(pair.first, symbols), forced) ||
                  isForced(getKernel(pair.second, symbols), forced);
  if (!load && !areFixed)
    return std::nullopt;
  // A kernel of several variants has the load of all; this is the variant's.
  if (load)
    load = tile::LoadAttr::get(load.getContext(), minTokens, maxTokens,
                               load.getTopK(), load.getExperts());
  const Schedule &schedule =
      *findSchedule(target, one.getConfigAttr().getSchedule());
  return schedule.as<JoinsProducts>()->join(one, other, load, areFixed, target);
}

/// Whether the two products of a kernel have them.
static bool hasConfigs(tile::KernelOp kernel, const JoinedConfigs &configs) {
  auto products = kernel.getBody().front().getOps<tile::ContractOp>();
  tile::ContractOp first = *products.begin(), second = *++products.begin();
  return first.getConfigAttr() == configs.first &&
         second.getConfigAttr() == configs.second;
}

/// Variants that come one after the other have the same kernel if they have the
/// same configs.
void ProductJoiner::join(Pair pair, const JoinedConfigs &configs) {
  Value counter = getCounter(pair.ranking, symbols);
  MergedLaunch merged(pair.first, pair.second, counter);
  tile::KernelOp one = getKernel(pair.first, symbols),
                 other = getKernel(pair.second, symbols);
  auto variant = cast<plan::VariantOp>(pair.first->getParentOp());
  uint64_t minTokens = variant.getMinTokens();
  tile::KernelOp &kernel =
      kernels[{one.getSymNameAttr(), other.getSymNameAttr()}];
  if (kernel && hasConfigs(kernel, configs)) {
    if (tile::LoadAttr load = kernel.getLoadAttr())
      minTokens = load.getMinTokens();
  } else {
    kernel = merged.makeKernel(symbols);
    kernel.setResident(true);
    auto products = kernel.getBody().front().getOps<tile::ContractOp>();
    tile::ContractOp first = *products.begin(),
                     second = *std::next(products.begin());
    Value argument = merged.getArgument(kernel, counter);
    first.setConfigAttr(configs.first);
    first.getSignalsMutable().assign(argument);
    second.setConfigAttr(configs.second);
    second.getAwaitsMutable().assign(argument);
    setLaunchShape(kernel, target);
  }
  if (tile::LoadAttr load = one.getLoadAttr())
    kernel.setLoadAttr(tile::LoadAttr::get(load.getContext(), minTokens,
                                           variant.getMaxTokens(),
                                           load.getTopK(), load.getExperts()));
  merged.replaceBy(kernel);
}

std::optional<uint64_t> ProductJoiner::findLastJoined(Pair pair,
                                                      plan::VariantOp variant) {
  // With more, products that take tiles from a queue were as fast apart, where
  // the model expects less of it (docs/tried.md, "Few tokens").
  constexpr int64_t mostTokens = 2;
  // What a range of its own has to save (tile-specialize).
  constexpr double worth = 0.0105;
  uint64_t min = variant.getMinTokens(), max = variant.getMaxTokens();
  if (chooseConfigs(pair, min, max))
    return std::nullopt;
  double most = worth;
  std::optional<uint64_t> last;
  for (int64_t tokens : getTokenPoints(int64_t(min), int64_t(max))) {
    if (tokens > mostTokens || tokens >= int64_t(max))
      break;
    std::optional<JoinedConfigs> configs = chooseConfigs(pair, min, tokens);
    if (!configs)
      break;
    if (configs->saved > most) {
      most = configs->saved;
      last = tokens;
    }
  }
  return last;
}

void ProductJoiner::splitVariant(plan::VariantOp variant) {
  for (auto second : variant.getBody().getOps<plan::LaunchOp>()) {
    std::optional<Pair> pair = findPair(second);
    std::optional<uint64_t> last =
        pair ? findLastJoined(*pair, variant) : std::nullopt;
    if (!last)
      continue;
    OpBuilder builder(variant->getContext());
    builder.setInsertionPointAfter(variant);
    cast<plan::VariantOp>(builder.clone(*variant)).setMinTokens(*last + 1);
    return variant.setMaxTokens(*last);
  }
}

void ProductJoiner::run() {
  for (plan::VariantOp variant :
       llvm::to_vector(program.getBody().getOps<plan::VariantOp>()))
    splitVariant(variant);
  SmallVector<plan::LaunchOp> launches;
  for (auto variant : program.getBody().getOps<plan::VariantOp>())
    llvm::append_range(launches, variant.getBody().getOps<plan::LaunchOp>());
  for (plan::LaunchOp second : launches)
    if (std::optional<Pair> pair = findPair(second)) {
      auto variant = cast<plan::VariantOp>(second->getParentOp());
      if (std::optional<JoinedConfigs> configs = chooseConfigs(
              *pair, variant.getMinTokens(), variant.getMaxTokens()))
        join(*pair, *configs);
    }
  eraseMerged(program->getParentOfType<ModuleOp>(), kernels, symbols);
}

struct TileJoinProducts
    : moec::impl::TileJoinProductsPassBase<TileJoinProducts> {
  using TileJoinProductsPassBase::TileJoinProductsPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-join-products", target, part, configs);
    if (!inputs)
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      ProductJoiner(program, symbols, inputs->target, inputs->forced).run();
  }
};

} // namespace
