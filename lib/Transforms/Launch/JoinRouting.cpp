//===- JoinRouting.cpp - each CTA of a gemm routes and sorts ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/JoinRouting.h"
#include "../Tile/MergedLaunch.h"
#include "LaunchRewrite.h"

using namespace mlir;
using namespace moec;

namespace {

/// A kernel that routes and sorts.
struct RoutingPhases {
  tile::TopKOp routing;
  tile::SortByExpertOp sort;
};

class JoinRouting final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  std::optional<RoutingPhases> getRouting(plan::LaunchOp launch);
  /// The first phase of a launch's kernel, if it is a grouped gemm whose CTAs
  /// can sort; else null.
  tile::GemmOp getProduct(plan::LaunchOp launch);
  /// The launch right before that makes logits and can clear a counter; null if
  /// there is none.
  plan::LaunchOp findClearing(plan::LaunchOp routing);
  /// The most tokens of a launch of the merged kernel.
  static int64_t getMaxTokens(plan::LaunchOp launch, tile::LoadAttr load);
  /// Clears the counter in an earlier launch, since CTAs of the merged one use
  /// it at once.
  void clearEarlier(plan::LaunchOp routing, Value counter);
  void makePrivate(tile::KernelOp kernel, const MergedLaunch &merged,
                   plan::LaunchOp routing, Value counter, int64_t tokens);
  /// Removes stages until dynamic shared memory leaves room; false if it never
  /// does.
  bool fit(tile::KernelOp kernel, int64_t sharedBytes);
};

} // namespace

std::optional<RoutingPhases> JoinRouting::getRouting(plan::LaunchOp launch) {
  tile::KernelOp kernel = getKernel(launch);
  if (!kernel)
    return std::nullopt;
  Block &body = kernel.getBody().front();
  RoutingPhases phases{dyn_cast<tile::TopKOp>(body.front()), nullptr};
  if (!phases.routing || !phases.routing.getConfig())
    return std::nullopt;
  phases.sort = dyn_cast<tile::SortByExpertOp>(phases.routing->getNextNode());
  if (!phases.sort || phases.sort->getNextNode() != body.getTerminator())
    return std::nullopt;
  return phases;
}

tile::GemmOp JoinRouting::getProduct(plan::LaunchOp launch) {
  tile::KernelOp kernel = getKernel(launch);
  auto product = kernel
                     ? dyn_cast<tile::GemmOp>(kernel.getBody().front().front())
                     : nullptr;
  if (!product || !product.getOffsets() || !product.getConfig())
    return nullptr;
  const Schedule *schedule = getSchedule(product);
  return schedule && schedule->as<FollowsSort>() ? product : nullptr;
}

std::vector<RewriteSite> JoinRouting::match() {
  return matchPairs([&](plan::LaunchOp first, plan::LaunchOp second) {
    std::optional<RoutingPhases> phases = getRouting(first);
    tile::GemmOp product = phases ? getProduct(second) : nullptr;
    return product && getPassed(second, product.getOffsets()) ==
                          getPassed(first, phases->sort.getOffsets());
  });
}

plan::LaunchOp JoinRouting::findClearing(plan::LaunchOp routing) {
  auto before = dyn_cast_or_null<plan::LaunchOp>(routing->getPrevNode());
  auto logits = before && before.getStream() == routing.getStream()
                    ? getPhase<tile::GemmOp>(before)
                    : nullptr;
  if (!logits || before.getTokensAttr())
    return nullptr;
  const Schedule *schedule = getSchedule(logits);
  return schedule && schedule->as<ClearsCounters>() ? before : nullptr;
}

int64_t JoinRouting::getMaxTokens(plan::LaunchOp launch, tile::LoadAttr load) {
  auto variant = cast<plan::VariantOp>(launch->getParentOp());
  return std::min<int64_t>(variant.getMaxTokens(), load.getMaxTokens());
}

std::string JoinRouting::whyIllegal(const RewriteSite &site) {
  plan::LaunchOp first = site.getLaunch(0), second = site.getLaunch(1);
  RoutingPhases phases = *getRouting(first);
  if (!getKernel(second).getLoadAttr())
    return "the gemm's kernel has no 'load', so its rows are unknown";
  if (phases.routing.getRecordedIds())
    return "each CTA would record the ids";
  if (phases.sort.getCounter() && !findClearing(first))
    return "no launch before the routing can clear the counter";
  if (!getParameter("always").value_or(0))
    return "the time of routing in the gemm's kernel has not been measured; "
           "the parameter 'always' joins them";
  return {};
}

FailureOr<std::string> JoinRouting::build(const RewriteSite &site) {
  plan::LaunchOp first = site.getLaunch(0), second = site.getLaunch(1);
  RoutingPhases phases = *getRouting(first);
  tile::KernelOp product = getKernel(second);
  std::optional<SortsInEachCta::Configs> configs =
      getSchedule(phases.sort)
          ->as<SortsInEachCta>()
          ->sortInEachCta(phases.routing, phases.sort,
                          getMaxTokens(second, product.getLoadAttr()),
                          static_cast<int64_t>(*product.getBlock()));
  return configs ? std::string()
                 : std::string("a CTA cannot sort that many slots");
}

void JoinRouting::clearEarlier(plan::LaunchOp routing, Value counter) {
  plan::LaunchOp clearing = findClearing(routing);
  tile::KernelOp kernel = getKernel(clearing);
  auto logits = getPhase<tile::GemmOp>(clearing);
  if (logits.getCleared())
    return;
  unsigned number = kernel.getBody().getNumArguments() - 1;
  (void)kernel.insertArgument(number, counter.getType(), DictionaryAttr(),
                              logits.getLoc());
  context.module.walk([&](plan::LaunchOp launch) {
    if (launch.getKernel() == kernel.getSymName())
      launch.getOutsMutable().append(counter);
  });
  logits.getClearedMutable().assign(kernel.getArgument(number));
  setLaunchShape(kernel, context.target);
}

void JoinRouting::makePrivate(tile::KernelOp kernel, const MergedLaunch &merged,
                              plan::LaunchOp routing, Value counter,
                              int64_t tokens) {
  SmallVector<int64_t> rows(kernel.getBody().getNumArguments() - 1, 0);
  for (Value out : routing.getOuts()) {
    if (out == counter)
      continue;
    auto argument = cast<BlockArgument>(merged.getArgument(kernel, out));
    auto buffer = out.getDefiningOp<plan::BufferOp>();
    plan::ExprAttr dynamic =
        buffer ? buffer.getRowsAttr()
               : out.getDefiningOp<plan::TensorOp>().getRowsAttr();
    rows[argument.getArgNumber()] =
        dynamic ? *dynamic.getExpr().evaluate(tokens)
                : cast<MemRefType>(out.getType()).getDimSize(0);
  }
  kernel.setPrivateRows(rows);
}

bool JoinRouting::fit(tile::KernelOp kernel, int64_t sharedBytes) {
  for (BlockArgument argument : kernel.getBody().getArguments())
    if (int64_t rows = kernel.getPrivateRowsOf(argument)) {
      auto type = cast<MemRefType>(argument.getType());
      sharedBytes += rows * type.getElementTypeBitWidth() / 8 *
                     (type.getRank() > 1 ? type.getDimSize(1) : 1);
    }
  auto products = llvm::to_vector(kernel.getBody().getOps<tile::GemmOp>());
  while (true) {
    setLaunchShape(kernel, context.target);
    if (static_cast<int64_t>(*kernel.getShared()) + sharedBytes <=
        context.target.getSharedBytes())
      return true;
    for (tile::GemmOp product : products) {
      tile::ConfigAttr config =
          getSchedule(product)->as<FollowsSort>()->shrink(product);
      if (!config)
        return false;
      product.setConfigAttr(config);
    }
  }
}

LogicalResult JoinRouting::commit(const RewriteSite &site) {
  plan::LaunchOp first = site.getLaunch(0), second = site.getLaunch(1);
  Value counter = getPassed(first, getRouting(first)->sort.getCounter());
  tile::KernelOp product = getKernel(second);
  tile::LoadAttr load = product.getLoadAttr();
  int64_t tokens = getMaxTokens(second, load);
  MergedLaunch merged(first, second);
  tile::KernelOp kernel = merged.makeKernel(symbols);
  kernel.setLoadAttr(tile::LoadAttr::get(
      load.getContext(), std::min<int64_t>(load.getMinTokens(), tokens), tokens,
      load.getTopK(), load.getExperts()));
  kernel.setResident(product.getResident());
  auto routing = cast<tile::TopKOp>(kernel.getBody().front().front());
  auto sort = cast<tile::SortByExpertOp>(routing->getNextNode());
  SortsInEachCta::Configs configs =
      *getSchedule(sort)->as<SortsInEachCta>()->sortInEachCta(
          routing, sort, tokens, static_cast<int64_t>(*product.getBlock()));
  routing.setConfigAttr(configs.routing);
  sort.setConfigAttr(configs.sort);
  sort.getCounterMutable().clear();
  makePrivate(kernel, merged, first, counter, tokens);
  if (!fit(kernel, configs.sharedBytes))
    return kernel.emitOpError("has too little shared memory for the tables of "
                              "the routing; give the gemms fewer stages");
  if (counter)
    clearEarlier(first, counter);
  merged.replaceBy(kernel);
  return success();
}

std::unique_ptr<LaunchRewrite> moec::makeJoinRouting(RewriteContext &context) {
  return std::make_unique<JoinRouting>("join-routing", context);
}
