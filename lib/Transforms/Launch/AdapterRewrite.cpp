//===- AdapterRewrite.cpp - rewrites of gemms with adapters -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AdapterRewrite.h"

using namespace mlir;
using namespace moec;

plan::LaunchOp AdapterRewrite::findShrink(plan::LaunchOp launch) {
  Value shrunk = getPassed(launch, getPhase<tile::GemmOp>(launch).getShrunk());
  plan::LaunchOp shrink = findWriter(launch, shrunk);
  if (!shrink || shrink.getStream() != launch.getStream() ||
      shrink.getTokensAttr() || !getPhase<tile::LoraShrinkOp>(shrink))
    return nullptr;
  bool isShared = llvm::any_of(shrunk.getUsers(), [&](Operation *user) {
    return user->getBlock() == launch->getBlock() && user != launch &&
           user != shrink;
  });
  return isShared ? nullptr : shrink;
}

std::vector<RewriteSite> AdapterRewrite::match() {
  std::vector<RewriteSite> sites = matchKernels<tile::GemmOp>(
      [&](plan::LaunchOp launch, tile::GemmOp product) {
        return product.getShrunk() && getSchedule(product);
      });
  // A kernel has one signature: all of its launches are rewritten.
  llvm::erase_if(sites, [&](RewriteSite &site) {
    return llvm::any_of(
        site.occurrences, [&](RewriteSite::Occurrence &occurrence) {
          plan::LaunchOp shrink = findShrink(occurrence.front());
          if (shrink)
            occurrence.insert(occurrence.begin(), shrink);
          return !shrink;
        });
  });
  return sites;
}

std::string AdapterRewrite::whyIllegal(const RewriteSite &site) {
  if (isForced(getKernel(site.getLaunch(0))))
    return "the shrink has a forced config";
  if (getPhase<tile::GemmOp>(site.getLaunch(1)).getSumOrderAttr())
    return "the order of sums is fixed, but updates have another one";
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    if (getKernel(occurrence[0]) != getKernel(site.getLaunch(0)))
      return "launches of the gemm have rows of different shrinks";
  return {};
}

void AdapterRewrite::growLoad(tile::KernelOp kernel, const RewriteSite &site) {
  tile::LoadAttr load = getKernel(site.getLaunch(1)).getLoadAttr();
  tile::LoadAttr other = kernel.getLoadAttr();
  if (load && !other)
    kernel.setLoadAttr(load);
  if (load && other)
    kernel.setLoadAttr(tile::LoadAttr::get(
        load.getContext(), std::min(load.getMinTokens(), other.getMinTokens()),
        std::max(load.getMaxTokens(), other.getMaxTokens()), load.getTopK(),
        load.getExperts()));
}

std::optional<PredictedChange>
AdapterRewrite::predict(const RewriteSite &site) {
  if (getParameter("always").value_or(0))
    return std::nullopt;
  tile::LoadAttr load = getKernel(site.getLaunch(1)).getLoadAttr();
  // All launches of the gemm's kernel.
  std::vector<plan::LaunchOp> launches;
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    launches.push_back(occurrence[1]);
  PredictedChange change{getPoints(RewriteSite(launches))};
  change.before = context.objective.predict(
      {getForm(site.getLaunch(0), load), getForm(site.getLaunch(1))},
      change.points);
  change.after = context.objective.predict(
      {getForm(added.getLaunch(0), load), getForm(added.getLaunch(1))},
      change.points);
  change.penalty = getPenaltyOf(added.getLaunch(0), added) -
                   getPenaltyOf(site.getLaunch(0), site);
  return change;
}

LogicalResult AdapterRewrite::commit(const RewriteSite &site) {
  commitAdded(site, added, built);
  return success();
}

void AdapterRewrite::leave(const RewriteSite &site) {
  eraseAdded(added, built);
  // The time of the shrink follows from its rows.
  growLoad(getKernel(site.getLaunch(0)), site);
}
