//===- Levels.cpp - IR levels and the pipelines between them --------------===//
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
    return module.emitError(
        "has nothing to compile; give a func.func with moe ops, or a "
        "plan.program with plan.kernel or tile.kernel");
  if (numLevels > 1)
    return (planKernel ? planKernel : layer)
        ->emitOpError("is at a different level than the rest of the module; "
                      "lower the whole module to one level");
  return layer ? Level::Moe : planKernel ? Level::Plan : Level::Tile;
}

void moec::buildMoeToPlanPipeline(OpPassManager &manager, StringRef target,
                                  bool keepAllBuffers) {
  manager.addNestedPass<func::FuncOp>(createMoeDecomposePass());
  manager.addNestedPass<func::FuncOp>(createMoeParallelizePass());
  manager.addNestedPass<func::FuncOp>(createMoeVerifyPartialsPass());
  MoeLegalizeQuantPassOptions quant;
  quant.target = target.str();
  manager.addNestedPass<func::FuncOp>(createMoeLegalizeQuantPass(quant));
  manager.addPass(createConvertMoeToPlanPass());
  PlanAssignSlotsPassOptions slots;
  slots.keepAll = keepAllBuffers;
  manager.addNestedPass<plan::ProgramOp>(createPlanAssignSlotsPass(slots));
}

template <typename PassOptions>
static PassOptions makeOrderOptions(const TileOptions &options) {
  PassOptions pass;
  pass.target = options.target;
  pass.part = options.part;
  pass.lanes = options.lanes;
  pass.products = options.products;
  return pass;
}

template <typename PassOptions>
static PassOptions makePassOptions(const TileOptions &options) {
  auto pass = makeOrderOptions<PassOptions>(options);
  llvm::append_range(pass.configs, options.configs);
  return pass;
}

void moec::buildTilePipeline(OpPassManager &manager,
                             const TileOptions &options) {
  manager.addPass(createTileAssignConfigPass(
      makePassOptions<TileAssignConfigPassOptions>(options)));
}

void moec::buildPlanToTilePipeline(OpPassManager &manager,
                                   const TileOptions &options) {
  manager.addPass(createConvertPlanToTilePass());
  manager.addPass(createTileSplitPhasesPass());
  manager.addPass(createTileFixSumOrdersPass(
      makeOrderOptions<TileFixSumOrdersPassOptions>(options)));
  auto kernels = makePassOptions<TileChooseKernelsPassOptions>(options);
  llvm::append_range(kernels.disable, options.disable);
  llvm::append_range(kernels.set, options.set);
  kernels.dependentLaunches = options.dependentLaunches;
  kernels.keepAll = options.keepAllBuffers;
  manager.addPass(createTileChooseKernelsPass(kernels));
  TileMakeExchangesPassOptions exchanges;
  exchanges.target = options.target;
  llvm::append_range(exchanges.configs, options.configs);
  manager.addPass(createTileMakeExchangesPass(exchanges));
  manager.addPass(createTileCertifySumOrdersPass(
      makeOrderOptions<TileCertifySumOrdersPassOptions>(options)));
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
  Option<std::string> target{*this, "target", llvm::cl::desc("the target"),
                             llvm::cl::init("cpu")};
  Option<bool> keepAll{
      *this, "keep-all",
      llvm::cl::desc(
          "one slot per buffer, so that each buffer can be read after a run"),
      llvm::cl::init(false)};
};

struct PlanToTileOptions : PassPipelineOptions<PlanToTileOptions> {
  Option<std::string> target{*this, "target", llvm::cl::desc("the target: cpu"),
                             llvm::cl::init("cpu")};
  Option<std::string> part{
      *this, "part",
      llvm::cl::desc("the model of GPU that configs are chosen for; empty: the "
                     "target's default"),
      llvm::cl::init("")};
  Option<int64_t> lanes{
      *this, "lanes",
      llvm::cl::desc("f32 elements of a vector; 0: as on the host"),
      llvm::cl::init(0)};
  Option<std::string> products{
      *this, "products",
      llvm::cl::desc("instructions for products: fma, bf16 or amx; empty: "
                     "those of the host without 'lanes', else fma"),
      llvm::cl::init("")};
  Option<bool> dependentLaunches{
      *this, "dependent-launches",
      llvm::cl::desc(
          "let launches begin before the launch ahead of them has ended"),
      llvm::cl::init(true)};
  Option<bool> keepAll{*this, "keep-all",
                       llvm::cl::desc("each buffer keeps its own slot, so no "
                                      "rewrite may add or remove one"),
                       llvm::cl::init(false)};
  ListOption<std::string> disable{
      *this, "disable",
      llvm::cl::desc("rewrites of tile-rewrite-launches to disable")};
  ListOption<std::string> set{
      *this, "set",
      llvm::cl::desc("parameters of rewrites: REWRITE.NAME[=VALUE]")};
  ListOption<std::string> configs{
      *this, "configs",
      llvm::cl::desc("forced configs: KERNEL[@MIN-MAX]:TEXT")};
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
        TileOptions tile;
        tile.target = options.target;
        tile.part = options.part;
        tile.lanes = options.lanes;
        tile.products = options.products;
        tile.dependentLaunches = options.dependentLaunches;
        tile.keepAllBuffers = options.keepAll;
        llvm::append_range(tile.configs, options.configs);
        llvm::append_range(tile.disable, options.disable);
        llvm::append_range(tile.set, options.set);
        buildPlanToTilePipeline(manager, tile);
      });
}
