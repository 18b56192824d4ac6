//===- CpuKernelEntry.cpp - what the runtime calls --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Replaces a kernel's memref arguments by plain pointers. The body builds the
// descriptors itself, as constants around the pointer. So nothing of MLIR's
// calling convention remains, and the pointers can be `noalias`: a launch never
// names a buffer both as an input and as an output.

#include "KernelBuilder/EntryMemRefs.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "moec/Conversion/Passes.h"

namespace moec {
#define GEN_PASS_DEF_CPUKERNELENTRYPASS
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Replaces the memref arguments by pointers, and makes the function private.
LogicalResult makeBody(func::FuncOp func) {
  auto pointer = LLVM::LLVMPointerType::get(func.getContext());
  if (failed(replaceMemRefArguments(func, pointer)))
    return failure();
  Builder b(func.getContext());
  Block &block = func.getBody().front();
  func.setFunctionType(b.getFunctionType(block.getArgumentTypes(), {}));
  func.setAllArgAttrs(ArrayAttr());
  for (BlockArgument argument : block.getArguments())
    if (argument.getType() == pointer)
      func.setArgAttr(argument.getArgNumber(),
                      LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  func->removeAttr("moec.kernel");
  func.setPrivate();
  return success();
}

void makeEntry(func::FuncOp body, StringRef name) {
  ImplicitLocOpBuilder b(body.getLoc(), body);
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(b.getContext()), {pointer, i64});
  auto entry = LLVM::LLVMFuncOp::create(b, name, type);
  Block *block = entry.addEntryBlock(b);
  b.setInsertionPointToStart(block);
  SmallVector<Value> args;
  for (auto [i, argType] :
       llvm::enumerate(body.getArgumentTypes().drop_back())) {
    Value slot = LLVM::GEPOp::create(b, pointer, i64, block->getArgument(0),
                                     LLVM::GEPArg(static_cast<int32_t>(i)));
    args.push_back(LLVM::LoadOp::create(b, argType, slot));
  }
  args.push_back(
      arith::IndexCastOp::create(b, b.getIndexType(), block->getArgument(1)));
  func::CallOp::create(b, body, args);
  LLVM::ReturnOp::create(b, ValueRange());
}

struct CpuKernelEntry : moec::impl::CpuKernelEntryPassBase<CpuKernelEntry> {
  void runOnOperation() override {
    for (auto func :
         llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      if (!func->hasAttr("moec.kernel"))
        continue;
      if (failed(makeBody(func)))
        return signalPassFailure();
      std::string name = func.getName().str();
      func.setName(name + "__body");
      makeEntry(func, name);
    }
  }
};

} // namespace
