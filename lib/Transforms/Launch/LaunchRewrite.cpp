//===- LaunchRewrite.cpp - one way to rewrite launches ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchRewrite.h"

using namespace mlir;
using namespace moec;

const Schedule *LaunchRewrite::getSchedule(Operation *phase) {
  auto config = phase->getAttrOfType<tile::ConfigAttr>("config");
  return config ? findSchedule(context.target, config.getSchedule()) : nullptr;
}

std::optional<int64_t> LaunchRewrite::getParameter(StringRef parameter) const {
  for (const RewriteParameter &given : llvm::reverse(context.parameters))
    if (given.rewrite == name && given.name == parameter)
      return given.value;
  return std::nullopt;
}

std::vector<RewriteSite> LaunchRewrite::matchPairs(
    function_ref<bool(plan::LaunchOp, plan::LaunchOp)> accepts) {
  std::vector<RewriteSite> sites;
  plan::LaunchOp taken;
  for (plan::LaunchOp second : getVariantLaunches(context.module)) {
    auto first = dyn_cast_or_null<plan::LaunchOp>(second->getPrevNode());
    if (!first || first == taken || first.getStream() != second.getStream() ||
        first.getTokensAttr() || second.getTokensAttr() ||
        !accepts(first, second))
      continue;
    sites.push_back(RewriteSite::Occurrence{first, second});
    taken = second;
  }
  return sites;
}

plan::LaunchOp LaunchRewrite::findSort(plan::LaunchOp launch,
                                       tile::GemmOp product) {
  Value offsets = getPassed(launch, product.getOffsets());
  plan::LaunchOp sort = offsets ? findWriter(launch, offsets) : nullptr;
  return sort && sort.getStream() == launch.getStream() &&
                 getPhase<tile::SortByExpertOp>(sort)
             ? sort
             : nullptr;
}

SmallVector<TokenPoint> LaunchRewrite::getPoints(const RewriteSite &site) {
  SmallVector<TokenPoint> points;
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    if (auto variant =
            dyn_cast<plan::VariantOp>(occurrence.front()->getParentOp()))
      llvm::append_range(
          points, Objective::getPoints(
                      variant, getKernel(occurrence.front()).getLoadAttr()));
  return points;
}

PhaseForm LaunchRewrite::getForm(plan::LaunchOp launch, tile::LoadAttr load) {
  tile::KernelOp kernel = getKernel(launch);
  Operation *phase = &kernel.getBody().front().front();
  return {phase, phase->getAttrOfType<tile::ConfigAttr>("config"),
          load ? load : kernel.getLoadAttr()};
}

double LaunchRewrite::getPenaltyOf(plan::LaunchOp launch,
                                   const RewriteSite &site) {
  bool stays = false;
  context.module.walk([&](plan::LaunchOp other) {
    stays |= other.getKernel() == launch.getKernel() &&
             llvm::none_of(site.occurrences,
                           [&](const RewriteSite::Occurrence &occurrence) {
                             return llvm::is_contained(occurrence, other);
                           });
  });
  return stays ? 0 : getKernelPenalty(getKernel(launch));
}

void LaunchRewrite::replaceKernel(tile::KernelOp kernel,
                                  tile::KernelOp replacement) {
  StringAttr name = kernel.getSymNameAttr();
  symbols.erase(kernel);
  symbols.remove(replacement);
  replacement.setSymNameAttr(name);
  symbols.insert(replacement, replacement->getIterator());
}

static void eraseLaunches(const RewriteSite &site) {
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    for (plan::LaunchOp launch : occurrence)
      launch->erase();
}

void LaunchRewrite::commitAdded(const RewriteSite &site, RewriteSite &added,
                                tile::KernelOp &built) {
  tile::KernelOp kernel = getKernel(site.occurrences.front().back());
  StringAttr name = kernel.getSymNameAttr();
  replaceKernel(kernel, built);
  eraseLaunches(site);
  for (RewriteSite::Occurrence &occurrence : added.occurrences)
    occurrence.back().setKernel(name);
  added.occurrences.clear();
  built = nullptr;
}

void LaunchRewrite::eraseAdded(RewriteSite &added, tile::KernelOp &built) {
  eraseLaunches(added);
  added.occurrences.clear();
  if (built)
    symbols.erase(built);
  built = nullptr;
}
