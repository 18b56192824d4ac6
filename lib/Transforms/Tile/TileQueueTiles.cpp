//===- TileQueueTiles.cpp - counters of tiles to take next ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Whether a product has a queue is said by its config, for heights of tiles
// depend on it. The counter is that of the ranking before it.

#include "LaunchShape.h"
#include "Launches.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILEQUEUETILESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// The launches of a kernel whose product has a queue, and the rankings before
/// them; null where there is none.
struct Queued {
  SmallVector<plan::LaunchOp> launches, rankings;
};

class TileQueuer {
public:
  TileQueuer(ModuleOp module, const Target &target)
      : module(module), symbols(module), target(target) {}

  LogicalResult run();

private:
  void collect(plan::LaunchOp launch);
  plan::LaunchOp findRanking(plan::LaunchOp launch, Value offsets);
  LogicalResult addCounter(tile::KernelOp kernel, Queued &queued);

  ModuleOp module;
  SymbolTable symbols;
  const Target &target;
  llvm::MapVector<tile::KernelOp, Queued> kernels;
};

tile::ContractOp getProduct(tile::KernelOp kernel) {
  return cast<tile::ContractOp>(kernel.getBody().front().front());
}

/// The launch that can clear the launch's counter; null if there is none.
plan::LaunchOp TileQueuer::findRanking(plan::LaunchOp launch, Value offsets) {
  plan::LaunchOp ranking = offsets ? findWriter(launch, offsets) : nullptr;
  if (!ranking || ranking.getStream() != launch.getStream() ||
      !getPhase<tile::RankOp>(ranking, symbols))
    return nullptr;
  // Products of one kernel leave the counter as it is.
  for (Operation *op = launch->getPrevNode(); op != ranking;
       op = op->getPrevNode())
    if (auto between = dyn_cast<plan::LaunchOp>(op))
      if (tile::KernelOp kernel = getKernel(between, symbols))
        if (llvm::any_of(kernel.getBody().getOps<tile::ContractOp>(),
                         [](tile::ContractOp op) { return op.getSignals(); }))
          return nullptr;
  return ranking;
}

void TileQueuer::collect(plan::LaunchOp launch) {
  auto product = getPhase<tile::ContractOp>(launch, symbols);
  if (!product || product.getTickets() || !product.getConfig() ||
      !product.getConfigAttr().getQueue())
    return;
  Queued &queued = kernels[cast<tile::KernelOp>(product->getParentOp())];
  queued.launches.push_back(launch);
  queued.rankings.push_back(
      findRanking(launch, getPassed(launch, product.getOffsets())));
}

LogicalResult TileQueuer::addCounter(tile::KernelOp kernel, Queued &queued) {
  tile::ContractOp product = getProduct(kernel);
  // Behind the other arguments but the tokens.
  unsigned number = kernel.getBody().getNumArguments() - 1;
  Value counter;
  for (auto [launch, ranking] : llvm::zip(queued.launches, queued.rankings)) {
    counter = getCounter(ranking, symbols);
    launch.getOutsMutable().append(counter);
  }
  if (failed(kernel.insertArgument(number, counter.getType(), DictionaryAttr(),
                                   product.getLoc())))
    return kernel.emitOpError("cannot take the counter of its tiles");
  product.getTicketsMutable().assign(kernel.getArgument(number));
  setLaunchShape(kernel, target);
  return success();
}

LogicalResult TileQueuer::run() {
  module.walk([&](plan::LaunchOp launch) { collect(launch); });
  for (auto &[kernel, queued] : kernels) {
    if (!llvm::is_contained(queued.rankings, nullptr)) {
      if (failed(addCounter(kernel, queued)))
        return failure();
      continue;
    }
    // Nobody clears a counter: tiles in a fixed order, and of heights for that.
    tile::ContractOp product = getProduct(kernel);
    product.setConfigAttr(product.getConfigAttr().withQueue(false));
    setLaunchShape(kernel, target);
  }
  return success();
}

struct TileQueueTiles : moec::impl::TileQueueTilesPassBase<TileQueueTiles> {
  using TileQueueTilesPassBase::TileQueueTilesPassBase;

  void runOnOperation() override {
    std::optional<Target> machine = Target::findFor(
        getOperation(), "tile-queue-tiles", target, /*lanes=*/0, part);
    if (!machine || failed(TileQueuer(getOperation(), *machine).run()))
      signalPassFailure();
  }
};

} // namespace
