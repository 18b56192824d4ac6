//===- TileQuantizeAhead.cpp - quantize while logits are made ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A product of few tokens waits for the launch before it, and that one, if it
// quantizes, for the routing before: whoever waits relies on all before to have
// ended. In one kernel with the routing it is a wait less.

#include "LaunchShape.h"
#include "MergedLaunch.h"
#include "PassInputs.h"
#include "moec/Analysis/Rewrites/FollowPhase.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_TILEQUANTIZEAHEADPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

class AheadQuantizer {
public:
  AheadQuantizer(ModuleOp module, const PassInputs &inputs)
      : module(module), symbols(module), target(inputs.target),
        forced(inputs.forced) {}

  void run();

private:
  /// The launch right before that routes and ranks, in one CTA.
  plan::LaunchOp getRouting(plan::LaunchOp quantization);
  void merge(plan::LaunchOp quantization);

  ModuleOp module;
  SymbolTable symbols;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
  MergedKernels kernels;
};

plan::LaunchOp AheadQuantizer::getRouting(plan::LaunchOp quantization) {
  auto quantize = getPhase<tile::QuantizeOp>(quantization, symbols);
  auto routing = dyn_cast_or_null<plan::LaunchOp>(quantization->getPrevNode());
  tile::KernelOp kernel = routing ? getKernel(routing, symbols) : nullptr;
  if (!quantize || !quantize.getConfig() || !kernel ||
      routing.getStream() != quantization.getStream() ||
      isForced(getKernel(quantization, symbols), forced))
    return nullptr;
  Block &body = kernel.getBody().front();
  auto first = dyn_cast<tile::TopKOp>(body.front());
  if (!first || !first.getConfig() ||
      !isa<tile::RankOp>(body.getTerminator()->getPrevNode()))
    return nullptr;
  const Schedule *schedule =
      findSchedule(target, first.getConfigAttr().getSchedule());
  const auto *follows = schedule ? schedule->as<FollowsPhase>() : nullptr;
  if (!follows || !follows->follow(quantize, first, kernel.getLoadAttr()))
    return nullptr;
  // Or it would wait for them, and the logits with it.
  for (Operation *op = routing; op; op = op->getPrevNode())
    if (auto before = dyn_cast<plan::LaunchOp>(op);
        before &&
        !isIndependent(quantization.getIns(), quantization.getOuts(), before))
      return nullptr;
  return routing;
}

void AheadQuantizer::merge(plan::LaunchOp quantization) {
  plan::LaunchOp routing = getRouting(quantization);
  if (!routing)
    return;
  MergedLaunch merged(quantization, routing);
  tile::LoadAttr load = getKernel(routing, symbols).getLoadAttr();
  tile::KernelOp &kernel = kernels[{quantization.getKernelAttr().getAttr(),
                                    routing.getKernelAttr().getAttr()}];
  if (!kernel) {
    kernel = merged.makeKernel(symbols);
    kernel.setLoadAttr(load);
    setLaunchShape(kernel, target);
  }
  merged.replaceBy(kernel);
}

void AheadQuantizer::run() {
  for (plan::LaunchOp launch : getVariantLaunches(module))
    merge(launch);
  eraseMerged(module, kernels, symbols);
}

struct TileQuantizeAhead
    : moec::impl::TileQuantizeAheadPassBase<TileQuantizeAhead> {
  using TileQuantizeAheadPassBase::TileQuantizeAheadPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-quantize-ahead", target, part, configs);
    if (!inputs)
      return signalPassFailure();
    AheadQuantizer(getOperation(), *inputs).run();
  }
};

} // namespace
