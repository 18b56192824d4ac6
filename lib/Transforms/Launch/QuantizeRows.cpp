//===- QuantizeRows.cpp - products that quantize what they copy -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/QuantizeRows.h"
#include "LaunchRewrite.h"
#include "moec/Dialect/Moe/QuantLayout.h"

using namespace mlir;
using namespace moec;

namespace {

/// A site is a launch of a quantization, then all launches of its variant that
/// read the results.
class QuantizeRows final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &site) override;

private:
  /// The site of a quantization; none if another op uses its results.
  std::optional<RewriteSite> findSite(plan::LaunchOp launch);
  bool areForced(const RewriteSite &site);
  /// A launch like `launch`, of a kernel whose gemm quantizes the rows that
  /// `quantization` reads. The kernel gets the load, but no config.
  plan::LaunchOp makeLaunch(plan::LaunchOp launch, plan::LaunchOp quantization,
                            tile::LoadAttr load);
  /// The change by the built launches.
  PredictedChange predictBuilt(const RewriteSite &site);
  /// The time that `quantize-results` would save instead at each point of
  /// `change`; empty if it would not apply.
  PointTimes predictResults(const RewriteSite &site,
                            const PredictedChange &change);

  /// Built launches, one per gemm of the site, before those that they replace.
  SmallVector<plan::LaunchOp> built;
};

/// The launches of gemms.
ArrayRef<plan::LaunchOp> getProducts(const RewriteSite &site) {
  return ArrayRef(site.occurrences.front()).drop_front();
}

} // namespace

//===----------------------------------------------------------------------===//
// Sites
//===----------------------------------------------------------------------===//

std::optional<RewriteSite> QuantizeRows::findSite(plan::LaunchOp launch) {
  auto quantize = getPhase<tile::QuantizeOp>(launch);
  if (!quantize || launch.getTokensAttr() ||
      moe::areKeptAsBF16(quantize.getQuant()) ||
      !isa<BFloat16Type, Float16Type>(
          getElementTypeOrSelf(quantize.getInput().getType())))
    return std::nullopt;
  Value input = getPassed(launch, quantize.getInput());
  Value scale =
      getPassed(launch, quantize.getTensorScale() ? quantize.getTensorScale()
                                                  : quantize.getScale());
  RewriteSite::Occurrence all{launch};
  for (Operation *op = launch->getNextNode(); op; op = op->getNextNode()) {
    auto next = dyn_cast<plan::LaunchOp>(op);
    bool reads = llvm::any_of(launch.getOuts(), [&](Value out) {
      return llvm::is_contained(op->getOperands(), out);
    });
    if (reads) {
      auto product = next ? getPhase<tile::GemmOp>(next) : nullptr;
      const Schedule *schedule = product ? getSchedule(product) : nullptr;
      if (!schedule || !schedule->as<QuantizesRows>() || next.getTokensAttr() ||
          next.getColumnsAttr() || !product.getInputScale() ||
          product.getInputQuantAttr() != quantize.getQuantAttr() ||
          getPassed(next, product.getInput()) != launch.getOuts()[0] ||
          getPassed(next, product.getInputScale()) != scale)
        return std::nullopt;
      all.push_back(next);
    }
    // The rows must still be those that the quantization reads.
    if (next && llvm::is_contained(next.getOuts(), input))
      break;
  }
  // No launch of a later variant or of the caller sees the results.
  bool areBuffers = llvm::all_of(launch.getOuts(), [](Value out) {
    return out.getDefiningOp<plan::BufferOp>() != nullptr;
  });
  auto countUsers = [&](Value out) {
    return llvm::count_if(out.getUsers(), [&](Operation *user) {
      return user->getParentOp() == launch->getParentOp();
    });
  };
  if (all.size() == 1 || !areBuffers ||
      llvm::any_of(launch.getOuts(), [&](Value out) {
        return countUsers(out) != int64_t(all.size());
      }))
    return std::nullopt;
  return RewriteSite(all);
}

std::vector<RewriteSite> QuantizeRows::match() {
  std::vector<RewriteSite> sites;
  for (plan::LaunchOp launch : getVariantLaunches(context.module))
    if (std::optional<RewriteSite> site = findSite(launch))
      sites.push_back(*site);
  return sites;
}

bool QuantizeRows::areForced(const RewriteSite &site) {
  return llvm::any_of(getProducts(site), [&](plan::LaunchOp launch) {
    return isForced(getKernel(launch));
  });
}

std::string QuantizeRows::whyIllegal(const RewriteSite &site) {
  if (isForced(getKernel(site.getLaunch())))
    return "the quantization has a forced config";
  auto variant = cast<plan::VariantOp>(site.getLaunch()->getParentOp());
  // With one token layers of block fp8 are up to 20 % faster; with 4 and 8 up
  // to 8 % slower, for each of more tiles waits for its rows (H200).
  constexpr int64_t fewTokens = 1;
  std::optional<int64_t> most = getParameter("most");
  if (!most && !getParameter("always"))
    most = fewTokens;
  if (most && int64_t(variant.getMaxTokens()) > *most)
    return "the range has more tokens than 'most', " + std::to_string(*most);
  for (plan::LaunchOp launch : getProducts(site)) {
    tile::KernelOp kernel = getKernel(launch);
    if (!kernel.getLoadAttr() && !isForced(kernel))
      return "the kernel has no 'load', so the gemm's rows are unknown";
    auto product = getPhase<tile::GemmOp>(launch);
    std::string why =
        getSchedule(product)->as<QuantizesRows>()->whyNotQuantized(product);
    if (!why.empty())
      return why;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Gemms that quantize
//===----------------------------------------------------------------------===//

plan::LaunchOp QuantizeRows::makeLaunch(plan::LaunchOp launch,
                                        plan::LaunchOp quantization,
                                        tile::LoadAttr load) {
  tile::KernelOp kernel = getKernel(launch), made = kernel.clone();
  tile::GemmOp product = getProduct(made);
  auto quantize = getPhase<tile::QuantizeOp>(quantization);
  Value rows = getPassed(quantization, quantize.getInput());
  auto values = cast<BlockArgument>(product.getInput());
  unsigned number = values.getArgNumber();
  SmallVector<Value> ins(launch.getIns());
  ins[number] = rows;
  // Scales that the quantization would compute; a given one stays.
  if (!quantize.getTensorScale()) {
    auto scales = cast<BlockArgument>(product.getInputScale());
    ins.erase(ins.begin() + scales.getArgNumber());
    product.getInputScaleMutable().clear();
    (void)made.eraseArgument(scales.getArgNumber());
  }
  number = values.getArgNumber();
  (void)made.insertArgument(number, rows.getType(), DictionaryAttr(),
                            product.getLoc());
  product.getInputMutable().assign(made.getArgument(number));
  (void)made.eraseArgument(number + 1);
  product.setQuantizesInput(true);
  made.setLoadAttr(load);
  if (load)
    made.setSymName(getNameInRange(kernel, load));
  symbols.insert(made, std::next(kernel->getIterator()));
  OpBuilder builder(launch);
  return plan::LaunchOp::create(builder, launch.getLoc(), made.getSymName(),
                                launch.getStream(), ins, launch.getOuts(),
                                launch.getDependent(), /*tokens=*/{},
                                /*columns=*/{});
}

FailureOr<std::string> QuantizeRows::build(const RewriteSite &site) {
  auto variant = cast<plan::VariantOp>(site.getLaunch()->getParentOp());
  for (plan::LaunchOp launch : getProducts(site)) {
    tile::KernelOp kernel = getKernel(launch);
    tile::LoadAttr load = kernel.getLoadAttr();
    // A kernel of several variants has the load of all.
    if (load)
      load = tile::LoadAttr::get(
          load.getContext(),
          std::max(load.getMinTokens(), int64_t(variant.getMinTokens())),
          std::min(load.getMaxTokens(), int64_t(variant.getMaxTokens())),
          load.getTopK(), load.getExperts());
    plan::LaunchOp made = makeLaunch(launch, site.getLaunch(), load);
    built.push_back(made);
    tile::GemmOp product = getPhase<tile::GemmOp>(made);
    if (isForced(kernel)) {
      tile::ConfigAttr config = product.getConfigAttr();
      std::string why =
          getSchedule(product)->whyIllegal(product, config, context.target);
      if (!why.empty())
        return why;
    } else {
      tile::ConfigAttr config = chooseForLoad(product, context.target, load);
      if (!config)
        return std::string("no config of the gemm quantizes its rows");
      product.setConfigAttr(config);
    }
    setLaunchShape(getKernel(made), context.target);
  }
  return std::string();
}

void QuantizeRows::leave(const RewriteSite &) {
  for (plan::LaunchOp launch : built) {
    tile::KernelOp kernel = getKernel(launch);
    launch->erase();
    symbols.erase(kernel);
  }
  built.clear();
}

/// A kernel that has no other launches hands on its name.
LogicalResult QuantizeRows::commit(const RewriteSite &site) {
  for (auto [launch, made] : llvm::zip(getProducts(site), built)) {
    tile::KernelOp before = getKernel(launch);
    launch->erase();
    bool isUsed = false;
    context.module.walk([&](plan::LaunchOp other) {
      isUsed |= other.getKernel() == before.getSymName();
    });
    if (isUsed)
      continue;
    StringAttr name = before.getSymNameAttr();
    replaceKernel(before, getKernel(made));
    made.setKernel(name);
  }
  site.getLaunch()->erase();
  built.clear();
  return success();
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

PredictedChange QuantizeRows::predictBuilt(const RewriteSite &site) {
  PredictedChange change{getPoints(RewriteSite{built.front()})};
  SmallVector<PhaseForm> before{
      getForm(site.getLaunch(), getKernel(built.front()).getLoadAttr())};
  SmallVector<PhaseForm> after;
  change.penalty = -getPenaltyOf(site.getLaunch(), site);
  for (auto [launch, made] : llvm::zip(getProducts(site), built)) {
    before.push_back(getForm(launch, getKernel(made).getLoadAttr()));
    after.push_back(getForm(made));
    change.penalty +=
        getKernelPenalty(getKernel(made)) - getPenaltyOf(launch, site);
  }
  change.before = context.objective.predict(before, change.points);
  change.after = context.objective.predict(after, change.points);
  return change;
}

PointTimes QuantizeRows::predictResults(const RewriteSite &site,
                                        const PredictedChange &change) {
  PointTimes saved;
  if (!context.enabled.contains("quantize-results"))
    return saved;
  std::unique_ptr<LaunchRewrite> results = makeQuantizeResults(context);
  size_t routings = getWeightedRoutings().size();
  for (const RewriteSite &other : results->match()) {
    if (llvm::none_of(other.occurrences,
                      [&](const RewriteSite::Occurrence &occurrence) {
                        return llvm::is_contained(occurrence, site.getLaunch());
                      }) ||
        !results->whyIllegal(other).empty())
      continue;
    FailureOr<std::string> why = results->build(other);
    if (failed(why) || !why->empty())
      continue;
    std::optional<PredictedChange> whole = results->predict(other);
    if (whole && context.objective.getSaved(whole->before, whole->after,
                                            whole->points) > whole->penalty) {
      saved.assign(change.before.size(), 0);
      for (auto [i, point] : llvm::enumerate(change.points))
        for (auto [j, alike] : llvm::enumerate(whole->points))
          if (point.variant == alike.variant && point.tokens == alike.tokens)
            for (size_t k = 0; k < routings; ++k)
              saved[i * routings + k] = whole->before[j * routings + k] -
                                        whole->after[j * routings + k];
    }
    results->leave(other);
  }
  return saved;
}

std::optional<PredictedChange> QuantizeRows::predict(const RewriteSite &site) {
  if (areForced(site) || getParameter("always").value_or(0))
    return std::nullopt;
  PredictedChange change = predictBuilt(site);
  for (auto [before, saved] :
       llvm::zip(change.before, predictResults(site, change)))
    before -= saved;
  return change;
}

std::unique_ptr<LaunchRewrite> moec::makeQuantizeRows(RewriteContext &context) {
  return std::make_unique<QuantizeRows>("quantize-rows", context);
}
