//===- Translate.cpp - emits LLVM IR and assembly -------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Translate.h"
#include "../Optimize.h"
#include "Machine.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"

using namespace mlir;
using namespace moec;

/// The integer type with the bits of a bfloat or of a vector of them; null for
/// any other type.
static llvm::Type *getBitsOfBFloat(llvm::Type *type) {
  if (!type->getScalarType()->isBFloatTy())
    return nullptr;
  return type->getWithNewType(llvm::Type::getInt16Ty(type->getContext()));
}

/// Loads and stores bfloats as integers, since all arithmetic on them is
/// integer arithmetic. A bfloat value that crosses blocks would make
/// instruction selection round it again, with a call of a library function that
/// kernels do not have.
static void accessBFloatsAsIntegers(llvm::Function &function) {
  for (llvm::BasicBlock &block : function)
    for (llvm::Instruction &access : llvm::make_early_inc_range(block)) {
      llvm::Type *bits = nullptr;
      auto *store = dyn_cast<llvm::StoreInst>(&access);
      if (store)
        bits = getBitsOfBFloat(store->getValueOperand()->getType());
      else if (isa<llvm::LoadInst>(access))
        bits = getBitsOfBFloat(access.getType());
      if (!bits)
        continue;
      llvm::IRBuilder<> builder(&access);
      if (store) {
        store->setOperand(
            0, builder.CreateBitCast(store->getValueOperand(), bits));
        continue;
      }
      auto *load = cast<llvm::LoadInst>(access.clone());
      load->mutateType(bits);
      builder.Insert(load);
      access.replaceAllUsesWith(builder.CreateBitCast(load, access.getType()));
      access.eraseFromParent();
    }
}

FailureOr<std::unique_ptr<llvm::Module>>
moec::translateKernels(ModuleOp module, llvm::TargetMachine &machine,
                       llvm::LLVMContext &context) {
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  auto translated = translateFor(machine, module, context);
  if (failed(translated))
    return failure();
  for (llvm::Function &function : **translated) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.setDoesNotThrow();
    accessBFloatsAsIntegers(function);
    if (!function.getName().ends_with("__body"))
      continue;
    // Inlining it into its entry would lose the noalias of the pointers.
    function.setLinkage(llvm::GlobalValue::InternalLinkage);
    function.addFnAttr(llvm::Attribute::NoInline);
  }
  return translated;
}

/// Translates for the requested CPU and passes module and machine to `print`.
static FailureOr<std::string>
printKernels(ModuleOp module, const CpuTargetOptions &options,
             function_ref<LogicalResult(llvm::Module &, llvm::TargetMachine &,
                                        llvm::raw_pwrite_stream &)>
                 print) {
  auto builder = makeMachineBuilder(options);
  if (!builder)
    return module.emitError(llvm::toString(builder.takeError()));
  auto machine = builder->createTargetMachine();
  if (!machine)
    return module.emitError(llvm::toString(machine.takeError()));
  llvm::LLVMContext context;
  auto translated = translateKernels(module, **machine, context);
  if (failed(translated))
    return failure();
  SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  if (failed(print(**translated, **machine, stream)))
    return failure();
  return text.str().str();
}

FailureOr<std::string> moec::printLLVM(ModuleOp module,
                                       const CpuTargetOptions &options) {
  return printKernels(module, options,
                      [](llvm::Module &kernels, llvm::TargetMachine &,
                         llvm::raw_pwrite_stream &stream) {
                        kernels.print(stream, /*AAW=*/nullptr);
                        return success();
                      });
}

FailureOr<std::string> moec::printAssembly(ModuleOp module,
                                           const CpuTargetOptions &options) {
  return printKernels(
      module, options,
      [&](llvm::Module &kernels, llvm::TargetMachine &machine,
          llvm::raw_pwrite_stream &stream) -> LogicalResult {
        optimizeKernels(kernels, machine);
        llvm::legacy::PassManager passes;
        if (machine.addPassesToEmitFile(passes, stream, nullptr,
                                        llvm::CodeGenFileType::AssemblyFile))
          return module.emitError("the CPU's target cannot print assembly");
        passes.run(kernels);
        return success();
      });
}
