//===- TileFuseRouting.cpp - routing and what follows it --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchShape.h"
#include "MergedLaunch.h"
#include "PassInputs.h"
#include "Variants.h"
#include "moec/Analysis/Rewrites/FollowPhase.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_TILEFUSEROUTINGPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

class RoutingFuser {
public:
  RoutingFuser(ModuleOp module, const PassInputs &inputs, int64_t most)
      : module(module), symbols(module), target(inputs.target),
        forced(inputs.forced), most(most) {}

  void run();

private:
  /// The launch right before that routes what this one counts or ranks.
  plan::LaunchOp getRouting(plan::LaunchOp second);
  /// The schedule of the launch's phase, if it can follow a routing.
  const FollowsPhase *getSchedule(plan::LaunchOp second);
  /// What a kernel is for in which one CTA routes and ranks all; null if there
  /// is none of that phase.
  tile::LoadAttr getLoad(tile::RankOp rank);
  std::optional<JoinedConfigs> chooseConfigs(plan::LaunchOp first,
                                             plan::LaunchOp second,
                                             tile::LoadAttr load);
  /// From how many tokens on a launch has too many slots for one CTA; nothing
  /// for any number, or if it is no such launch.
  std::optional<int64_t> getFirstTokens(plan::LaunchOp launch);
  void fuse(plan::LaunchOp second);

  ModuleOp module;
  SymbolTable symbols;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
  int64_t most;
  MergedKernels kernels;
};

const FollowsPhase *RoutingFuser::getSchedule(plan::LaunchOp second) {
  tile::KernelOp kernel = getKernel(second, symbols);
  if (!kernel ||
      !llvm::hasSingleElement(kernel.getBody().front().without_terminator()))
    return nullptr;
  auto config =
      kernel.getBody().front().front().getAttrOfType<tile::ConfigAttr>(
          "config");
  const Schedule *schedule =
      config ? findSchedule(target, config.getSchedule()) : nullptr;
  return schedule ? schedule->as<FollowsPhase>() : nullptr;
}

plan::LaunchOp RoutingFuser::getRouting(plan::LaunchOp second) {
  auto first = dyn_cast_or_null<plan::LaunchOp>(second->getPrevNode());
  if (!first || first.getStream() != second.getStream() || !getSchedule(second))
    return nullptr;
  auto routing = getPhase<tile::TopKOp>(first, symbols);
  if (!routing || !routing.getConfig() ||
      isForced(getKernel(first, symbols), forced) ||
      isForced(getKernel(second, symbols), forced))
    return nullptr;
  Value ids;
  if (auto rank = getPhase<tile::RankOp>(second, symbols)) {
    if (!rank.getCounts())
      ids = rank.getIds();
  } else if (auto count = getPhase<tile::CountSlotsOp>(second, symbols)) {
    ids = count.getIds();
  }
  return ids && getPassed(second, ids) == getPassed(first, routing.getIds())
             ? first
             : nullptr;
}

tile::LoadAttr RoutingFuser::getLoad(tile::RankOp rank) {
  constexpr int64_t mostTokens = 32;
  int64_t topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
  int64_t tokens = std::min(most / topK, mostTokens);
  return tokens ? tile::LoadAttr::get(module.getContext(), 0, tokens, topK,
                                      rank.getNumExperts())
                : tile::LoadAttr();
}

std::optional<JoinedConfigs> RoutingFuser::chooseConfigs(plan::LaunchOp first,
                                                         plan::LaunchOp second,
                                                         tile::LoadAttr load) {
  auto getFirstPhase = [&](plan::LaunchOp launch) {
    return &getKernel(launch, symbols).getBody().front().front();
  };
  return getSchedule(second)->follow(getFirstPhase(first),
                                     getFirstPhase(second), load);
}

std::optional<int64_t> RoutingFuser::getFirstTokens(plan::LaunchOp launch) {
  auto rank = getPhase<tile::RankOp>(launch, symbols);
  plan::LaunchOp first = rank ? getRouting(launch) : nullptr;
  tile::LoadAttr load = first ? getLoad(rank) : nullptr;
  if (!load || !chooseConfigs(first, launch, load))
    return std::nullopt;
  return load.getMaxTokens() + 1;
}

void RoutingFuser::fuse(plan::LaunchOp second) {
  plan::LaunchOp first = getRouting(second);
  if (!first)
    return;
  tile::LoadAttr load;
  if (auto rank = getPhase<tile::RankOp>(second, symbols)) {
    load = getLoad(rank);
    auto variant = cast<plan::VariantOp>(second->getParentOp());
    if (!load ||
        static_cast<int64_t>(variant.getMaxTokens()) > load.getMaxTokens())
      return;
  }
  std::optional<JoinedConfigs> configs = chooseConfigs(first, second, load);
  if (!configs)
    return;
  MergedLaunch merged(first, second);
  tile::KernelOp &kernel = kernels[{first.getKernelAttr().getAttr(),
                                    second.getKernelAttr().getAttr()}];
  if (!kernel) {
    kernel = merged.makeKernel(symbols);
    if (load)
      kernel.setLoadAttr(load);
    Block &body = kernel.getBody().front();
    body.front().setAttr("config", configs->first);
    body.getTerminator()->getPrevNode()->setAttr("config", configs->second);
    setLaunchShape(kernel, target);
  }
  merged.replaceBy(kernel);
}

void RoutingFuser::run() {
  splitVariants(module,
                [&](plan::LaunchOp launch) { return getFirstTokens(launch); });
  for (plan::LaunchOp second : getVariantLaunches(module))
    fuse(second);
  eraseMerged(module, kernels, symbols);
}

struct TileFuseRouting : moec::impl::TileFuseRoutingPassBase<TileFuseRouting> {
  using TileFuseRoutingPassBase::TileFuseRoutingPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-fuse-routing", target, part, configs);
    if (!inputs)
      return signalPassFailure();
    if (most < 0) {
      getOperation().emitError("tile-fuse-routing: most = ")
          << most.getValue() << "; give 0 or more slots";
      return signalPassFailure();
    }
    RoutingFuser(getOperation(), *inputs, most).run();
  }
};

} // namespace
