//===- Ptx.cpp - emits LLVM IR and PTX ------------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Optimize.h"
#include "../Translate.h"
#include "LineInfo.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "moec/Support/Targets.h"
#include "moec/Target/NVPTX.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace moec;

static constexpr llvm::StringLiteral kTriple = "nvptx64-nvidia-cuda";

/// The oldest version of PTX with all instructions of the kernels.
static unsigned findPtxVersion(Operation *op, const TargetFacts &facts) {
  // st.async is younger than clusters.
  constexpr unsigned kOfClusters = 81;
  bool hasClusters =
      op->walk<WalkOrder::PreOrder>([](LLVM::LLVMFuncOp func) {
          return func->hasAttr(NVVM::NVVMDialect::getClusterDimAttrName())
                     ? WalkResult::interrupt()
                     : WalkResult::skip();
        }).wasInterrupted();
  return hasClusters ? std::max(facts.ptxVersion, kOfClusters)
                     : facts.ptxVersion;
}

/// Fails with a diagnostic at `op`.
static FailureOr<std::unique_ptr<llvm::TargetMachine>>
makeMachine(Operation *op, const NvptxOptions &options) {
  // Once per process: target registration is not thread-safe.
  static const bool initialized = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)initialized;
  llvm::Triple triple(kTriple);
  std::string error;
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return op->emitError("cannot generate code for GPUs: ") << error;
  const TargetFacts *facts = findTarget(options.chip);
  if (!facts || facts->simulated.empty())
    return op->emitError("unknown GPU '")
           << options.chip << "'; accepted are " << listGpuTargets();
  std::string features =
      "+ptx" + std::to_string(options.ptxVersion ? options.ptxVersion
                                                 : findPtxVersion(op, *facts));
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, options.chip, features, llvm::TargetOptions(), std::nullopt,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

void moec::registerNvptxTranslations(MLIRContext &context) {
  registerBuiltinDialectTranslation(context);
  registerLLVMDialectTranslation(context);
  registerNVVMDialectTranslation(context);
}

/// Keeps equal code at the ends of two branches separate. Merging needs a
/// common register assignment, but the registers of asynchronous gemm
/// instructions in flight must not be renamed.
static void keepBranchesApart(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::CallBase>(&instruction))
        if (call->mayHaveSideEffects())
          call->addFnAttr(llvm::Attribute::NoMerge);
}

static FailureOr<std::unique_ptr<llvm::Module>>
translate(ModuleOp module, llvm::TargetMachine &machine,
          llvm::LLVMContext &context) {
  registerNvptxTranslations(*module.getContext());
  auto translated = translateFor(machine, module, context);
  if (failed(translated))
    return failure();
  keepBranchesApart(**translated);
  return translated;
}

FailureOr<std::string> moec::printNvptxLLVM(ModuleOp module,
                                            const NvptxOptions &options) {
  auto machine = makeMachine(module, options);
  if (failed(machine))
    return failure();
  llvm::LLVMContext context;
  auto kernels = translate(module, **machine, context);
  if (failed(kernels))
    return failure();
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*kernels)->print(stream, /*AAW=*/nullptr);
  return text;
}

FailureOr<std::string> moec::emitPTX(ModuleOp module,
                                     const NvptxOptions &options) {
  auto machine = makeMachine(module, options);
  if (failed(machine))
    return failure();
  attachLineInfo(module);
  llvm::LLVMContext context;
  auto kernels = translate(module, **machine, context);
  if (failed(kernels))
    return failure();
  optimizeKernels(**kernels, **machine);
  SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if ((*machine)->addPassesToEmitFile(passes, stream, nullptr,
                                      llvm::CodeGenFileType::AssemblyFile))
    return module.emitError("LLVM's target for GPUs cannot print PTX");
  passes.run(**kernels);
  return text.str().str();
}
