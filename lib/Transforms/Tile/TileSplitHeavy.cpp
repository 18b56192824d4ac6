//===- TileSplitHeavy.cpp - launches for groups with many rows --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The kernel for groups with many rows is made beside the one of all, with
// launches of its own, for its schedule looks at what is passed; then both
// share the groups, or it goes again.

#include "LaunchShape.h"
#include "Launches.h"
#include "PassInputs.h"
#include "moec/Analysis/Rewrites/SplitHeavy.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILESPLITHEAVYPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

class HeavySplitter {
public:
  HeavySplitter(ModuleOp module, const Target &target,
                ArrayRef<ForcedConfig> forced)
      : module(module), symbols(module), target(target), forced(forced) {}

  LogicalResult run();

private:
  /// The schedule of the product that the launch's kernel is, if it may be
  /// split; else null.
  const Schedule *findSchedule(plan::LaunchOp launch);
  /// The last config that is forced for a kernel of that name and load; null
  /// for none.
  const ForcedConfig *findForced(StringRef name, tile::LoadAttr load);
  LogicalResult split(tile::KernelOp kernel, const Schedule &schedule,
                      ArrayRef<plan::LaunchOp> launches);
  /// The config of `heavy`; null where it shall not be.
  FailureOr<tile::ConfigAttr> chooseConfig(tile::KernelOp kernel,
                                           tile::KernelOp heavy,
                                           const Schedule &schedule);

  ModuleOp module;
  SymbolTable symbols;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
};

tile::ContractOp getProduct(tile::KernelOp kernel) {
  return cast<tile::ContractOp>(kernel.getBody().front().front());
}

const Schedule *HeavySplitter::findSchedule(plan::LaunchOp launch) {
  auto product = getPhase<tile::ContractOp>(launch, symbols);
  if (!product || !product.getOffsets() || !product.takesAllGroups() ||
      !product.getConfig() || !getKernel(launch, symbols).getLoadAttr())
    return nullptr;
  const Schedule *schedule =
      moec::findSchedule(target, product.getConfigAttr().getSchedule());
  return schedule && schedule->as<SplitsHeavy>() ? schedule : nullptr;
}

const ForcedConfig *HeavySplitter::findForced(StringRef name,
                                              tile::LoadAttr load) {
  const ForcedConfig *last = nullptr;
  for (const ForcedConfig &config : forced)
    if (config.isFor(name, load))
      last = &config;
  return last;
}

FailureOr<tile::ConfigAttr>
HeavySplitter::chooseConfig(tile::KernelOp kernel, tile::KernelOp heavy,
                            const Schedule &schedule) {
  tile::LoadAttr load = kernel.getLoadAttr();
  const ForcedConfig *own = findForced(getHeavyName(kernel), load);
  // Who forces a config for all groups means all of them.
  if (!own && isForced(kernel, forced))
    return tile::ConfigAttr();
  tile::ContractOp product = getProduct(heavy);
  tile::ConfigAttr config = schedule.as<SplitsHeavy>()->splitHeavy(
      getProduct(kernel), product, load, /*always=*/own != nullptr, target);
  if (!own)
    return config;
  llvm::Expected<tile::ConfigAttr> whole = own->apply(config);
  if (!whole)
    return heavy.emitOpError() << llvm::toString(whole.takeError());
  StringRef named = own->getSchedule();
  std::string reason =
      named.empty() || named == schedule.name
          ? schedule.whyIllegal(product, *whole, target)
          : ("the other groups run as " + schedule.name + "; give that").str();
  if (!reason.empty())
    return product.emitOpError()
           << "of kernel '" << heavy.getSymName() << "' cannot run as '"
           << own->text << "': " << reason;
  return *whole;
}

LogicalResult HeavySplitter::split(tile::KernelOp kernel,
                                   const Schedule &schedule,
                                   ArrayRef<plan::LaunchOp> launches) {
  tile::ContractOp product = getProduct(kernel);
  tile::LoadAttr load = kernel.getLoadAttr();
  int64_t heavyRows = schedule.as<SplitsHeavy>()->getHeavyRows(product, load);
  // A token has one row of a group at most.
  if (load.getMaxTokens() < heavyRows)
    return success();
  tile::KernelOp heavy = kernel.clone();
  heavy.setSymName(getHeavyName(kernel));
  StringAttr name = symbols.insert(heavy, std::next(kernel->getIterator()));
  getProduct(heavy).setMinGroupRows(heavyRows);
  // They write other rows of the same results, one after the other.
  SmallVector<plan::LaunchOp> added;
  for (plan::LaunchOp launch : launches) {
    OpBuilder builder(launch);
    builder.setInsertionPointAfter(launch);
    added.push_back(cast<plan::LaunchOp>(builder.clone(*launch)));
    added.back().setKernel(name);
  }
  FailureOr<tile::ConfigAttr> config = chooseConfig(kernel, heavy, schedule);
  if (failed(config))
    return failure();
  if (!*config) {
    for (plan::LaunchOp launch : added)
      launch->erase();
    symbols.erase(heavy);
    return success();
  }
  getProduct(heavy).setConfigAttr(*config);
  setLaunchShape(heavy, target);
  product.setMaxGroupRows(heavyRows - 1);
  return success();
}

LogicalResult HeavySplitter::run() {
  llvm::MapVector<tile::KernelOp, SmallVector<plan::LaunchOp>> products;
  module.walk([&](plan::LaunchOp launch) {
    if (findSchedule(launch))
      products[getKernel(launch, symbols)].push_back(launch);
  });
  for (auto &[kernel, launches] : products)
    if (failed(split(kernel, *findSchedule(launches.front()), launches)))
      return failure();
  return success();
}

struct TileSplitHeavy : moec::impl::TileSplitHeavyPassBase<TileSplitHeavy> {
  using TileSplitHeavyPassBase::TileSplitHeavyPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-split-heavy", target, part, configs);
    if (!inputs ||
        failed(HeavySplitter(getOperation(), inputs->target, inputs->forced)
                   .run()))
      signalPassFailure();
  }
};

} // namespace
