//===- GpuKernelEntry.cpp - what the driver launches ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel parameters: global addresses, each followed by the non-constant
// strides, and the token count, 64 bits each; then tensor maps by value.
// Addresses may be `noalias`: a launch never names a buffer both as an input
// and as an output.
//
// Launches may be dependent from sm_90 on (docs/design/lowering-to-gpu.md). A
// kernel lets the next one begin as soon as it has begun itself: those who
// begin wait, and whoever has room for them has begun all CTAs of this kernel.
// A kernel whose form is `late` does so behind its own waits.

#include "KernelBuilder/EntryMemRefs.h"
#include "KernelBuilder/InlinePtx.h"
#include "Schedules/Interface/Emit.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "moec/Conversion/Passes.h"
#include "moec/Schedules/PtxasLimits.h"
#include "moec/Support/Targets.h"
#include "moert/GpuTarget.h"

namespace moec {
#define GEN_PASS_DEF_GPUKERNELENTRYPASS
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

constexpr unsigned kGlobalSpace = 1;

/// Marks argument `i` as a tensor map that the launch passes by value.
void passTensorMap(LLVM::LLVMFuncOp kernel, unsigned i) {
  constexpr int64_t bytes = 128, alignment = 64;
  Builder b(kernel.getContext());
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), bytes);
  kernel.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(),
                    TypeAttr::get(type));
  kernel.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                    b.getI64IntegerAttr(alignment));
  kernel.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(),
                    b.getUnitAttr());
}

/// LLVM assumes that barriers and waits do not change memory that is only
/// reachable by one argument. Memory that other threads write must be read
/// again.
void renewMemoryBehind(Operation *op, LLVM::LLVMFuncOp kernel) {
  SmallVector<Value> addresses;
  for (Value argument : kernel.getBody().front().getArguments())
    if (auto pointer = dyn_cast<LLVM::LLVMPointerType>(argument.getType());
        pointer && pointer.getAddressSpace() == kGlobalSpace)
      addresses.push_back(argument);
  ImplicitLocOpBuilder b(op->getLoc(), op->getContext());
  b.setInsertionPointAfter(op);
  renewMemory(b, addresses);
}

/// Lets the next launch begin, and waits for the one before unless emission has
/// chosen the point.
void orderLaunches(LLVM::LLVMFuncOp kernel) {
  SmallVector<NVVM::GriddepcontrolOp> waits;
  kernel.walk([&](NVVM::GriddepcontrolOp op) {
    if (op.getKind() == NVVM::GridDepActionKind::wait)
      waits.push_back(op);
  });
  Block &entry = kernel.getBody().front();
  auto b = ImplicitLocOpBuilder::atBlockBegin(kernel.getLoc(), &entry);
  auto form = kernel->getAttrOfType<tile::KernelFormAttr>(kFormAttr);
  bool isLate = form && form.getLate();
  auto letDependentsBegin = [&] {
    NVVM::GriddepcontrolOp::create(b,
                                   NVVM::GridDepActionKind::launch_dependents);
  };
  if (!isLate)
    letDependentsBegin();
  if (waits.empty()) {
    if (form && form.getIndependent())
      b.setInsertionPoint(entry.getTerminator());
    waits.push_back(
        NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait));
  }
  for (NVVM::GriddepcontrolOp wait : waits) {
    renewMemoryBehind(wait, kernel);
    if (!isLate)
      continue;
    b.setInsertionPointAfter(wait);
    letDependentsBegin();
  }
}

void makeKernel(func::FuncOp func, bool hasDependentLaunches) {
  ImplicitLocOpBuilder b(func.getLoc(), func);
  Block &body = func.getBody().front();
  auto type =
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()),
                                  llvm::to_vector(body.getArgumentTypes()));
  auto kernel = LLVM::LLVMFuncOp::create(b, func.getName(), type);
  kernel->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  auto threads = func->getAttrOfType<IntegerAttr>("moec.block");
  kernel->setAttr(
      NVVM::NVVMDialect::getReqntidAttrName(),
      b.getDenseI32ArrayAttr({static_cast<int32_t>(threads.getInt())}));
  auto form = func->getAttrOfType<tile::KernelFormAttr>(kFormAttr);
  if (form && form.getRegisters())
    kernel->setAttr(
        NVVM::NVVMDialect::getMaxnregAttrName(),
        b.getI32IntegerAttr(static_cast<int32_t>(form.getRegisters())));
  else
    kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                    b.getI32IntegerAttr(ptxas::kFewestCtas));
  if (form && form.getCluster())
    kernel->setAttr(NVVM::NVVMDialect::getClusterDimAttrName(),
                    b.getDenseI32ArrayAttr(
                        {static_cast<int32_t>(form.getCluster()), 1, 1}));
  for (auto [i, argType] : llvm::enumerate(type.getParams())) {
    auto pointer = dyn_cast<LLVM::LLVMPointerType>(argType);
    if (!pointer)
      continue;
    if (pointer.getAddressSpace() != kGlobalSpace) {
      passTensorMap(kernel, i);
      continue;
    }
    kernel.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(),
                      b.getUnitAttr());
  }
  kernel.getBody().takeBody(func.getBody());
  Operation *end = kernel.getBody().front().getTerminator();
  b.setInsertionPoint(end);
  LLVM::ReturnOp::create(b, ValueRange());
  end->erase();
  if (form)
    kernel->setAttr(kFormAttr, form);
  if (hasDependentLaunches)
    orderLaunches(kernel);
  kernel.walk([&](Operation *barrier) {
    if (barrier->removeAttr(kBetweenPhasesAttr))
      renewMemoryBehind(barrier, kernel);
  });
}

struct GpuKernelEntry : moec::impl::GpuKernelEntryPassBase<GpuKernelEntry> {
  using GpuKernelEntryPassBase::GpuKernelEntryPassBase;

  void runOnOperation() override {
    std::optional<moert::GpuTarget> gpu = moert::GpuTarget::parse(target);
    if (!gpu) {
      getOperation().emitError("gpu-kernel-entry: target '")
          << target << "' is not a GPU; accepted are " << listGpuTargets();
      return signalPassFailure();
    }
    auto global = LLVM::LLVMPointerType::get(&getContext(), kGlobalSpace);
    for (auto func :
         llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      if (!func->hasAttr("moec.kernel"))
        continue;
      if (failed(replaceMemRefArguments(func, global)))
        return signalPassFailure();
      makeKernel(func, gpu->hasDependentLaunches());
      func.erase();
    }
  }
};

} // namespace
