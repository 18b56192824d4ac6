//===- Translate.cpp - translates kernels to LLVM IR ----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Translate.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Target/LLVMIR/Export.h"

using namespace mlir;
using namespace moec;

FailureOr<std::unique_ptr<llvm::Module>>
moec::translateFor(llvm::TargetMachine &machine, ModuleOp module,
                   llvm::LLVMContext &context) {
  // The plan is data for the runtime; only kernels are translated.
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(module.getLoc());
  OpBuilder builder = OpBuilder::atBlockEnd(kernels->getBody());
  for (Operation &op : *module.getBody())
    if (isa_and_nonnull<LLVM::LLVMDialect>(op.getDialect()))
      builder.clone(op);
  auto translated = translateModuleToLLVMIR(*kernels, context, "kernels");
  if (!translated)
    return module.emitError("the kernels could not be translated to LLVM IR");
  translated->setDataLayout(machine.createDataLayout());
  translated->setTargetTriple(machine.getTargetTriple());
  return translated;
}
