//===- CompileForGpu.cpp - compiles a layer's kernels in parallel ---------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Stages.h"

#include "mlir/IR/Threading.h"
#include "moec/Compiler/CompileStep.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Dialect/Tile/Tile.h"

#include <atomic>

using namespace mlir;
using namespace moec;

/// Returns a module with one nested module per kernel of `module`, named after
/// it, so that the pass manager processes kernels in parallel.
static OwningOpRef<ModuleOp> splitKernels(ModuleOp module) {
  OwningOpRef<ModuleOp> all = ModuleOp::create(module.getLoc());
  for (auto kernel : module.getOps<tile::KernelOp>()) {
    auto own = ModuleOp::create(kernel.getLoc(), kernel.getName());
    own.push_back(kernel->clone());
    all->push_back(own);
  }
  return all;
}

static LogicalResult dumpKernels(ArrayRef<ModuleOp> kernels,
                                 const CompileOptions &options) {
  if (options.dumpDir.empty())
    return success();
  for (ModuleOp kernel : kernels) {
    FailureOr<std::string> text = printNvptxLLVM(kernel, options.getNvptx());
    if (failed(text) ||
        failed(
            dump(*text, ("layer." + *kernel.getName() + ".ll").str(), options)))
      return failure();
  }
  return success();
}

/// Order of compilation: large kernels first, so that no large one runs alone
/// at the end.
static SmallVector<size_t> orderBySize(ArrayRef<ModuleOp> kernels) {
  SmallVector<size_t> sizes(kernels.size(), 0);
  for (auto [module, size] : llvm::zip(kernels, sizes)) {
    ModuleOp kernel = module;
    kernel.walk([&size = size](Operation *) { ++size; });
  }
  auto order = llvm::to_vector(llvm::seq<size_t>(0, kernels.size()));
  llvm::stable_sort(order,
                    [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  return order;
}

static LogicalResult compileKernel(ModuleOp module,
                                   const CompileOptions &options,
                                   ArrayRef<std::string> architectures,
                                   CompiledKernel &kernel, KernelTimes &times) {
  kernel.name = times.name = module.getName()->str();
  Stopwatch watch;
  FailureOr<std::string> ptx = emitPTX(module, options.getNvptx());
  if (failed(ptx))
    return failure();
  kernel.ptx = std::move(*ptx);
  times.emit = watch.read();
  for (const std::string &architecture : architectures) {
    llvm::Expected<AssembledKernels> assembled =
        assemble(kernel.ptx, architecture, options.assembler);
    if (!assembled)
      return module.emitError("kernel '")
             << kernel.name << "' does not assemble for " << architecture
             << ": " << llvm::toString(assembled.takeError());
    kernel.assembled.push_back(std::move(*assembled));
  }
  if (!architectures.empty())
    times.assemble = watch.read();
  return success();
}

FailureOr<CompiledGpuLayer>
moec::compileForGpu(ModuleOp module, const CompileOptions &options,
                    ArrayRef<std::string> architectures) {
  if (!options.isGpu())
    return module.emitError(
        "the target is 'cpu'; give a GPU target, as in --target=sm_90a");
  CompileTimes times;
  Stopwatch watch;
  if (failed(lowerToLevel(module, Level::Tile, options)))
    return failure();
  CompiledGpuLayer layer;
  FailureOr<moert::Plan> plan = translatePlan(module, options.target);
  if (failed(plan))
    return failure();
  layer.plan = std::move(*plan);
  times.lower = watch.read();

  recordTileLines(module);
  OwningOpRef<ModuleOp> split = splitKernels(module);
  if (failed(runPasses(*split, options, [&](OpPassManager &manager) {
        buildTileToNVVMPipeline(manager.nest<ModuleOp>(), options.target);
      })))
    return failure();
  auto kernels = llvm::to_vector(split->getOps<ModuleOp>());
  if (failed(dumpKernels(kernels, options)))
    return failure();
  times.convert = watch.read();

  // All kernels, and the two stages before them.
  MLIRContext *context = module.getContext();
  std::atomic<size_t> done = 2;
  size_t all = done + kernels.size();
  noteStep(context, done, all);
  layer.kernels.resize(kernels.size());
  times.perKernel.resize(kernels.size());
  registerNvptxTranslations(*context);
  if (failed(
          failableParallelForEach(context, orderBySize(kernels), [&](size_t i) {
            LogicalResult result =
                compileKernel(kernels[i], options, architectures,
                              layer.kernels[i], times.perKernel[i]);
            noteStep(context, ++done, all);
            return result;
          })))
    return failure();
  times.kernels = watch.read();
  if (options.times)
    *options.times = std::move(times);
  return layer;
}
