//===- AppendAdapters.cpp - adapters as columns of a gemm's rows *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/AppendAdapters.h"
#include "AdapterRewrite.h"

using namespace mlir;
using namespace moec;

namespace {

class AppendAdapters final : public AdapterRewrite {
public:
  using AdapterRewrite::AdapterRewrite;

  FailureOr<std::string> build(const RewriteSite &site) override;

private:
  /// A copy of a kernel whose argument `memref` has elements of type `element`.
  tile::KernelOp copyWith(tile::KernelOp kernel, Value memref, Type element);
  /// The config of a shrink that is predicted to take the least time.
  tile::ConfigAttr chooseShrink(const RewriteSite &site);
  /// The kernel that rounds what the site's shrink computes.
  tile::KernelOp makeShrink(const RewriteSite &site, Type element);
  Value getRounded(plan::LaunchOp shrink, Type type);
  void launch(plan::LaunchOp shrink, plan::LaunchOp product,
              tile::KernelOp rounding);

  /// From rows of f32 to the rounded ones.
  llvm::MapVector<Value, Value> rows;
  /// From a kernel that does not round, and its config, to the one that does.
  llvm::MapVector<std::pair<Operation *, tile::ConfigAttr>, tile::KernelOp>
      shrinks;
};

} // namespace

tile::KernelOp AppendAdapters::copyWith(tile::KernelOp kernel, Value memref,
                                        Type element) {
  tile::KernelOp copy = kernel.clone();
  symbols.insert(copy, std::next(kernel->getIterator()));
  BlockArgument argument =
      copy.getArgument(cast<BlockArgument>(memref).getArgNumber());
  auto type = cast<MemRefType>(argument.getType());
  argument.setType(MemRefType::get(type.getShape(), element));
  copy.setFunctionType(FunctionType::get(
      copy.getContext(), copy.getBody().getArgumentTypes(), {}));
  return copy;
}

tile::ConfigAttr AppendAdapters::chooseShrink(const RewriteSite &site) {
  auto shrink = getPhase<tile::LoraShrinkOp>(site.getLaunch(0));
  tile::LoadAttr load = getKernel(site.getLaunch(1)).getLoadAttr();
  tile::ConfigAttr given = shrink.getConfigAttr(), chosen = given;
  if (!context.objective.hasTimes() || !load)
    return chosen;
  SmallVector<plan::LaunchOp> launches;
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    launches.push_back(occurrence[1]);
  SmallVector<TokenPoint> points = getPoints(RewriteSite(launches));
  std::optional<double> least;
  for (const Schedule *schedule : getSchedulesFor(context.target, shrink)) {
    tile::ConfigAttr config = schedule->choose(shrink, context.target);
    if (!schedule->as<PredictsTime>() ||
        !schedule->whyIllegal(shrink, config, context.target).empty())
      continue;
    double us = 0;
    // Times are those of the op's own config.
    shrink.setConfigAttr(config);
    for (double time :
         context.objective.predict({PhaseForm{shrink, config, load}}, points))
      us += time;
    if (!least || us < *least) {
      least = us;
      chosen = config;
    }
  }
  shrink.setConfigAttr(given);
  return chosen;
}

tile::KernelOp AppendAdapters::makeShrink(const RewriteSite &site,
                                          Type element) {
  tile::KernelOp kernel = getKernel(site.getLaunch(0));
  tile::ConfigAttr config = chooseShrink(site);
  tile::KernelOp &rounding = shrinks[{kernel, config}];
  if (rounding) {
    growLoad(rounding, site);
    return rounding;
  }
  auto shrink = getPhase<tile::LoraShrinkOp>(site.getLaunch(0));
  rounding = copyWith(kernel, shrink.getResult(), element);
  if (tile::LoadAttr load = getKernel(site.getLaunch(1)).getLoadAttr())
    rounding.setLoadAttr(load);
  auto phases = rounding.getBody().getOps<tile::LoraShrinkOp>();
  (*phases.begin()).setConfigAttr(config);
  setLaunchShape(rounding, context.target);
  return rounding;
}

Value AppendAdapters::getRounded(plan::LaunchOp shrink, Type type) {
  auto op = getPhase<tile::LoraShrinkOp>(shrink);
  Value result = getPassed(shrink, op.getResult());
  Value &rounded = rows[result];
  if (!rounded)
    rounded = addRows(shrink->getParentOfType<plan::ProgramOp>(),
                      shrink.getLoc(), type, moec::getName(result) + "_rounded",
                      static_cast<int64_t>(op.getTopK()));
  return rounded;
}

void AppendAdapters::launch(plan::LaunchOp shrink, plan::LaunchOp product,
                            tile::KernelOp rounding) {
  Value shrunk =
      getPassed(product, getPhase<tile::GemmOp>(product).getShrunk());
  Value rounded = getRounded(shrink, getProduct(built).getShrunk().getType());
  RewriteSite::Occurrence copies;
  for (auto [launch, kernel] :
       {std::pair(shrink, rounding), std::pair(product, built)}) {
    OpBuilder builder(launch);
    auto copy = cast<plan::LaunchOp>(builder.clone(*launch));
    copy.setKernel(kernel.getSymName());
    copy->replaceUsesOfWith(shrunk, rounded);
    copies.push_back(copy);
  }
  added.occurrences.push_back(std::move(copies));
}

FailureOr<std::string> AppendAdapters::build(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch(1));
  tile::GemmOp gemm = getProduct(kernel);
  Type element = getElementTypeOrSelf(gemm.getMatrices().front());
  if (element.isF32())
    return std::string("tensor cores do not multiply f32 exactly");
  built = copyWith(kernel, gemm.getShrunk(), element);
  tile::KernelOp rounding = makeShrink(site, element);
  // The new kernel needs launches, since its schedule looks at their operands.
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    launch(occurrence[0], occurrence[1], rounding);
  tile::GemmOp product = getProduct(built);
  if (!isForced(kernel))
    if (tile::ConfigAttr config =
            chooseForLoad(product, context.target, kernel.getLoadAttr()))
      product.setConfigAttr(config);
  const Schedule *schedule = getSchedule(product);
  std::string reason =
      schedule->whyIllegal(product, product.getConfigAttr(), context.target);
  if (reason.empty() && !schedule->as<AppendsAdapters>())
    reason = schedule->name.str() + " multiplies second matrices in its "
                                    "epilogue";
  if (!reason.empty()) {
    eraseAdded(added, built);
    return reason;
  }
  setLaunchShape(built, context.target);
  return std::string();
}

std::unique_ptr<LaunchRewrite>
moec::makeAppendAdapters(RewriteContext &context) {
  return std::make_unique<AppendAdapters>("append-adapters", context);
}
