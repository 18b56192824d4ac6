//===- MulticastWeights.cpp - weights for clusters of CTAs ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/MulticastWeights.h"
#include "LaunchRewrite.h"
#include "moec/Schedules/Cost.h"

using namespace mlir;
using namespace moec;

namespace {

class MulticastWeights final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  const MulticastsWeights *getMulticasting(tile::GemmOp product) {
    const Schedule *schedule = getSchedule(product);
    return schedule ? schedule->as<MulticastsWeights>() : nullptr;
  }
};

} // namespace

std::vector<RewriteSite> MulticastWeights::match() {
  return matchKernels<tile::GemmOp>([&](plan::LaunchOp, tile::GemmOp product) {
    const MulticastsWeights *multicasting = getMulticasting(product);
    return product.getOffsets() && multicasting &&
           multicasting->withMulticast(product.getConfigAttr());
  });
}

std::string MulticastWeights::whyIllegal(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  tile::GemmOp product = getProduct(kernel);
  tile::ConfigAttr config = product.getConfigAttr();
  const MulticastsWeights *multicasting = getMulticasting(product);
  if (isForced(kernel))
    return "the config is forced";
  std::string why = getSchedule(product)->whyIllegal(
      product, multicasting->withMulticast(config), context.target);
  if (!why.empty())
    return why;
  if (!getParameter("always").value_or(0))
    return "clusters gain nothing where power bounds the gemm; the parameter "
           "'always' uses them";
  tile::LoadAttr load = kernel.getLoadAttr();
  if (!load)
    return "the kernel has no 'load', so the gemm's rows are unknown";
  int64_t groups =
      cast<MemRefType>(product.getWeight().getType()).getDimSize(0);
  // An odd tile takes the time of two.
  constexpr int64_t kPairs = 2;
  llvm::SmallVector<int64_t> points =
      getTokenPoints(load.getMinTokens(), load.getMaxTokens());
  int64_t tokens = points[points.size() / 2];
  if (tokens * load.getTopK() <
      kPairs * multicasting->getPairedRows(config) * groups)
    return "groups have fewer than four tiles at " + std::to_string(tokens) +
           " tokens, the middle of the range";
  return {};
}

LogicalResult MulticastWeights::commit(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  tile::GemmOp product = getProduct(kernel);
  product.setConfigAttr(
      getMulticasting(product)->withMulticast(product.getConfigAttr()));
  setLaunchShape(kernel, context.target);
  return success();
}

std::unique_ptr<LaunchRewrite>
moec::makeMulticastWeights(RewriteContext &context) {
  return std::make_unique<MulticastWeights>("multicast-weights", context);
}
