//===- QuantizeAhead.cpp - quantize while logits are made -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Tile/MergedLaunch.h"
#include "LaunchRewrite.h"
#include "moec/Schedules/Rewrites/FollowPhase.h"

using namespace mlir;
using namespace moec;

namespace {

class QuantizeAhead final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  /// The routing of a kernel that routes and sorts in one CTA; or null.
  tile::TopKOp getRouting(plan::LaunchOp launch);

  MergedKernels kernels;
};

} // namespace

tile::TopKOp QuantizeAhead::getRouting(plan::LaunchOp launch) {
  tile::KernelOp kernel = getKernel(launch);
  if (!kernel)
    return nullptr;
  Block &body = kernel.getBody().front();
  auto routing = dyn_cast<tile::TopKOp>(body.front());
  return routing && routing.getConfig() &&
                 isa<tile::SortByExpertOp>(body.getTerminator()->getPrevNode())
             ? routing
             : nullptr;
}

std::vector<RewriteSite> QuantizeAhead::match() {
  return matchPairs([&](plan::LaunchOp routing, plan::LaunchOp quantization) {
    auto quantize = getPhase<tile::QuantizeOp>(quantization);
    return quantize && quantize.getConfig() && getRouting(routing);
  });
}

std::string QuantizeAhead::whyIllegal(const RewriteSite &site) {
  plan::LaunchOp launch = site.getLaunch(0), quantization = site.getLaunch(1);
  if (isForced(getKernel(quantization)))
    return "the quantization has a forced config";
  tile::TopKOp routing = getRouting(launch);
  auto quantize = getPhase<tile::QuantizeOp>(quantization);
  const Schedule *schedule = getSchedule(routing);
  const auto *follows = schedule ? schedule->as<FollowsPhase>() : nullptr;
  if (!follows)
    return "the routing's schedule cannot follow another phase";
  if (!follows->follow(quantize, routing, getKernel(launch).getLoadAttr()))
    return follows->whyApart(quantize, routing,
                             getKernel(launch).getLoadAttr());
  // Otherwise the quantization, and the logits with it, would wait for them.
  for (Operation *op = launch; op; op = op->getPrevNode())
    if (auto before = dyn_cast<plan::LaunchOp>(op);
        before &&
        !isIndependent(quantization.getIns(), quantization.getOuts(), before))
      return "an earlier launch uses the memory of the quantization";
  return {};
}

/// A gemm of few tokens waits for the launch before it, which, if it quantizes,
/// waits for the routing before: each launch relies on all earlier ones to have
/// ended. Fused with the routing, there is one wait less.
std::optional<PredictedChange> QuantizeAhead::predict(const RewriteSite &site) {
  PhaseForm routing = getForm(site.getLaunch(0)),
            quantization = getForm(site.getLaunch(1));
  PredictedChange change{getPoints(site)};
  change.before =
      context.objective.predict({routing, quantization}, change.points);
  routing.isLaunched = false;
  change.after =
      context.objective.predict({quantization, routing}, change.points);
  // All sites of these two kernels share one.
  bool isMade = kernels.contains({site.getLaunch(1).getKernelAttr().getAttr(),
                                  site.getLaunch(0).getKernelAttr().getAttr()});
  change.penalty =
      (isMade ? 0 : getKernelPenalty(getKernel(site.getLaunch(0)))) -
      getPenaltyOf(site.getLaunch(0), site) -
      getPenaltyOf(site.getLaunch(1), site);
  return change;
}

LogicalResult QuantizeAhead::commit(const RewriteSite &site) {
  plan::LaunchOp routing = site.getLaunch(0), quantization = site.getLaunch(1);
  MergedLaunch merged(quantization, routing);
  tile::KernelOp &kernel = kernels[{quantization.getKernelAttr().getAttr(),
                                    routing.getKernelAttr().getAttr()}];
  if (!kernel) {
    tile::LoadAttr load = getKernel(routing).getLoadAttr();
    kernel = merged.makeKernel(symbols);
    kernel.setLoadAttr(load);
    setLaunchShape(kernel, context.target);
  }
  merged.replaceBy(kernel);
  return success();
}

std::unique_ptr<LaunchRewrite>
moec::makeQuantizeAhead(RewriteContext &context) {
  return std::make_unique<QuantizeAhead>("quantize-ahead", context);
}
