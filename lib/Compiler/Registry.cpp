//===- Registry.cpp - dialects and passes of moec ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/Registry.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"
#include "moec/Compiler/Levels.h"
#include "moec/Conversion/Passes.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Schedules/CandidateMemo.h"
#include "moec/Target/CPU.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"

using namespace mlir;

void moec::registerDialects(DialectRegistry &registry) {
  registry.insert<moe::MoeDialect, plan::PlanDialect, tile::TileDialect>();
  registry
      .insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
              LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect,
              NVVM::NVVMDialect, scf::SCFDialect, vector::VectorDialect>();
  registerCandidateMemo(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

void moec::registerPasses() {
  registerMoecTransformsPasses();
  registerMoecConversionPasses();
  registerLevelPipelines();
  registerTileToLLVMPipeline();
  registerTileToNVVMPipeline();
  registerCanonicalizerPass();
  registerCSEPass();
  registerSymbolDCEPass();
  // Upstream passes of the pipelines from level tile to the llvm dialect.
  arith::registerArithExpandOpsPass();
  registerArithToLLVMConversionPass();
  registerConvertControlFlowToLLVMPass();
  registerConvertFuncToLLVMPass();
  registerConvertMathToLLVMPass();
  registerConvertNVVMToLLVMPass();
  registerConvertVectorToLLVMPass();
  registerFinalizeMemRefToLLVMConversionPass();
  registerReconcileUnrealizedCastsPass();
  registerSCFToControlFlowPass();
  registerUBToLLVMConversionPass();
}
