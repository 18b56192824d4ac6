//===- Levels.cpp - the levels of IR and the way down -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/Levels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"
#include "moec/Conversion/Passes.h"
#include "moec/Transforms/Passes.h"

using namespace mlir;
using namespace moec;

StringRef moec::stringifyLevel(Level level) {
  switch (level) {
  case Level::Moe:
    return "moe";
  case Level::Plan:
    return "plan";
  case Level::Tile:
    return "tile";
  }
  llvm_unreachable("all levels are above");
}

FailureOr<Level> moec::detectLevel(ModuleOp module) {
  Operation *layer = nullptr, *planKernel = nullptr, *tileKernel = nullptr;
  for (Operation &op : *module.getBody()) {
    if (isa<plan::KernelOp>(op))
      planKernel = &op;
    else if (isa<tile::KernelOp>(op))
      tileKernel = &op;
    else if (auto func = dyn_cast<func::FuncOp>(op)) {
      WalkResult found = func.walk([](Operation *inner) {
        return isa_and_nonnull<moe::MoeDialect>(inner->getDialect())
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      });
      if (found.wasInterrupted())
        layer = &op;
    }
  }
  int numLevels =
      (layer != nullptr) + (planKernel != nullptr) + (tileKernel != nullptr);
  if (numLevels == 0)
    return module.emitError("holds nothing to compile; give a func.func with "
                            "moe ops, or a plan.program with plan.kernel or "
                            "tile.kernel");
  if (numLevels > 1)
    return (planKernel ? planKernel : layer)
        ->emitOpError("stands beside IR of another level; bring all of the "
                      "module to one level");
  return layer ? Level::Moe : planKernel ? Level::Plan : Level::Tile;
}

void moec::buildMoeToPlanPipeline(OpPassManager &manager, StringRef target,
                                  bool keepAllBuffers) {
  manager.addNestedPass<func::FuncOp>(createMoeDecomposePass());
  MoeLegalizeQuantPassOptions quant;
  quant.target = target.str();
  manager.addNestedPass<func::FuncOp>(createMoeLegalizeQuantPass(quant));
  manager.addPass(createConvertMoeToPlanPass());
  PlanAssignSlotsPassOptions slots;
  slots.keepAll = keepAllBuffers;
  manager.addNestedPass<plan::ProgramOp>(createPlanAssignSlotsPass(slots));
}

void moec::buildPlanToTilePipeline(OpPassManager &manager,
                                   const TileOptions &options) {
  manager.addPass(createConvertPlanToTilePass());
  manager.addPass(createTileSplitPhasesPass());
  TileSpecializePassOptions ranges;
  ranges.target = options.target;
  ranges.part = options.part;
  ranges.maxKernels = options.maxKernels.value_or(kMaxKernels);
  llvm::append_range(ranges.configs, options.configs);
  manager.addPass(createTileSpecializePass(ranges));
  TileAssignConfigPassOptions config;
  config.target = options.target;
  config.part = options.part;
  config.lanes = options.lanes;
  llvm::append_range(config.configs, options.configs);
  manager.addPass(createTileAssignConfigPass(config));
  if (options.quantizeResults) {
    TileQuantizeResultsPassOptions quantize;
    quantize.target = options.target;
    quantize.part = options.part;
    llvm::append_range(quantize.configs, options.configs);
    manager.addPass(createTileQuantizeResultsPass(quantize));
  }
  if (options.permuteRows != PermuteRows::Never) {
    TilePermuteRowsPassOptions permute;
    permute.target = options.target;
    permute.part = options.part;
    permute.always = options.permuteRows == PermuteRows::Always;
    llvm::append_range(permute.configs, options.configs);
    manager.addPass(createTilePermuteRowsPass(permute));
  }
  if (options.splitHeavy) {
    TileSplitHeavyPassOptions split;
    split.target = options.target;
    split.part = options.part;
    llvm::append_range(split.configs, options.configs);
    manager.addPass(createTileSplitHeavyPass(split));
  }
  if (options.dependentLaunches && options.countIds) {
    TileCountIdsPassOptions count;
    count.target = options.target;
    count.part = options.part;
    manager.addPass(createTileCountIdsPass(count));
  }
  if (options.joinProducts) {
    TileJoinProductsPassOptions join;
    join.target = options.target;
    join.part = options.part;
    llvm::append_range(join.configs, options.configs);
    manager.addPass(createTileJoinProductsPass(join));
  }
  TileQueueTilesPassOptions queue;
  queue.target = options.target;
  queue.part = options.part;
  manager.addPass(createTileQueueTilesPass(queue));
  if (options.splitRanking.value_or(0) >= 0) {
    TileSplitRankingPassOptions split;
    split.target = options.target;
    split.part = options.part;
    llvm::append_range(split.configs, options.configs);
    split.most = options.splitRanking.value_or(kSplitRankingSlots);
    split.mostRouted = options.splitRanking.value_or(
        options.fuseRouting ? kSplitRoutedSlots : kSplitRankingSlots);
    manager.addPass(createTileSplitRankingPass(split));
  }
  if (options.fuseRouting) {
    TileFuseRoutingPassOptions fuse;
    fuse.target = options.target;
    fuse.part = options.part;
    llvm::append_range(fuse.configs, options.configs);
    manager.addPass(createTileFuseRoutingPass(fuse));
    TileQuantizeAheadPassOptions ahead;
    ahead.target = options.target;
    ahead.part = options.part;
    llvm::append_range(ahead.configs, options.configs);
    manager.addPass(createTileQuantizeAheadPass(ahead));
  }
  if (!options.dependentLaunches)
    return;
  PlanOverlapLaunchesPassOptions overlap;
  overlap.target = options.target;
  manager.addNestedPass<plan::ProgramOp>(
      createPlanOverlapLaunchesPass(overlap));
  manager.addPass(createTileFindIndependentPass());
}

namespace {

struct MoeToPlanOptions : PassPipelineOptions<MoeToPlanOptions> {
  Option<std::string> target{*this, "target",
                             llvm::cl::desc("what is compiled for"),
                             llvm::cl::init("cpu")};
  Option<bool> keepAll{*this, "keep-all",
                       llvm::cl::desc("one slot per buffer, so that each can "
                                      "be read after a run"),
                       llvm::cl::init(false)};
};

struct PlanToTileOptions : PassPipelineOptions<PlanToTileOptions> {
  Option<std::string> target{*this, "target", llvm::cl::desc("the target: cpu"),
                             llvm::cl::init("cpu")};
  Option<std::string> part{*this, "part",
                           llvm::cl::desc("the part that configs are chosen "
                                          "for; empty: the target's default"),
                           llvm::cl::init("")};
  Option<int64_t> lanes{
      *this, "lanes",
      llvm::cl::desc("f32 elements of a vector; 0: those of the host"),
      llvm::cl::init(0)};
  Option<bool> dependentLaunches{
      *this, "dependent-launches",
      llvm::cl::desc("let launches begin before the one before has ended"),
      llvm::cl::init(true)};
  Option<bool> countIds{
      *this, "count-ids",
      llvm::cl::desc("let products that are dependent launches count ids"),
      llvm::cl::init(true)};
  Option<bool> quantizeResults{
      *this, "quantize-results",
      llvm::cl::desc("let products quantize their results where that takes "
                     "less time"),
      llvm::cl::init(true)};
  Option<PermuteRows> permuteRows{
      *this, "permute-rows",
      llvm::cl::desc("copy rows into order ahead of a product"),
      llvm::cl::init(PermuteRows::Auto), getPermuteRowsValues()};
  Option<bool> splitHeavy{
      *this, "split-heavy",
      llvm::cl::desc("let groups with many rows have launches of their own "
                     "where those take less time"),
      llvm::cl::init(true)};
  Option<bool> joinProducts{
      *this, "join-products",
      llvm::cl::desc("let two products be one kernel where that takes less "
                     "time"),
      llvm::cl::init(true)};
  Option<int64_t> splitRanking{
      *this, "split-ranking",
      llvm::cl::desc("the most slots that one launch ranks; negative: any "
                     "number"),
      llvm::cl::init(kSplitRankingSlots)};
  Option<bool> fuseRouting{
      *this, "fuse-routing",
      llvm::cl::desc("let the launch that routes tokens count or rank their "
                     "slots"),
      llvm::cl::init(true)};
  ListOption<std::string> configs{
      *this, "configs",
      llvm::cl::desc("configs to take: KERNEL[@MIN-MAX]:TEXT")};
};

} // namespace

void moec::registerLevelPipelines() {
  PassPipelineRegistration<MoeToPlanOptions>(
      "moe-to-plan", "from layers to launches over workspace slots",
      [](OpPassManager &manager, const MoeToPlanOptions &options) {
        buildMoeToPlanPipeline(manager, options.target, options.keepAll);
      });
  PassPipelineRegistration<PlanToTileOptions>(
      "plan-to-tile", "from kernels on tensors to configured tile kernels",
      [](OpPassManager &manager, const PlanToTileOptions &options) {
        TileOptions tile{options.target.getValue(),
                         options.part.getValue(),
                         options.lanes,
                         options.dependentLaunches,
                         options.countIds,
                         options.quantizeResults,
                         options.permuteRows,
                         options.splitHeavy,
                         options.joinProducts,
                         options.splitRanking.hasValue()
                             ? std::optional(options.splitRanking.getValue())
                             : std::nullopt,
                         options.fuseRouting,
                         {},
                         std::nullopt};
        llvm::append_range(tile.configs, options.configs);
        buildPlanToTilePipeline(manager, tile);
      });
}
