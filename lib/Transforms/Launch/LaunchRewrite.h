//===- LaunchRewrite.h - interface of a launch rewrite ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_LAUNCH_LAUNCHREWRITE_H
#define MOEC_LIB_TRANSFORMS_LAUNCH_LAUNCHREWRITE_H

#include "../Tile/LaunchShape.h"
#include "../Tile/Launches.h"
#include "Objective.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Transforms/LaunchRewrites.h"
#include "llvm/ADT/StringSet.h"

namespace moec {

/// The module, target and options that a rewrite runs with.
struct RewriteContext {
  RewriteContext(mlir::ModuleOp module, const Target &target,
                 llvm::ArrayRef<ForcedConfig> forced,
                 llvm::ArrayRef<RewriteParameter> parameters,
                 const llvm::StringSet<> &enabled)
      : module(module), symbols(module), target(target), forced(forced),
        parameters(parameters), enabled(enabled), objective(symbols, target) {}

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  const Target &target;
  llvm::ArrayRef<ForcedConfig> forced;
  llvm::ArrayRef<RewriteParameter> parameters;
  /// Names of the rewrites that run.
  const llvm::StringSet<> &enabled;
  Objective objective;
};

/// A match of a rewrite: occurrences that are rewritten all or none. An
/// occurrence is one launch, or consecutive ones.
struct RewriteSite {
  using Occurrence = llvm::SmallVector<plan::LaunchOp, 2>;
  llvm::SmallVector<Occurrence> occurrences;

  RewriteSite() = default;
  RewriteSite(Occurrence occurrence) {
    occurrences.push_back(std::move(occurrence));
  }
  /// Each launch is an occurrence.
  explicit RewriteSite(llvm::ArrayRef<plan::LaunchOp> launches) {
    for (plan::LaunchOp launch : launches)
      occurrences.push_back({launch});
  }
  /// A launch of the first place; other occurrences are alike.
  plan::LaunchOp getLaunch(size_t number = 0) const {
    return occurrences.front()[number];
  }
};

/// Predicted effect of a rewrite of one site.
struct PredictedChange {
  llvm::SmallVector<TokenPoint> points;
  PointTimes before = {}, after = {};
  /// Penalty (`getKernelPenalty`) of the added kernels less that of the removed
  /// ones.
  double penalty = 0;
};

/// A rewrite of launches and their kernels that does not change results. For
/// each site that it matches and may legally rewrite, it builds the new
/// launches beside the existing ones and predicts their time; the driver
/// (tile-rewrite-launches) decides which stay. A rewrite may keep state from
/// `build` to `commit` or `leave` of one site; sites are processed one after
/// the other.
class LaunchRewrite {
public:
  LaunchRewrite(llvm::StringRef name, RewriteContext &context)
      : name(name), context(context), symbols(context.symbols) {}
  virtual ~LaunchRewrite() = default;

  llvm::StringRef getName() const { return name; }

  /// Token points of the variants with the site's launches that their kernels'
  /// loads include.
  llvm::SmallVector<TokenPoint> getPoints(const RewriteSite &site);

  /// Splits variants in which sites would be rewritten for some token counts
  /// only.
  virtual void splitRanges() {}
  /// The sites, with disjoint launches.
  virtual std::vector<RewriteSite> match() = 0;
  /// Reason why the site may not be rewritten; empty if it may.
  virtual std::string whyIllegal(const RewriteSite & /*site*/) { return {}; }
  /// Builds the new launches beside the existing ones; or returns the reason
  /// why it cannot, without any change.
  virtual mlir::FailureOr<std::string> build(const RewriteSite & /*site*/) {
    return std::string();
  }
  /// Nothing if the rewrite applies regardless of time: it is forced, or
  /// `match` applies a given bound. Requires `hasTimes()`.
  virtual std::optional<PredictedChange> predict(const RewriteSite & /*site*/) {
    return std::nullopt;
  }
  /// Replaces the existing launches by the built ones.
  virtual mlir::LogicalResult commit(const RewriteSite &site) = 0;
  /// Keeps a site unchanged and removes everything built for it.
  virtual void leave(const RewriteSite & /*site*/) {}

protected:
  tile::KernelOp getKernel(plan::LaunchOp launch) {
    return moec::getKernel(launch, symbols);
  }
  template <typename OpTy>
  OpTy getPhase(plan::LaunchOp launch) {
    return moec::getPhase<OpTy>(launch, symbols);
  }
  /// The schedule of a phase's config; null if it has none.
  const Schedule *getSchedule(mlir::Operation *phase);
  bool isForced(tile::KernelOp kernel) {
    return moec::isForced(kernel, context.forced);
  }
  /// The given value of a parameter of this rewrite.
  std::optional<int64_t> getParameter(llvm::StringRef parameter) const;

  /// Sites by kernel: all launches of kernels with an `OpTy` as their only
  /// phase, if `accepts` is true.
  template <typename OpTy>
  std::vector<RewriteSite>
  matchKernels(llvm::function_ref<bool(plan::LaunchOp, OpTy)> accepts) {
    llvm::MapVector<mlir::Operation *, llvm::SmallVector<plan::LaunchOp>> found;
    context.module.walk([&](plan::LaunchOp launch) {
      auto phase = getPhase<OpTy>(launch);
      // Times and bounds refer to the tokens of a run.
      if (phase && !launch.getTokensAttr() && accepts(launch, phase))
        found[getKernel(launch)].push_back(launch);
    });
    std::vector<RewriteSite> sites;
    for (auto &[kernel, launches] : found)
      sites.emplace_back(launches);
    return sites;
  }
  /// Pairs of consecutive launches on a stream, if `accepts` is true.
  std::vector<RewriteSite>
  matchPairs(llvm::function_ref<bool(plan::LaunchOp, plan::LaunchOp)> accepts);

  /// The launch of the sort, on the same stream, that the offsets of a launch's
  /// gemm come from; null if there is none. It can clear a counter.
  plan::LaunchOp findSort(plan::LaunchOp launch, tile::GemmOp product);

  /// The only phase of a launch with its config and its kernel's load, or the
  /// given load.
  PhaseForm getForm(plan::LaunchOp launch, tile::LoadAttr load = {});
  /// The penalty of a launch's kernel if the site has all of its launches, so
  /// that the kernel is removed; else 0.
  double getPenaltyOf(plan::LaunchOp launch, const RewriteSite &site);
  /// Erases a kernel and gives its name to its replacement.
  void replaceKernel(tile::KernelOp kernel, tile::KernelOp replacement);
  /// Puts launches that `build` added in the place of the site's. The last ones
  /// of each occurrence have the kernel `built`, which replaces that of the
  /// site's last ones.
  void commitAdded(const RewriteSite &site, RewriteSite &added,
                   tile::KernelOp &built);
  /// Erases launches that `build` added, and their last kernel if it was built.
  void eraseAdded(RewriteSite &added, tile::KernelOp &built);

  llvm::StringRef name;
  RewriteContext &context;
  mlir::SymbolTable &symbols;
};

using MakeLaunchRewrite =
    std::unique_ptr<LaunchRewrite> (*)(RewriteContext &context);

#define LAUNCH_REWRITE(NAME, CLASS, ...)                                       \
  std::unique_ptr<LaunchRewrite> make##CLASS(RewriteContext &context);
#include "LaunchRewrites.def"

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_LAUNCH_LAUNCHREWRITE_H
