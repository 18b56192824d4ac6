//===- FuseRouting.cpp - routing and what follows it ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Tile/MergedLaunch.h"
#include "../Tile/Variants.h"
#include "LaunchRewrite.h"
#include "moec/Schedules/Rewrites/FollowPhase.h"

using namespace mlir;
using namespace moec;

namespace {

class FuseRouting final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  void splitRanges() override;
  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  /// Whether the second launch counts or sorts the slots that the first one
  /// routes.
  bool follows(plan::LaunchOp first, plan::LaunchOp second);
  /// The load of a kernel in which one CTA routes and sorts everything; null if
  /// there can be none.
  tile::LoadAttr getLoad(tile::SortByExpertOp rank);
  std::optional<JoinedConfigs> chooseConfigs(plan::LaunchOp first,
                                             plan::LaunchOp second,
                                             tile::LoadAttr load);
  /// Fewest tokens with too many slots for one CTA; nothing if there are none,
  /// or for other launches.
  std::optional<int64_t> getFirstTokens(plan::LaunchOp launch);

  /// Built for a site.
  JoinedConfigs configs;
  tile::LoadAttr load;
  MergedKernels kernels;
};

} // namespace

bool FuseRouting::follows(plan::LaunchOp first, plan::LaunchOp second) {
  tile::KernelOp kernel = getKernel(second);
  if (!kernel)
    return false;
  const Schedule *schedule = getSchedule(&kernel.getBody().front().front());
  auto routing = getPhase<tile::TopKOp>(first);
  if (!schedule || !schedule->as<FollowsPhase>() || !routing ||
      !routing.getConfig())
    return false;
  Value ids;
  if (auto rank = getPhase<tile::SortByExpertOp>(second)) {
    if (!rank.getCounts())
      ids = rank.getIds();
  } else if (auto count = getPhase<tile::CountSlotsOp>(second)) {
    ids = count.getIds();
  }
  return ids && getPassed(second, ids) == getPassed(first, routing.getIds());
}

std::vector<RewriteSite> FuseRouting::match() {
  return matchPairs([&](plan::LaunchOp first, plan::LaunchOp second) {
    return follows(first, second);
  });
}

tile::LoadAttr FuseRouting::getLoad(tile::SortByExpertOp rank) {
  // One CTA sorts this much as fast as several do, as measured.
  constexpr int64_t maxTokens = 32, maxSlots = 256;
  int64_t topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
  int64_t tokens =
      std::min(getParameter("most").value_or(maxSlots) / topK, maxTokens);
  return tokens ? tile::LoadAttr::get(rank.getContext(), 0, tokens, topK,
                                      rank.getNumExperts())
                : tile::LoadAttr();
}

std::optional<JoinedConfigs> FuseRouting::chooseConfigs(plan::LaunchOp first,
                                                        plan::LaunchOp second,
                                                        tile::LoadAttr load) {
  Operation *following = &getKernel(second).getBody().front().front();
  return getSchedule(following)->as<FollowsPhase>()->follow(
      &getKernel(first).getBody().front().front(), following, load);
}

std::string FuseRouting::whyIllegal(const RewriteSite &site) {
  if (isForced(getKernel(site.getLaunch(0))) ||
      isForced(getKernel(site.getLaunch(1))))
    return "a phase has a forced config";
  auto rank = getPhase<tile::SortByExpertOp>(site.getLaunch(1));
  if (!rank)
    return {};
  tile::LoadAttr most = getLoad(rank);
  auto variant = cast<plan::VariantOp>(site.getLaunch()->getParentOp());
  if (!most ||
      static_cast<int64_t>(variant.getMaxTokens()) > most.getMaxTokens())
    return "one CTA would have to sort too many slots";
  return {};
}

FailureOr<std::string> FuseRouting::build(const RewriteSite &site) {
  auto rank = getPhase<tile::SortByExpertOp>(site.getLaunch(1));
  load = rank ? getLoad(rank) : tile::LoadAttr();
  std::optional<JoinedConfigs> chosen =
      chooseConfigs(site.getLaunch(0), site.getLaunch(1), load);
  if (!chosen)
    return std::string("no configs let a CTA continue with its own tokens");
  configs = *chosen;
  return std::string();
}

std::optional<PredictedChange> FuseRouting::predict(const RewriteSite &site) {
  PhaseForm first = getForm(site.getLaunch(0)),
            second = getForm(site.getLaunch(1));
  PredictedChange change{getPoints(site)};
  change.before = context.objective.predict({first, second}, change.points);
  second.isLaunched = false;
  change.after = context.objective.predict({first, second}, change.points);
  // All sites of these two kernels share one.
  bool isMade = kernels.contains({site.getLaunch(0).getKernelAttr().getAttr(),
                                  site.getLaunch(1).getKernelAttr().getAttr()});
  change.penalty =
      (isMade ? 0 : getKernelPenalty(getKernel(site.getLaunch(0)))) -
      getPenaltyOf(site.getLaunch(0), site) -
      getPenaltyOf(site.getLaunch(1), site);
  return change;
}

std::optional<int64_t> FuseRouting::getFirstTokens(plan::LaunchOp launch) {
  auto rank = getPhase<tile::SortByExpertOp>(launch);
  auto first = dyn_cast_or_null<plan::LaunchOp>(launch->getPrevNode());
  if (!rank || !first || first.getStream() != launch.getStream() ||
      !follows(first, launch) || isForced(getKernel(first)) ||
      isForced(getKernel(launch)))
    return std::nullopt;
  tile::LoadAttr most = getLoad(rank);
  if (!most || !chooseConfigs(first, launch, most))
    return std::nullopt;
  return most.getMaxTokens() + 1;
}

void FuseRouting::splitRanges() {
  splitVariants(context.module,
                [&](plan::LaunchOp launch) { return getFirstTokens(launch); });
}

LogicalResult FuseRouting::commit(const RewriteSite &site) {
  plan::LaunchOp first = site.getLaunch(0), second = site.getLaunch(1);
  MergedLaunch merged(first, second);
  tile::KernelOp &kernel = kernels[{first.getKernelAttr().getAttr(),
                                    second.getKernelAttr().getAttr()}];
  if (!kernel) {
    kernel = merged.makeKernel(symbols);
    if (load)
      kernel.setLoadAttr(load);
    Block &body = kernel.getBody().front();
    body.front().setAttr("config", configs.first);
    body.getTerminator()->getPrevNode()->setAttr("config", configs.second);
    setLaunchShape(kernel, context.target);
  }
  merged.replaceBy(kernel);
  return success();
}

std::unique_ptr<LaunchRewrite> moec::makeFuseRouting(RewriteContext &context) {
  return std::make_unique<FuseRouting>("fuse-routing", context);
}
