//===- TileRewriteLaunches.cpp - the driver of rewrites ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Tile/PassInputs.h"
#include "LaunchRewrite.h"
#include "mlir/IR/Remarks.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace moec {
#define GEN_PASS_DEF_TILEREWRITELAUNCHESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Kernels without launches, and buffers without uses.
llvm::DenseSet<Operation *> findUnused(ModuleOp module) {
  llvm::StringSet<> launched;
  module.walk(
      [&](plan::LaunchOp launch) { launched.insert(launch.getKernel()); });
  llvm::DenseSet<Operation *> unused;
  for (auto kernel : module.getOps<tile::KernelOp>())
    if (!launched.contains(kernel.getSymName()))
      unused.insert(kernel);
  for (auto program : module.getOps<plan::ProgramOp>())
    for (auto buffer : program.getBody().getOps<plan::BufferOp>())
      if (buffer.getBuffer().use_empty())
        unused.insert(buffer);
  return unused;
}

/// Runs one rewrite on all of its sites.
class RewriteRunner {
public:
  RewriteRunner(LaunchRewrite &rewrite, RewriteContext &context)
      : rewrite(rewrite), context(context) {}

  LogicalResult run();
  /// Keeps all sites unchanged.
  void leaveAll(StringRef why);
  ArrayRef<plan::ProgramOp> getChanged() const { return changed.getArrayRef(); }

private:
  LogicalResult decide(const RewriteSite &site);
  bool pays(const RewriteSite &site, std::string &why);
  void leave(const RewriteSite &site, StringRef why);
  remark::RemarkOpts remarkOptions(const RewriteSite &site) const {
    return remark::RemarkOpts::name(rewrite.getName())
        .category("tile-rewrite-launches")
        .function(site.getLaunch().getKernel());
  }

  LaunchRewrite &rewrite;
  RewriteContext &context;
  llvm::SetVector<plan::ProgramOp> changed;
};

bool RewriteRunner::pays(const RewriteSite &site, std::string &why) {
  std::optional<PredictedChange> change;
  if (context.objective.hasTimes())
    change = rewrite.predict(site);
  if (!change)
    return true;
  double saved =
      context.objective.getSaved(change->before, change->after, change->points);
  llvm::raw_string_ostream(why)
      << "saves " << llvm::format("%.2f", 100 * saved)
      << " % of the time of all launches, summed over " << change->points.size()
      << " token counts, with a penalty for kernels "
      << "of " << llvm::format("%.2f", 100 * change->penalty) << " %";
  return saved > change->penalty;
}

void RewriteRunner::leave(const RewriteSite &site, StringRef why) {
  remark::missed(site.getLaunch().getLoc(), remarkOptions(site))
      << remark::reason("{0}", why);
  rewrite.leave(site);
}

LogicalResult RewriteRunner::decide(const RewriteSite &site) {
  if (std::string why = rewrite.whyIllegal(site); !why.empty()) {
    leave(site, why);
    return success();
  }
  SmallVector<TokenPoint> points = rewrite.getPoints(site);
  context.objective.remember(points);
  FailureOr<std::string> built = rewrite.build(site);
  if (failed(built))
    return failure();
  if (!built->empty()) {
    leave(site, *built);
    return success();
  }
  std::string why;
  if (!pays(site, why)) {
    leave(site, why);
    return success();
  }
  remark::passed(site.getLaunch().getLoc(), remarkOptions(site))
      << remark::reason("{0}",
                        why.empty() ? "legal, regardless of the time" : why);
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    changed.insert(occurrence.front()->getParentOfType<plan::ProgramOp>());
  context.objective.forget(points);
  return rewrite.commit(site);
}

LogicalResult RewriteRunner::run() {
  llvm::DenseSet<Operation *> unusedBefore = findUnused(context.module);
  rewrite.splitRanges();
  for (const RewriteSite &site : rewrite.match())
    if (failed(decide(site)))
      return failure();
  for (Operation *unused : findUnused(context.module)) {
    if (unusedBefore.contains(unused))
      continue;
    if (isa<tile::KernelOp>(unused))
      context.symbols.erase(unused);
    else
      unused->erase();
  }
  return success();
}

void RewriteRunner::leaveAll(StringRef why) {
  for (const RewriteSite &site : rewrite.match())
    leave(site, why);
}

struct TileRewriteLaunches
    : moec::impl::TileRewriteLaunchesPassBase<TileRewriteLaunches> {
  using TileRewriteLaunchesPassBase::TileRewriteLaunchesPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-rewrite-launches", target, part, configs);
    if (!inputs || failed(run(*inputs)))
      signalPassFailure();
  }

private:
  LogicalResult fail(llvm::Error error) {
    return getOperation().emitError("tile-rewrite-launches: ")
           << llvm::toString(std::move(error));
  }
  LogicalResult run(const PassInputs &inputs);
  LogicalResult assignSlots(ArrayRef<plan::ProgramOp> programs);
};

} // namespace

LogicalResult
TileRewriteLaunches::assignSlots(ArrayRef<plan::ProgramOp> programs) {
  OpPassManager slots(plan::ProgramOp::getOperationName());
  slots.addPass(createPlanAssignSlotsPass());
  for (plan::ProgramOp program : programs)
    if (failed(runPipeline(slots, program)))
      return failure();
  return success();
}

LogicalResult TileRewriteLaunches::run(const PassInputs &inputs) {
  if (llvm::Error error = checkLaunchRewrites(disable))
    return fail(std::move(error));
  if (llvm::Error error = checkLaunchRewrites(only))
    return fail(std::move(error));
  llvm::Expected<std::vector<RewriteParameter>> parameters =
      parseRewriteParameters(set);
  if (!parameters)
    return fail(parameters.takeError());
  LaunchFacts facts{dependentLaunches, keepAll};
  llvm::StringSet<> enabled;
  for (StringRef name : getLaunchRewriteNames())
    if ((only.empty() || llvm::is_contained(only, name)) &&
        whyOff(name, facts, disable).empty())
      enabled.insert(name);
  static constexpr MakeLaunchRewrite all[] = {
#define LAUNCH_REWRITE(NAME, CLASS, ...) make##CLASS,
#include "LaunchRewrites.def"
  };
  for (MakeLaunchRewrite make : all) {
    RewriteContext context(getOperation(), inputs.target, inputs.forced,
                           *parameters, enabled);
    std::unique_ptr<LaunchRewrite> rewrite = make(context);
    RewriteRunner runner(*rewrite, context);
    StringRef name = rewrite->getName();
    if (!enabled.contains(name)) {
      if (only.empty() || llvm::is_contained(only, name))
        runner.leaveAll(whyOff(name, facts, disable));
      continue;
    }
    if (failed(runner.run()))
      return failure();
    if (hasRequirement(name, RewriteRequirement::FreeSlots) &&
        failed(assignSlots(runner.getChanged())))
      return failure();
  }
  return success();
}
