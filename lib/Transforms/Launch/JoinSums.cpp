//===- JoinSums.cpp - sums in the kernel of their gemm ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/JoinSums.h"
#include "../Tile/MergedLaunch.h"
#include "LaunchRewrite.h"

using namespace mlir;
using namespace moec;

namespace {

class JoinSums final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  /// The last phase of a launch's kernel, if it is a grouped gemm whose
  /// schedule can add its rows; else null.
  tile::GemmOp getLastProduct(plan::LaunchOp launch);
  /// The counter that the gemm has already; null if it has none.
  Value getOwnCounter(plan::LaunchOp launch);

  MergedKernels kernels;
};

} // namespace

tile::GemmOp JoinSums::getLastProduct(plan::LaunchOp launch) {
  tile::KernelOp kernel = getKernel(launch);
  auto product =
      kernel ? dyn_cast_or_null<tile::GemmOp>(
                   kernel.getBody().front().getTerminator()->getPrevNode())
             : nullptr;
  if (!product || !product.getOffsets())
    return nullptr;
  const Schedule *schedule = getSchedule(product);
  return schedule && schedule->as<JoinsSums>() ? product : nullptr;
}

std::vector<RewriteSite> JoinSums::match() {
  return matchPairs([&](plan::LaunchOp first, plan::LaunchOp second) {
    auto sums = getPhase<tile::GatherReduceOp>(second);
    tile::GemmOp product = sums ? getLastProduct(first) : nullptr;
    return product && sums.getConfig() &&
           getPassed(second, sums.getRows()) ==
               getPassed(first, product.getResult());
  });
}

Value JoinSums::getOwnCounter(plan::LaunchOp launch) {
  tile::GemmOp product = getLastProduct(launch);
  return getPassed(launch, product.getAwaits() ? product.getAwaits()
                                               : product.getTileCounter());
}

std::string JoinSums::whyIllegal(const RewriteSite &site) {
  plan::LaunchOp launch = site.getLaunch(0);
  tile::LoadAttr load = getKernel(launch).getLoadAttr();
  if (!load)
    return "the kernel has no 'load', so the gemm's rows are unknown";
  tile::GemmOp product = getLastProduct(launch);
  std::string why = getSchedule(product)->as<JoinsSums>()->whyApart(
      product, getPhase<tile::GatherReduceOp>(site.getLaunch(1)), load);
  if (!why.empty())
    return why;
  if (!getOwnCounter(launch) && !findSort(launch, product))
    return "no earlier sort can clear a counter for this gemm";
  if (!getParameter("always").value_or(0))
    return "the time of sums in the gemm's kernel has not been measured; the "
           "parameter 'always' joins them";
  return {};
}

LogicalResult JoinSums::commit(const RewriteSite &site) {
  plan::LaunchOp first = site.getLaunch(0), second = site.getLaunch(1);
  Value counter = getOwnCounter(first);
  if (!counter)
    counter = getCounter(findSort(first, getLastProduct(first)), symbols);
  SmallVector<Value> outs;
  if (!llvm::is_contained(first.getOuts(), counter))
    outs.push_back(counter);
  MergedLaunch merged(first, second, outs);
  tile::KernelOp one = getKernel(first);
  tile::KernelOp &kernel =
      kernels[{one.getSymNameAttr(), second.getKernelAttr().getAttr()}];
  if (!kernel) {
    kernel = merged.makeKernel(symbols);
    kernel.setLoadAttr(one.getLoadAttr());
    kernel.setResident(true);
    auto sums = cast<tile::GatherReduceOp>(
        kernel.getBody().front().getTerminator()->getPrevNode());
    Value argument = merged.getArgument(kernel, counter);
    cast<tile::GemmOp>(sums->getPrevNode())
        .getSignalsMutable()
        .assign(argument);
    sums.getAwaitsMutable().assign(argument);
    setLaunchShape(kernel, context.target);
  }
  merged.replaceBy(kernel);
  return success();
}

std::unique_ptr<LaunchRewrite> moec::makeJoinSums(RewriteContext &context) {
  return std::make_unique<JoinSums>("join-sums", context);
}
