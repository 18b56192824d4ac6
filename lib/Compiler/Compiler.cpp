//===- Compiler.cpp - lowers a module level by level ----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Stages.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Compiler/CompileStep.h"
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
    // Whole modules are printed, so function passes must not run in parallel.
    module.getContext()->disableMultithreading();
    manager.enableIRPrinting(
        /*shouldPrintBeforePass=*/nullptr,
        /*shouldPrintAfterPass=*/[](Pass *, Operation *) { return true; },
        /*printModuleScope=*/true, /*printAfterOnlyOnChange=*/false);
  }
  if (!options.reproducer.empty())
    manager.enableCrashReproducerGeneration(options.reproducer);
  // Verify after each pass, as moe-opt does, only if intermediate IR is printed
  // or recorded. Otherwise verify once at the end: verification takes a third
  // of the time of kernel conversions.
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
    manager.addNestedPass<func::FuncOp>(createMoeParallelizePass());
    manager.addNestedPass<func::FuncOp>(createMoeVerifyPartialsPass());
  });
}

static TileOptions getTileOptions(const CompileOptions &options) {
  TileOptions tile = options;
  if (!options.isGpu()) {
    Target machine = getCpuTarget(options.cpu);
    tile.lanes = machine.lanes;
    tile.products = Target::getName(machine.products);
  }
  return tile;
}

/// Adds the passes from a level to the next one. At level tile, adds what
/// hand-written IR may lack.
static void buildStep(OpPassManager &manager, Level from,
                      const CompileOptions &options) {
  switch (from) {
  case Level::Moe:
    return buildMoeToPlanPipeline(manager, options.target,
                                  options.keepAllBuffers);
  case Level::Plan:
    return buildPlanToTilePipeline(manager, getTileOptions(options));
  case Level::Tile:
    return buildTilePipeline(manager, getTileOptions(options));
  }
}

static void buildKernels(OpPassManager &manager,
                         const CompileOptions &options) {
  if (options.isGpu())
    buildTileToNVVMPipeline(manager, options.target);
  else
    buildTileToLLVMPipeline(manager);
}

static Level getNext(Level level) {
  return level == Level::Moe ? Level::Plan : Level::Tile;
}

std::string moec::printPipeline(Level from, Level to, bool toKernels,
                                const CompileOptions &options) {
  OpPassManager manager(ModuleOp::getOperationName());
  if (from == Level::Tile)
    buildStep(manager, from, options);
  for (Level level = from; level < to; level = getNext(level))
    buildStep(manager, level, options);
  if (toKernels)
    buildKernels(manager, options);
  std::string text;
  llvm::raw_string_ostream os(text);
  manager.printAsTextualPipeline(os);
  return text;
}

LogicalResult moec::lowerToLevel(ModuleOp module, Level level,
                                 const CompileOptions &options) {
  FailureOr<Level> current = detectLevel(module);
  if (failed(current))
    return failure();
  if (*current > level)
    return module.emitError("the module is at level '")
           << stringifyLevel(*current) << "', below '" << stringifyLevel(level)
           << "'; choose a level at or below it";
  auto runStep = [&] {
    if (*current != Level::Moe && !options.isGpu() &&
        failed(checkCpu(module, options.cpu)))
      return failure();
    return runPasses(module, options, [&](OpPassManager &manager) {
      buildStep(manager, *current, options);
    });
  };
  if (*current == Level::Tile && failed(runStep()))
    return failure();
  if (failed(dumpLevel(module, *current, options)))
    return failure();
  while (*current < level) {
    if (failed(runStep()))
      return failure();
    current = getNext(*current);
    if (failed(dumpLevel(module, *current, options)))
      return failure();
  }
  return success();
}

/// Lowers the kernels of a module of any level to the llvm dialect. The module
/// itself ends at level tile.
static FailureOr<OwningOpRef<ModuleOp>>
lowerKernels(ModuleOp module, const CompileOptions &options) {
  if (failed(lowerToLevel(module, Level::Tile, options)))
    return failure();
  if (options.isGpu())
    recordTileLines(module);
  OwningOpRef<ModuleOp> kernels = module.clone();
  auto build = [&](OpPassManager &manager) { buildKernels(manager, options); };
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
  noteStep(module.getContext(), /*done=*/1, /*all=*/2);
  FailureOr<moert::Plan> plan = translatePlan(module, "cpu");
  if (failed(plan))
    return failure();
  FailureOr<moert::ModuleImage> image = jitKernels(**kernels, options.cpu);
  if (failed(image))
    return failure();
  noteStep(module.getContext(), /*done=*/2, /*all=*/2);
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
