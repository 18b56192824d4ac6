//===- CountIds.cpp - products that count ids themselves --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/CountIds.h"
#include "LaunchRewrite.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace moec;

namespace {

/// A `tile.sort_by_expert` over ids that can be counted, and these ids; null if
/// there is none.
struct Ranking {
  tile::SortByExpertOp rank;
  Value ids;

  bool isLike(const Ranking &other) {
    return rank && other.rank && ids == other.ids &&
           rank.getNumExperts() ==
               tile::SortByExpertOp(other.rank).getNumExperts() &&
           rank.getLocalExpertsAttr() ==
               tile::SortByExpertOp(other.rank).getLocalExpertsAttr();
  }
};

class CountIds final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  /// Finds the sort that a launch's offsets come from.
  Ranking findRanking(plan::LaunchOp launch);
  bool isConstant(Value ids);
  /// Whether the number of ids is within the given bound.
  bool areFew(plan::LaunchOp launch, Value ids);
};

} // namespace

static int64_t getTopK(Value ids) {
  return cast<MemRefType>(ids.getType()).getDimSize(1);
}

/// Whether the ids are an input of the caller that no launch writes.
bool CountIds::isConstant(Value ids) {
  auto tensor = ids.getDefiningOp<plan::TensorOp>();
  if (!tensor || tensor.getRole() != plan::Role::Input)
    return false;
  return llvm::none_of(ids.getUsers(), [&](Operation *user) {
    auto launch = dyn_cast<plan::LaunchOp>(user);
    return !launch || llvm::is_contained(launch.getOuts(), ids);
  });
}

bool CountIds::areFew(plan::LaunchOp launch, Value ids) {
  auto variant = dyn_cast<plan::VariantOp>(launch->getParentOp());
  if (!variant)
    return false;
  std::optional<int64_t> most = getParameter("most");
  return !most ||
         static_cast<int64_t>(variant.getMaxTokens()) <= *most / getTopK(ids);
}

Ranking CountIds::findRanking(plan::LaunchOp launch) {
  Value offsets =
      getPassed(launch, getPhase<tile::GemmOp>(launch).getOffsets());
  plan::LaunchOp before = findWriter(launch, offsets);
  auto rank = before ? getPhase<tile::SortByExpertOp>(before) : nullptr;
  if (!rank || rank.getNumValidTokens() ||
      getPassed(before, rank.getOffsets()) != offsets)
    return {};
  Value ids = getPassed(before, rank.getIds());
  if (!isConstant(ids) || !areFew(launch, ids))
    return {};
  return {rank, ids};
}

std::vector<RewriteSite> CountIds::match() {
  return matchKernels<tile::GemmOp>([&](plan::LaunchOp, tile::GemmOp product) {
    const Schedule *schedule = getSchedule(product);
    // Groups with many rows are rare: mostly there are no weights to copy
    // early.
    return product.getOffsets() && !product.getIds() &&
           !product.getMinGroupRows() && schedule && schedule->as<CountsIds>();
  });
}

std::string CountIds::whyIllegal(const RewriteSite &site) {
  // A kernel has one signature: all of its launches agree.
  Ranking first = findRanking(site.getLaunch());
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    if (!first.isLike(findRanking(occurrence.front())))
      return "the offsets do not come from one sort of few ids that are an "
             "input of the caller";
  return {};
}

/// Each CTA reads all ids, but copies weights while earlier launches still run.
/// No kernel is added, but a kernel grows by about the code of a sort.
std::optional<PredictedChange> CountIds::predict(const RewriteSite &site) {
  if (getParameter("most"))
    return std::nullopt;
  plan::LaunchOp launch = site.getLaunch();
  const auto &counts =
      *getSchedule(getPhase<tile::GemmOp>(launch))->as<CountsIds>();
  auto [rank, ids] = findRanking(launch);
  PredictedChange change{getPoints(site)};
  change.before = context.objective.predict(getForm(launch), change.points);
  change.after = change.before;
  double *us = change.after.begin();
  for (const TokenPoint &point : change.points)
    for (size_t i = 0; i < getWeightedRoutings().size(); ++i)
      *us++ -= counts.predictSaved(point.tokens * getTopK(ids),
                                   context.objective.getDevice());
  change.penalty = getKernelPenalty(rank->getParentOfType<tile::KernelOp>());
  return change;
}

LogicalResult CountIds::commit(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  auto product = cast<tile::GemmOp>(kernel.getBody().front().front());
  auto [rank, ids] = findRanking(site.getLaunch());
  // After the other ins, at the same index in every launch.
  unsigned number = site.getLaunch().getIns().size();
  if (failed(kernel.insertArgument(number, ids.getType(), DictionaryAttr(),
                                   product.getLoc())))
    return kernel.emitOpError("cannot take the ids as an operand");
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    plan::LaunchOp(occurrence.front()).getInsMutable().append(ids);
  product.getIdsMutable().assign(kernel.getArgument(number));
  product.setNumExperts(rank.getNumExperts());
  product.setLocalExpertsAttr(rank.getLocalExpertsAttr());
  // Tensor maps name arguments by number.
  setLaunchShape(kernel, context.target);
  return success();
}

std::unique_ptr<LaunchRewrite> moec::makeCountIds(RewriteContext &context) {
  return std::make_unique<CountIds>("count-ids", context);
}
