//===- Pipeline.cpp - lowers level tile to llvm and nvvm ------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "moec/Conversion/Passes.h"
#include "moec/Support/Targets.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"
#include "moert/GpuTarget.h"

using namespace mlir;

void moec::buildTileToNVVMPipeline(OpPassManager &manager, StringRef target) {
  ConvertTileToNVVMPassOptions options;
  options.target = target.str();
  manager.addPass(createConvertTileToNVVMPass(options));
  manager.addPass(createCSEPass());
  GpuKernelEntryPassOptions entry;
  entry.target = target.str();
  manager.addPass(createGpuKernelEntryPass(entry));
  manager.addNestedPass<LLVM::LLVMFuncOp>(createVerifyGpuAddressesPass());
  // Runs its patterns greedily, which also merges equal blocks.
  manager.addPass(createConvertVectorToLLVMPass());
  manager.addPass(createConvertNVVMToLLVMPass());
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createFinalizeMemRefToLLVMConversionPass());
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createUBToLLVMConversionPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
  manager.addPass(createCSEPass());
  // After all passes that could move a fence or a write.
  OpPassManager &kernels = manager.nest<LLVM::LLVMFuncOp>();
  kernels.addPass(createVerifyGpuFencesPass());
  kernels.addPass(createVerifyGpuMulticastPass());
  std::optional<moert::GpuTarget> gpu = moert::GpuTarget::parse(target);
  if (gpu && gpu->hasDependentLaunches())
    kernels.addPass(createVerifyGpuDependentsPass());
}

namespace {
struct TileToNVVMOptions : PassPipelineOptions<TileToNVVMOptions> {
  Option<std::string> target{
      *this, "target", llvm::cl::value_desc(getGpuTargetChoices()),
      llvm::cl::desc("the GPU"), llvm::cl::init("sm_80")};
};
} // namespace

void moec::registerTileToNVVMPipeline() {
  PassPipelineRegistration<TileToNVVMOptions>(
      "tile-to-nvvm",
      "kernels of level tile, configured for a GPU, to the llvm and nvvm "
      "dialects",
      [](OpPassManager &manager, const TileToNVVMOptions &options) {
        buildTileToNVVMPipeline(manager, options.target.getValue());
      });
}
