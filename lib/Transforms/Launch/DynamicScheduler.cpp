//===- DynamicScheduler.cpp - counters of tiles to take next ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchRewrite.h"
#include "moec/Schedules/Device.h"

using namespace mlir;
using namespace moec;

namespace {

/// The config says whether a gemm uses the dynamic tile scheduler, since
/// BLOCK_M depends on it. The sort before the gemm clears the counter.
class DynamicScheduler final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &site) override;

private:
  /// The launch that can clear the counter; null if there is none.
  plan::LaunchOp findRanking(plan::LaunchOp launch);
};

} // namespace

plan::LaunchOp DynamicScheduler::findRanking(plan::LaunchOp launch) {
  plan::LaunchOp ranking = findSort(launch, getPhase<tile::GemmOp>(launch));
  if (!ranking)
    return nullptr;
  // Joined gemms do not reset the counter.
  for (Operation *op = launch->getPrevNode(); op != ranking;
       op = op->getPrevNode())
    if (auto between = dyn_cast<plan::LaunchOp>(op))
      if (tile::KernelOp kernel = getKernel(between))
        if (llvm::any_of(kernel.getBody().getOps<tile::GemmOp>(),
                         [](tile::GemmOp op) { return op.getSignals(); }))
          return nullptr;
  return ranking;
}

std::vector<RewriteSite> DynamicScheduler::match() {
  return matchKernels<tile::GemmOp>([](plan::LaunchOp, tile::GemmOp product) {
    return !product.getTileCounter() && product.getConfig() &&
           product.getConfigAttr().getDynamicScheduler();
  });
}

std::string DynamicScheduler::whyIllegal(const RewriteSite &site) {
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    if (!findRanking(occurrence.front()))
      return "no earlier sort can clear a counter";
  return {};
}

/// Compares a fixed order of the same tiles with the dynamic scheduler. A CTA's
/// first tile is not drawn from the counter, which saves its share of the other
/// tiles' time. No kernel is added.
std::optional<PredictedChange>
DynamicScheduler::predict(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  tile::LoadAttr load = kernel.getLoadAttr();
  tile::GemmOp product = getProduct(kernel);
  const auto *modelled = getSchedule(product)->as<ModelsTime>();
  if (!load || !modelled || isForced(kernel))
    return std::nullopt;
  tile::ConfigAttr dynamic = product.getConfigAttr(),
                   ordered = dynamic.withDynamicScheduler(false);
  std::unique_ptr<CostModel> model =
      modelled->costModel(product, load, context.target);
  double share = context.objective.getDevice().dynamicSchedulerShare;
  PredictedChange change{getPoints(site)};
  for (const TokenPoint &point : change.points)
    for (const WeightedRouting &weighted : getWeightedRoutings()) {
      auto predictAs = [&](tile::ConfigAttr config) {
        return model->predict(config, point.tokens, weighted.routing);
      };
      Prediction drawn = predictAs(dynamic);
      double first = 1 / std::max(drawn.waves, 1.0);
      change.before.push_back(predictAs(ordered).us);
      change.after.push_back(drawn.us * (1 - share * (1 - first)));
    }
  return change;
}

LogicalResult DynamicScheduler::commit(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  tile::GemmOp product = getProduct(kernel);
  // After the other arguments, before the tokens.
  unsigned number = kernel.getBody().getNumArguments() - 1;
  Value counter;
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    plan::LaunchOp launch = occurrence.front();
    counter = getCounter(findRanking(launch), symbols);
    launch.getOutsMutable().append(counter);
  }
  if (failed(kernel.insertArgument(number, counter.getType(), DictionaryAttr(),
                                   product.getLoc())))
    return kernel.emitOpError("cannot take the tile counter as an operand");
  product.getTileCounterMutable().assign(kernel.getArgument(number));
  setLaunchShape(kernel, context.target);
  return success();
}

/// Uses a fixed tile order, with BLOCK_M chosen for it, as no launch clears a
/// counter.
void DynamicScheduler::leave(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  tile::GemmOp product = getProduct(kernel);
  product.setConfigAttr(product.getConfigAttr().withDynamicScheduler(false));
  setLaunchShape(kernel, context.target);
}

std::unique_ptr<LaunchRewrite>
moec::makeDynamicScheduler(RewriteContext &context) {
  return std::make_unique<DynamicScheduler>("dynamic-scheduler", context);
}
