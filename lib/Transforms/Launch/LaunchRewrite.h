//===- LaunchRewrite.h - one way to rewrite launches ------------*- C++ -*-===//
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
#include "moec/Analysis/ConfigText.h"
#include "moec/Transforms/LaunchRewrites.h"
#include "llvm/ADT/StringSet.h"

namespace moec {

/// What a rewrite of a module is given.
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
  /// The rewrites that run.
  const llvm::StringSet<> &enabled;
  Objective objective;
};

/// Where a rewrite may apply: places that are rewritten together, or not. A
/// place is one launch, or some that follow each other.
struct RewriteSite {
  using Place = llvm::SmallVector<plan::LaunchOp, 2>;
  llvm::SmallVector<Place> places;

  RewriteSite() = default;
  RewriteSite(Place place) { places.push_back(std::move(place)); }
  /// Launches that are a place each.
  explicit RewriteSite(llvm::ArrayRef<plan::LaunchOp> launches) {
    for (plan::LaunchOp launch : launches)
      places.push_back({launch});
  }
  /// The first place's, of which the others are like.
  plan::LaunchOp getLaunch(size_t number = 0) const {
    return places.front()[number];
  }
};

/// What a rewrite of a site is expected to change.
struct PredictedChange {
  llvm::SmallVector<TokenPoint> points;
  PointTimes before = {}, after = {};
  /// That of the kernels that are added, less that of those that go.
  double price = 0;
};

/// One way to rewrite launches and their kernels, which changes no number. For
/// each site that it matches and may legally rewrite it builds what would be,
/// beside what is, and predicts what that takes; the driver
/// (tile-rewrite-launches) says which of the two stays. A rewrite has what it
/// needs from `build` to `commit` or `leave` of one site, before the next one.
class LaunchRewrite {
public:
  LaunchRewrite(llvm::StringRef name, RewriteContext &context)
      : name(name), context(context), symbols(context.symbols) {}
  virtual ~LaunchRewrite() = default;

  llvm::StringRef getName() const { return name; }

  /// Those of the variants that the site's launches are in, which their kernels
  /// are for.
  llvm::SmallVector<TokenPoint> getPoints(const RewriteSite &site);

  /// Splits variants in which sites would be rewritten for some of the token
  /// counts alone.
  virtual void cut() {}
  /// The sites, none of which has a launch of another one.
  virtual std::vector<RewriteSite> match() = 0;
  /// Empty if the site may be rewritten, else why not.
  virtual std::string whyIllegal(const RewriteSite & /*site*/) { return {}; }
  /// Makes what would be, beside what is; or says why it cannot, and leaves
  /// nothing of it.
  virtual mlir::FailureOr<std::string> build(const RewriteSite & /*site*/) {
    return std::string();
  }
  /// Nothing where it is right whatever it takes: it is forced, or a bound that
  /// was given is among what `match` asks. Times are known.
  virtual std::optional<PredictedChange> predict(const RewriteSite & /*site*/) {
    return std::nullopt;
  }
  /// Puts what was built in place of what is.
  virtual mlir::LogicalResult commit(const RewriteSite &site) = 0;
  /// Leaves a site as it is, and nothing of what was built for it.
  virtual void leave(const RewriteSite & /*site*/) {}
  /// Whether buffers of a rewritten program need slots anew.
  virtual bool movesBuffers() const { return false; }

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
  /// The value that was given for a parameter of this rewrite.
  std::optional<int64_t> getParameter(llvm::StringRef parameter) const;

  /// Every launch of the module with such a phase alone in its kernel, by
  /// kernel, where `accepts` it.
  template <typename OpTy>
  std::vector<RewriteSite>
  matchKernels(llvm::function_ref<bool(plan::LaunchOp, OpTy)> accepts) {
    llvm::MapVector<mlir::Operation *, llvm::SmallVector<plan::LaunchOp>> found;
    context.module.walk([&](plan::LaunchOp launch) {
      auto phase = getPhase<OpTy>(launch);
      // Times and bounds are of the tokens of a run.
      if (phase && !launch.getTokensAttr() && accepts(launch, phase))
        found[getKernel(launch)].push_back(launch);
    });
    std::vector<RewriteSite> sites;
    for (auto &[kernel, launches] : found)
      sites.emplace_back(launches);
    return sites;
  }
  /// Pairs of launches that follow each other on a stream, where `accepts`
  /// both.
  std::vector<RewriteSite>
  matchPairs(llvm::function_ref<bool(plan::LaunchOp, plan::LaunchOp)> accepts);

  /// A launch's one phase with its config and its kernel's load, or another
  /// load.
  PhaseForm getForm(plan::LaunchOp launch, tile::LoadAttr load = {});
  /// The price of the kernel of a launch if it goes with the site: if all of
  /// its launches are there. Else 0.
  double getPriceOf(plan::LaunchOp launch, const RewriteSite &site);
  /// Erases a kernel and gives its name to the one that it is replaced by.
  void replaceKernel(tile::KernelOp kernel, tile::KernelOp replacement);

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
