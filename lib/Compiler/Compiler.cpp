//===- Compiler.cpp - from a description to a layer that runs ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Stages.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Compiler/OutputFile.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Transforms/Passes.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::dump(StringRef text, StringRef name,
                         const CompileOptions &options) {
  SmallString<128> path(options.dumpDir);
  llvm::sys::path::append(path, name);
  return writeOutputFile(path, text);
}

static LogicalResult dumpLevel(ModuleOp module, Level level,
                               const CompileOptions &options) {
  if (options.dumpDir.empty())
    return success();
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os);
  return dump(text, ("layer." + stringifyLevel(level) + ".mlir").str(),
              options);
}

static FailureOr<std::string> printKernels(ModuleOp kernels,
                                           const CompileOptions &options) {
  return options.isGpu() ? printNvptxLLVM(kernels, options.getNvptx())
                         : printLLVM(kernels, options.cpu);
}

static LogicalResult dumpKernels(ModuleOp kernels,
                                 const CompileOptions &options) {
  if (options.dumpDir.empty())
    return success();
  FailureOr<std::string> text = printKernels(kernels, options);
  return failed(text) ? failure() : dump(*text, "layer.ll", options);
}

LogicalResult moec::runPasses(ModuleOp module, const CompileOptions &options,
                              function_ref<void(OpPassManager &)> build) {
  PassManager manager(module.getContext());
  if (options.printIRAfterAll) {
    // Whole modules are printed, so passes on functions run one by one.
    module.getContext()->disableMultithreading();
    manager.enableIRPrinting(
        /*shouldPrintBeforePass=*/nullptr,
        /*shouldPrintAfterPass=*/[](Pass *, Operation *) { return true; },
        /*printModuleScope=*/true, /*printAfterOnlyOnChange=*/false);
  }
  if (!options.reproducer.empty())
    manager.enableCrashReproducerGeneration(options.reproducer);
  // Verified after each pass where somebody looks at what each of them makes,
  // as moe-opt always does; else once, behind all of them, for that is a third
  // of what the conversions of a layer's kernels take.
  bool isWatched = options.printIRAfterAll || !options.reproducer.empty();
  manager.enableVerifier(isWatched);
  build(manager);
  if (failed(manager.run(module)))
    return failure();
  return isWatched ? success() : verify(module);
}

LogicalResult moec::decomposeLayers(ModuleOp module,
                                    const CompileOptions &options) {
  if (failed(dumpLevel(module, Level::Moe, options)))
    return failure();
  return runPasses(module, options, [](OpPassManager &manager) {
    manager.addNestedPass<func::FuncOp>(createMoeDecomposePass());
  });
}

/// From level plan, with so many kernels before some are split and others
/// joined.
static LogicalResult lowerToTile(ModuleOp module, int64_t maxKernels,
                                 const CompileOptions &options) {
  TileOptions tile;
  tile.target = options.target;
  tile.part = options.part;
  tile.lanes = options.isGpu() ? 0 : getVectorLanes(options.cpu);
  tile.dependentLaunches = options.dependentLaunches;
  tile.countIds = options.countIds;
  tile.quantizeResults = options.quantizeResults && !options.keepAllBuffers;
  tile.permuteRows =
      options.keepAllBuffers ? PermuteRows::Never : options.permuteRows;
  tile.splitHeavy = options.splitHeavy;
  tile.joinProducts = options.joinProducts;
  tile.splitRanking = options.splitRanking;
  tile.fuseRouting = options.fuseRouting;
  tile.configs = options.configs;
  tile.maxKernels = maxKernels;
  return runPasses(module, options, [&](OpPassManager &manager) {
    buildPlanToTilePipeline(manager, tile);
  });
}

/// Where passes have added more kernels than others have joined, all of them
/// run again, with fewer to begin with.
static LogicalResult lowerToTile(ModuleOp module,
                                 const CompileOptions &options) {
  OwningOpRef<ModuleOp> before;
  if (options.isGpu())
    before = module.clone();
  for (int64_t most = kMaxKernels, last = 0, stalled = 0;;) {
    if (failed(lowerToTile(module, most, options)))
      return failure();
    int64_t count = llvm::range_size(module.getOps<tile::KernelOp>());
    if (!before || count <= kMaxKernels || most == 1)
      return success();
    // What is merged may have been joined, so that there are no fewer.
    stalled = count == last ? stalled + 1 : 0;
    most = std::max<int64_t>(most - (count - kMaxKernels) - stalled, 1);
    last = count;
    module.getBodyRegion().takeBody(
        OwningOpRef<ModuleOp>(before->clone())->getBodyRegion());
  }
}

LogicalResult moec::lowerToLevel(ModuleOp module, Level level,
                                 const CompileOptions &options) {
  FailureOr<Level> current = detectLevel(module);
  if (failed(current))
    return failure();
  if (*current > level)
    return module.emitError("the module is at level '")
           << stringifyLevel(*current) << "', below '" << stringifyLevel(level)
           << "'; lowering cannot be undone";
  // IR by hand may lack configs, or have grids that do not fit them.
  if (*current == Level::Tile &&
      ((!options.isGpu() && failed(checkCpu(module, options.cpu))) ||
       failed(runPasses(module, options, [&](OpPassManager &manager) {
         TileAssignConfigPassOptions config;
         config.target = options.target;
         config.part = options.part;
         config.lanes = options.isGpu() ? 0 : getVectorLanes(options.cpu);
         llvm::append_range(config.configs, options.configs);
         manager.addPass(createTileAssignConfigPass(config));
       }))))
    return failure();
  if (failed(dumpLevel(module, *current, options)))
    return failure();
  if (*current == Level::Moe && level > Level::Moe) {
    if (failed(runPasses(module, options, [&](OpPassManager &manager) {
          buildMoeToPlanPipeline(manager, options.target,
                                 options.keepAllBuffers);
        })))
      return failure();
    current = Level::Plan;
    if (failed(dumpLevel(module, *current, options)))
      return failure();
  }
  if (*current == Level::Plan && level > Level::Plan) {
    if (!options.isGpu() && failed(checkCpu(module, options.cpu)))
      return failure();
    if (failed(lowerToTile(module, options)))
      return failure();
    return dumpLevel(module, Level::Tile, options);
  }
  return success();
}

/// The kernels of a module of any level in the llvm dialect; the module itself
/// is left at level tile.
static FailureOr<OwningOpRef<ModuleOp>>
lowerKernels(ModuleOp module, const CompileOptions &options) {
  if (failed(lowerToLevel(module, Level::Tile, options)))
    return failure();
  if (options.isGpu())
    recordTileLines(module);
  OwningOpRef<ModuleOp> kernels = module.clone();
  auto build = [&](OpPassManager &manager) {
    if (options.isGpu())
      buildTileToNVVMPipeline(manager, options.target);
    else
      buildTileToLLVMPipeline(manager);
  };
  if (failed(runPasses(*kernels, options, build)) ||
      failed(dumpKernels(*kernels, options)))
    return failure();
  return kernels;
}

FailureOr<CompiledLayer> moec::compileForHost(ModuleOp module,
                                              const CompileOptions &options) {
  if (options.isGpu())
    return module.emitError("the target is the GPU '")
           << options.target << "', but the host runs target 'cpu'";
  auto kernels = lowerKernels(module, options);
  if (failed(kernels))
    return failure();
  FailureOr<moert::Plan> plan = translatePlan(module, "cpu");
  if (failed(plan))
    return failure();
  FailureOr<moert::ModuleImage> image = jitKernels(**kernels, options.cpu);
  if (failed(image))
    return failure();
  return CompiledLayer{std::move(*plan), std::move(*image)};
}

FailureOr<std::string> moec::emitLLVM(ModuleOp module,
                                      const CompileOptions &options) {
  auto kernels = lowerKernels(module, options);
  if (failed(kernels))
    return failure();
  return printKernels(**kernels, options);
}

FailureOr<std::string> moec::emitPTX(ModuleOp module,
                                     const CompileOptions &options) {
  if (!options.isGpu())
    return module.emitError("the target is 'cpu', which has no PTX");
  auto kernels = lowerKernels(module, options);
  if (failed(kernels))
    return failure();
  return emitPTX(**kernels, options.getNvptx());
}
