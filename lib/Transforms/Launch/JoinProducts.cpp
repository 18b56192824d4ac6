//===- JoinProducts.cpp - two products in one kernel ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/JoinProducts.h"
#include "../Tile/MergedLaunch.h"
#include "LaunchRewrite.h"

using namespace mlir;
using namespace moec;

namespace {

class JoinProducts final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  void splitRanges() override;
  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  /// The earlier launch that writes the offsets of both, if the second gemm
  /// multiplies the result of the first and both can be joined; else null.
  plan::LaunchOp findRanking(plan::LaunchOp first, plan::LaunchOp second);
  bool areFixed(const RewriteSite &site) {
    return isForced(getKernel(site.getLaunch(0))) ||
           isForced(getKernel(site.getLaunch(1)));
  }
  /// The token count up to which gemms are joined whatever the time.
  uint64_t getMostJoined() {
    return static_cast<uint64_t>(getParameter("most").value_or(0));
  }
  /// The load of the first gemm's kernel, restricted to these tokens.
  tile::LoadAttr getLoad(const RewriteSite &site, uint64_t minTokens,
                         uint64_t maxTokens);
  std::optional<JoinedConfigs> chooseConfigs(const RewriteSite &site,
                                             tile::LoadAttr load);
  PredictedChange predict(const RewriteSite &site, tile::LoadAttr load,
                          const JoinedConfigs &joined);
  /// The largest token count up to which joining pays, if that saves more than
  /// joining for all counts of the variant does.
  std::optional<uint64_t> findLastJoined(const RewriteSite &site);

  JoinedConfigs configs;
  MergedKernels kernels;
};

} // namespace

plan::LaunchOp JoinProducts::findRanking(plan::LaunchOp first,
                                         plan::LaunchOp second) {
  auto one = getPhase<tile::GemmOp>(first);
  auto other = getPhase<tile::GemmOp>(second);
  if (!one || !other || !one.getConfig() || !other.getConfig())
    return nullptr;
  // The second gemm would wait for only some rows of the first one's result.
  if (!one.takesAllGroups() || !other.takesAllGroups())
    return nullptr;
  const Schedule *schedule = getSchedule(one);
  Value offsets = getPassed(first, one.getOffsets());
  if (!schedule || schedule != getSchedule(other) ||
      !schedule->as<JoinsProducts>() || !offsets ||
      offsets != getPassed(second, other.getOffsets()) ||
      getPassed(first, one.getIds()) != getPassed(second, other.getIds()) ||
      getPassed(first, one.getResult()) != getPassed(second, other.getInput()))
    return nullptr;
  // Permuted rows are for tensor maps, which the first of joined gemms does not
  // use.
  if (!one.getSource())
    return nullptr;
  // The sort clears the counter, too.
  plan::LaunchOp ranking = findWriter(first, offsets);
  return ranking && ranking.getStream() == first.getStream() &&
                 getPhase<tile::SortByExpertOp>(ranking)
             ? ranking
             : nullptr;
}

std::vector<RewriteSite> JoinProducts::match() {
  return matchPairs([&](plan::LaunchOp first, plan::LaunchOp second) {
    return findRanking(first, second) != nullptr;
  });
}

/// A kernel of several variants has the load of all; restricts it to the site's
/// variant.
tile::LoadAttr JoinProducts::getLoad(const RewriteSite &site,
                                     uint64_t minTokens, uint64_t maxTokens) {
  tile::LoadAttr load = getKernel(site.getLaunch()).getLoadAttr();
  return load ? tile::LoadAttr::get(load.getContext(), minTokens, maxTokens,
                                    load.getTopK(), load.getExperts())
              : load;
}

static plan::VariantOp getVariant(const RewriteSite &site) {
  return cast<plan::VariantOp>(site.getLaunch()->getParentOp());
}

std::optional<JoinedConfigs>
JoinProducts::chooseConfigs(const RewriteSite &site, tile::LoadAttr load) {
  auto one = getPhase<tile::GemmOp>(site.getLaunch(0));
  auto other = getPhase<tile::GemmOp>(site.getLaunch(1));
  return getSchedule(one)->as<JoinsProducts>()->join(
      one, other, load, areFixed(site),
      // Gemms of block fp8 have not been measured.
      /*mayCopyScales=*/getMostJoined() > 0, context.target);
}

std::string JoinProducts::whyIllegal(const RewriteSite &site) {
  if (!getKernel(site.getLaunch()).getLoadAttr() && !areFixed(site))
    return "the kernels have no 'load', so the gemms' rows are unknown";
  return {};
}

FailureOr<std::string> JoinProducts::build(const RewriteSite &site) {
  plan::VariantOp variant = getVariant(site);
  std::optional<JoinedConfigs> chosen = chooseConfigs(
      site, getLoad(site, variant.getMinTokens(), variant.getMaxTokens()));
  if (!chosen)
    return std::string("no configs of the two gemms fit one kernel");
  configs = *chosen;
  return std::string();
}

PredictedChange JoinProducts::predict(const RewriteSite &site,
                                      tile::LoadAttr load,
                                      const JoinedConfigs &joined) {
  PhaseForm first = getForm(site.getLaunch(0), load),
            second = getForm(site.getLaunch(1), load);
  PredictedChange change{Objective::getPoints(getVariant(site), load)};
  first.factor = second.factor = joined.apart;
  change.before = context.objective.predict({first, second}, change.points);
  PhaseForm together{second.phase, joined.second, load, /*isLaunched=*/false};
  change.after = context.objective.predict(
      {PhaseForm{first.phase, joined.first, load}, together}, change.points);
  return change;
}

std::optional<PredictedChange> JoinProducts::predict(const RewriteSite &site) {
  plan::VariantOp variant = getVariant(site);
  if (areFixed(site) || variant.getMaxTokens() <= getMostJoined())
    return std::nullopt;
  PredictedChange change = predict(
      site, getLoad(site, variant.getMinTokens(), variant.getMaxTokens()),
      configs);
  // One kernel replaces two, but it has as much code, compiled at once.
  change.penalty = getKernelPenalty(getKernel(site.getLaunch()));
  return change;
}

std::optional<uint64_t> JoinProducts::findLastJoined(const RewriteSite &site) {
  // With more tokens, separate gemms with dynamic tile schedulers were as fast,
  // contrary to the model (benchmarks/journal/tried.md, "Few tokens").
  constexpr int64_t maxTokens = 2;
  plan::VariantOp variant = getVariant(site);
  int64_t min = variant.getMinTokens(), max = variant.getMaxTokens();
  if (!context.objective.hasTimes() || areFixed(site) ||
      !whyIllegal(site).empty())
    return std::nullopt;
  if (uint64_t most = getMostJoined())
    return variant.getMinTokens() <= most && most < variant.getMaxTokens()
               ? std::optional(most)
               : std::nullopt;
  auto pays = [&](int64_t last, double penalty) -> std::optional<double> {
    tile::LoadAttr load = getLoad(site, min, last);
    std::optional<JoinedConfigs> joined = chooseConfigs(site, load);
    if (!joined)
      return std::nullopt;
    PredictedChange change = predict(site, load, *joined);
    double saved =
        context.objective.getSaved(change.before, change.after, change.points);
    return saved > penalty ? std::optional(saved) : std::nullopt;
  };
  double penalty = getKernelPenalty(getKernel(site.getLaunch(0)));
  // Equal to the penalty of a range of both gemms (tile-specialize).
  double most = penalty + getKernelPenalty(getKernel(site.getLaunch(1)));
  // A split has to save more than joining for all counts does.
  if (std::optional<double> whole = pays(max, penalty))
    most += *whole - penalty;
  std::optional<uint64_t> last;
  for (int64_t tokens : getTokenPoints(min, max)) {
    if (tokens > maxTokens || tokens >= max)
      break;
    if (std::optional<double> saved = pays(tokens, most)) {
      most = *saved;
      last = tokens;
    }
  }
  return last;
}

void JoinProducts::splitRanges() {
  for (const RewriteSite &site : match()) {
    std::optional<uint64_t> last = findLastJoined(site);
    if (!last)
      continue;
    plan::VariantOp variant = getVariant(site);
    OpBuilder builder(variant->getContext());
    builder.setInsertionPointAfter(variant);
    cast<plan::VariantOp>(builder.clone(*variant)).setMinTokens(*last + 1);
    variant.setMaxTokens(*last);
  }
}

/// Whether the two gemms of a kernel have these configs.
static bool hasConfigs(tile::KernelOp kernel, const JoinedConfigs &configs) {
  auto products = kernel.getBody().front().getOps<tile::GemmOp>();
  tile::GemmOp first = *products.begin(), second = *++products.begin();
  return first.getConfigAttr() == configs.first &&
         second.getConfigAttr() == configs.second;
}

/// Adjacent variants with equal configs share a kernel.
LogicalResult JoinProducts::commit(const RewriteSite &site) {
  Value counter =
      getCounter(findRanking(site.getLaunch(0), site.getLaunch(1)), symbols);
  MergedLaunch merged(site.getLaunch(0), site.getLaunch(1), counter);
  tile::KernelOp one = getKernel(site.getLaunch(0)),
                 other = getKernel(site.getLaunch(1));
  plan::VariantOp variant = getVariant(site);
  uint64_t minTokens = variant.getMinTokens();
  tile::KernelOp &kernel =
      kernels[{one.getSymNameAttr(), other.getSymNameAttr()}];
  if (kernel && hasConfigs(kernel, configs)) {
    if (tile::LoadAttr load = kernel.getLoadAttr())
      minTokens = load.getMinTokens();
  } else {
    kernel = merged.makeKernel(symbols);
    kernel.setResident(true);
    auto products = kernel.getBody().front().getOps<tile::GemmOp>();
    tile::GemmOp first = *products.begin(),
                 second = *std::next(products.begin());
    Value argument = merged.getArgument(kernel, counter);
    first.setConfigAttr(configs.first);
    first.getSignalsMutable().assign(argument);
    second.setConfigAttr(configs.second);
    second.getAwaitsMutable().assign(argument);
    setLaunchShape(kernel, context.target);
  }
  if (tile::LoadAttr load = one.getLoadAttr())
    kernel.setLoadAttr(tile::LoadAttr::get(load.getContext(), minTokens,
                                           variant.getMaxTokens(),
                                           load.getTopK(), load.getExperts()));
  merged.replaceBy(kernel);
  return success();
}

std::unique_ptr<LaunchRewrite> moec::makeJoinProducts(RewriteContext &context) {
  return std::make_unique<JoinProducts>("join-products", context);
}
