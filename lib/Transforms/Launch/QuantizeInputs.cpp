//===- QuantizeInputs.cpp - products that quantize their rows ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/QuantizeInputs.h"
#include "../Tile/MergedLaunch.h"
#include "LaunchRewrite.h"
#include "moec/Schedules/Device.h"
#include "moec/Schedules/LaunchShape.h"

using namespace mlir;
using namespace moec;

namespace {

class QuantizeInputs final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  /// The launch before a gemm's that quantizes its rows; or null.
  plan::LaunchOp findQuantization(plan::LaunchOp launch);
  double getShare(plan::LaunchOp launch, int64_t tokens);
  /// The launch that can clear the counter of both; null if there is none.
  plan::LaunchOp findRanking(plan::LaunchOp launch);
};

} // namespace

plan::LaunchOp QuantizeInputs::findQuantization(plan::LaunchOp launch) {
  auto before = dyn_cast_or_null<plan::LaunchOp>(launch->getPrevNode());
  if (!before || before.getStream() != launch.getStream() ||
      before.getTokensAttr())
    return nullptr;
  auto quantize = getPhase<tile::QuantizeOp>(before);
  auto product = getPhase<tile::GemmOp>(launch);
  if (!quantize || !quantize.getConfig() || !product.getOffsets() ||
      !product.getInputScale())
    return nullptr;
  Value scale = quantize.getTensorScale() ? quantize.getTensorScale()
                                          : quantize.getScale();
  bool isOfRows =
      getPassed(launch, product.getInput()) ==
          getPassed(before, quantize.getQuantized()) &&
      getPassed(launch, product.getInputScale()) == getPassed(before, scale) &&
      getPassed(launch, product.getOffsets()) ==
          getPassed(before, quantize.getOffsets());
  return isOfRows ? before : nullptr;
}

std::vector<RewriteSite> QuantizeInputs::match() {
  std::vector<RewriteSite> sites = matchKernels<tile::GemmOp>(
      [&](plan::LaunchOp launch, tile::GemmOp product) {
        const Schedule *schedule = getSchedule(product);
        return schedule && schedule->as<QuantizesInputs>();
      });
  // A kernel has one signature: a quantization precedes all of its launches.
  llvm::erase_if(sites, [&](RewriteSite &site) {
    return llvm::any_of(
        site.occurrences, [&](RewriteSite::Occurrence &occurrence) {
          plan::LaunchOp before = findQuantization(occurrence.front());
          if (before)
            occurrence.insert(occurrence.begin(), before);
          return !before;
        });
  });
  return sites;
}

plan::LaunchOp QuantizeInputs::findRanking(plan::LaunchOp launch) {
  plan::LaunchOp ranking = findSort(launch, getPhase<tile::GemmOp>(launch));
  if (!ranking)
    return nullptr;
  // Other users of the counter leave it nonzero or, like this one, need it 0.
  auto counts = [&](Operation *op) {
    auto other = dyn_cast<plan::LaunchOp>(op);
    tile::KernelOp kernel = other ? getKernel(other) : nullptr;
    return kernel && llvm::any_of(kernel.getBody().getOps<tile::GemmOp>(),
                                  [](tile::GemmOp product) {
                                    return product.getAwaits();
                                  });
  };
  auto countsTiles = [&](Operation *op) {
    auto other = dyn_cast<plan::LaunchOp>(op);
    auto product = other ? getPhase<tile::GemmOp>(other) : nullptr;
    return product && product.getTileCounter();
  };
  for (Operation *op = ranking->getNextNode(); op; op = op->getNextNode())
    if (counts(op) || (launch->isBeforeInBlock(op) && countsTiles(op)))
      return nullptr;
  return ranking;
}

std::string QuantizeInputs::whyIllegal(const RewriteSite &site) {
  tile::LoadAttr load = getKernel(site.getLaunch(1)).getLoadAttr();
  if (!load)
    return "the kernel has no 'load', so the gemm's rows are unknown";
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    if (isForced(getKernel(occurrence[0])))
      return "the quantization has a forced config";
    if (!findRanking(occurrence[1]))
      return "no earlier sort can clear a counter for this gemm";
    auto product = getPhase<tile::GemmOp>(occurrence[1]);
    std::string why = getSchedule(product)->as<QuantizesInputs>()->whyApart(
        getPhase<tile::QuantizeOp>(occurrence[0]), product, load);
    if (!why.empty())
      return why;
  }
  return {};
}

/// The share of the device that the CTAs of a launch occupy.
double QuantizeInputs::getShare(plan::LaunchOp launch, int64_t tokens) {
  const DeviceRates &device = context.objective.getDevice();
  LaunchShape shape = getLaunchShape(getKernel(launch), context.target);
  moert::Result<int64_t> ctas = shape.grid.evaluate(tokens);
  constexpr double threadsPerMultiprocessor = 2048;
  double threads = ctas ? double(*ctas) * double(shape.block) : 0;
  return std::min(1.0, threads / threadsPerMultiprocessor /
                           double(device.multiprocessors));
}

/// Rows are read and written as by a separate launch. The gemm's CTAs begin
/// when all CTAs of such a launch have begun, which requires that as many
/// multiprocessors as they occupy have ended the launch before: that share of a
/// launch is saved. The wait of CTAs for each other is added.
std::optional<PredictedChange>
QuantizeInputs::predict(const RewriteSite &site) {
  if (getParameter("always").value_or(0))
    return std::nullopt;
  // Measured on an H200 with 1, 8 and 64 tokens: 1.0, 0.2 and 0.1 us.
  constexpr double waitUs = 0.4;
  tile::LoadAttr load = getKernel(site.getLaunch(1)).getLoadAttr();
  PhaseForm quantization = getForm(site.getLaunch(0), load),
            product = getForm(site.getLaunch(1));
  // All launches of the gemm's kernel.
  std::vector<plan::LaunchOp> launches;
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    launches.push_back(occurrence[1]);
  PredictedChange change{getPoints(RewriteSite(launches))};
  change.before =
      context.objective.predict({quantization, product}, change.points);
  quantization.isLaunched = false;
  change.after =
      context.objective.predict({quantization, product}, change.points);
  size_t numRoutings = getWeightedRoutings().size();
  for (auto [i, after] : llvm::enumerate(change.after)) {
    double share =
        getShare(site.getLaunch(0), change.points[i / numRoutings].tokens);
    after = change.before[i] - share * (change.before[i] - after) + waitUs;
  }
  change.penalty = -getPenaltyOf(site.getLaunch(0), site);
  return change;
}

LogicalResult QuantizeInputs::commit(const RewriteSite &site) {
  tile::KernelOp kernel;
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    plan::LaunchOp quantization = occurrence[0], launch = occurrence[1];
    Value counter = getCounter(findRanking(launch), symbols);
    SmallVector<Value> outs;
    if (!llvm::is_contained(launch.getOuts(), counter))
      outs.push_back(counter);
    MergedLaunch merged(quantization, launch, outs);
    if (!kernel) {
      tile::LoadAttr load = getKernel(launch).getLoadAttr();
      kernel = merged.makeKernel(symbols);
      kernel.setLoadAttr(load);
      kernel.setResident(true);
      auto product = cast<tile::GemmOp>(
          kernel.getBody().front().getTerminator()->getPrevNode());
      product.getAwaitsMutable().assign(merged.getArgument(kernel, counter));
      setLaunchShape(kernel, context.target);
    }
    merged.replaceBy(kernel);
  }
  return success();
}

std::unique_ptr<LaunchRewrite>
moec::makeQuantizeInputs(RewriteContext &context) {
  return std::make_unique<QuantizeInputs>("quantize-inputs", context);
}
