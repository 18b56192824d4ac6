//===- SplitLargeGroups.cpp - launches for large groups ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/SplitLargeGroups.h"
#include "LaunchRewrite.h"
#include "moec/Schedules/Device.h"

using namespace mlir;
using namespace moec;

namespace {

class SplitLargeGroups final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &site) override;

private:
  /// The last config forced for the kernel of large groups; or null.
  const ForcedConfig *findOwnForced(tile::KernelOp kernel);
  /// Fewest rows of a large group.
  int64_t getLargeGroupRows(tile::KernelOp kernel);
  /// Sets the config of the gemm for large groups, or returns the reason why
  /// there is none.
  FailureOr<std::string> chooseConfig(tile::KernelOp kernel);

  /// Built for a site.
  tile::KernelOp large;
  SmallVector<plan::LaunchOp> added;
  /// Time of the gemm with all groups.
  PointTimes before;
};

} // namespace

std::vector<RewriteSite> SplitLargeGroups::match() {
  return matchKernels<tile::GemmOp>([&](plan::LaunchOp launch,
                                        tile::GemmOp product) {
    const Schedule *schedule = getSchedule(product);
    return product.getOffsets() && product.takesAllGroups() && schedule &&
           schedule->as<SplitsLargeGroups>() && getKernel(launch).getLoadAttr();
  });
}

const ForcedConfig *SplitLargeGroups::findOwnForced(tile::KernelOp kernel) {
  const ForcedConfig *last = nullptr;
  for (const ForcedConfig &config : context.forced)
    if (config.isFor(getLargeGroupsName(kernel), kernel.getLoadAttr()))
      last = &config;
  return last;
}

int64_t SplitLargeGroups::getLargeGroupRows(tile::KernelOp kernel) {
  tile::GemmOp product = getProduct(kernel);
  return getSchedule(product)->as<SplitsLargeGroups>()->getLargeGroupRows(
      product, kernel.getLoadAttr());
}

std::string SplitLargeGroups::whyIllegal(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  tile::LoadAttr load = kernel.getLoadAttr();
  // A token has at most one row in a group.
  if (int64_t rows = getLargeGroupRows(kernel); load.getMaxTokens() < rows)
    return "no group can reach the " + std::to_string(rows) +
           " rows of a large group";
  if (findOwnForced(kernel))
    return {};
  // A config forced for all groups applies to large ones too.
  if (isForced(kernel))
    return "the forced config applies to all groups";
  if (!context.objective.hasTimes())
    return "the device has no cost model";
  // Large groups are rare, and a run without any should not slow down: at the
  // fewest tokens by at most an eighth of a percent of the gemm.
  constexpr double maxShare = 0.00125;
  int64_t fewest = std::max<int64_t>(load.getMinTokens(), 1);
  double product =
      context.objective
          .predict(getForm(site.getLaunch()), TokenPoint{nullptr, fewest})
          .front();
  return context.objective.getDevice().getIdleTime() > maxShare * product
             ? "a launch that finds no such group costs too much compared to "
               "the gemm"
             : "";
}

FailureOr<std::string> SplitLargeGroups::chooseConfig(tile::KernelOp kernel) {
  const ForcedConfig *own = findOwnForced(kernel);
  tile::GemmOp product = getProduct(large);
  const Schedule &schedule = *getSchedule(product);
  tile::ConfigAttr config = schedule.as<SplitsLargeGroups>()->chooseLargeGroups(
      getProduct(kernel), product, kernel.getLoadAttr(), context.target);
  if (!own) {
    if (config == getProduct(kernel).getConfigAttr())
      return std::string("no other config is better for large groups");
    product.setConfigAttr(config);
    return std::string();
  }
  llvm::Expected<tile::ConfigAttr> whole = own->apply(config);
  if (!whole)
    return large.emitOpError() << llvm::toString(whole.takeError());
  StringRef named = own->getSchedule();
  std::string reason =
      named.empty() || named == schedule.name
          ? schedule.whyIllegal(product, *whole, context.target)
          : ("the other groups run as " + schedule.name +
             "; give that schedule")
                .str();
  if (!reason.empty())
    return product.emitOpError()
           << "of kernel '" << large.getSymName() << "' cannot run as '"
           << own->text << "': " << reason;
  product.setConfigAttr(*whole);
  return std::string();
}

FailureOr<std::string> SplitLargeGroups::build(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  if (context.objective.hasTimes())
    before =
        context.objective.predict(getForm(site.getLaunch()), getPoints(site));
  int64_t minRows = getLargeGroupRows(kernel);
  large = kernel.clone();
  large.setSymName(getLargeGroupsName(kernel));
  StringAttr name = symbols.insert(large, std::next(kernel->getIterator()));
  getProduct(large).setMinGroupRows(minRows);
  // Both launches write different rows of one result, in sequence; the schedule
  // looks at the launches' operands.
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    OpBuilder builder(kernel.getContext());
    builder.setInsertionPointAfter(occurrence.front());
    added.push_back(cast<plan::LaunchOp>(builder.clone(*occurrence.front())));
    added.back().setKernel(name);
  }
  FailureOr<std::string> why = chooseConfig(kernel);
  if (failed(why) || !why->empty())
    return why;
  setLaunchShape(large, context.target);
  getProduct(kernel).setMaxGroupRows(minRows - 1);
  return std::string();
}

std::optional<PredictedChange>
SplitLargeGroups::predict(const RewriteSite &site) {
  if (findOwnForced(getKernel(site.getLaunch())))
    return std::nullopt;
  PredictedChange change{getPoints(site), before};
  change.after = context.objective.predict(
      {getForm(site.getLaunch()), getForm(added.front())}, change.points);
  change.penalty = getKernelPenalty(large);
  return change;
}

LogicalResult SplitLargeGroups::commit(const RewriteSite &) {
  added.clear();
  large = nullptr;
  return success();
}

void SplitLargeGroups::leave(const RewriteSite &site) {
  if (!large)
    return;
  for (plan::LaunchOp launch : added)
    launch->erase();
  added.clear();
  symbols.erase(large);
  large = nullptr;
  getProduct(getKernel(site.getLaunch())).removeGroupRowsAttr();
}

std::unique_ptr<LaunchRewrite>
moec::makeSplitLargeGroups(RewriteContext &context) {
  return std::make_unique<SplitLargeGroups>("split-large-groups", context);
}
