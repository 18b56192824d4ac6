//===- VerifyMulticast.cpp - CTAs stay on their own -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace moec {
#define GEN_PASS_DEF_VERIFYGPUMULTICASTPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

/// Whether inline PTX writes to, or reads from, several CTAs or GPUs at once.
static bool isMulticast(StringRef text) {
  return text.contains("multicast") || text.contains("multimem");
}

static bool isMulticast(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp,
            NVVM::CpAsyncBulkGlobalToSharedClusterOp>(
          [](auto op) { return static_cast<bool>(op.getMulticastMask()); })
      .Case([](NVVM::Tcgen05CommitOp op) {
        return static_cast<bool>(op.getMulticastMask());
      })
      .Case([](NVVM::InlinePtxOp op) { return isMulticast(op.getPtxCode()); })
      .Case([](LLVM::InlineAsmOp op) { return isMulticast(op.getAsmString()); })
      .Case(
          [](LLVM::CallIntrinsicOp op) { return isMulticast(op.getIntrin()); })
      .Default([](Operation *) { return false; });
}

namespace {

struct VerifyGpuMulticast
    : moec::impl::VerifyGpuMulticastPassBase<VerifyGpuMulticast> {
  void runOnOperation() override {
    LLVM::LLVMFuncOp func = getOperation();
    for (StringRef attribute :
         {NVVM::NVVMDialect::getClusterDimAttrName(),
          NVVM::NVVMDialect::getClusterMaxBlocksAttrName(),
          NVVM::NVVMDialect::getBlocksAreClustersAttrName()})
      if (func->hasAttr(attribute)) {
        func.emitOpError("has the attribute '")
            << attribute
            << "', but CTAs are launched without clusters; remove it";
        signalPassFailure();
      }
    func.walk([&](Operation *op) {
      if (!isMulticast(op))
        return;
      op->emitOpError("is a multicast, which no kernel may use; start one copy "
                      "per CTA, without 'multicast_mask'");
      signalPassFailure();
    });
    markAllAnalysesPreserved();
  }
};

} // namespace
