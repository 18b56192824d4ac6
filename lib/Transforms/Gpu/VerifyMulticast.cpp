//===- VerifyMulticast.cpp - CTAs that reach into others --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A copy may write to several CTAs of one cluster, whose size the kernel
// declares. No CTA of a cluster may end while others may write to its shared
// memory. Multicast between GPUs is refused.

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Matchers.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace moec {
#define GEN_PASS_DEF_VERIFYGPUMULTICASTPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

/// Whether PTX writes to, or reads from, several CTAs or GPUs at once.
static bool isMulticast(StringRef text) {
  return text.contains("multicast") || text.contains("multimem");
}

/// True if inline PTX has a multicast.
static bool hasMulticastText(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([](NVVM::InlinePtxOp op) { return isMulticast(op.getPtxCode()); })
      .Case([](LLVM::InlineAsmOp op) { return isMulticast(op.getAsmString()); })
      .Case(
          [](LLVM::CallIntrinsicOp op) { return isMulticast(op.getIntrin()); })
      .Default([](Operation *) { return false; });
}

/// The CTAs that a copy writes to or a commit arrives at; null if that is one.
static Value getMulticastMask(Operation *op) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp,
            NVVM::CpAsyncBulkGlobalToSharedClusterOp, NVVM::Tcgen05CommitOp>(
          [](auto op) { return op.getMulticastMask(); })
      .Default([](Operation *) { return Value(); });
}

namespace {

struct VerifyGpuMulticast
    : moec::impl::VerifyGpuMulticastPassBase<VerifyGpuMulticast> {
  void runOnOperation() override {
    LLVM::LLVMFuncOp func = getOperation();
    FailureOr<int64_t> ctas = getClusterCtas(func);
    if (failed(ctas))
      return signalPassFailure();
    bool isLegal = true;
    func.walk([&](Operation *op) {
      isLegal &= succeeded(verifyOp(op, *ctas));
      if (*ctas > 1 && isa<LLVM::ReturnOp>(op))
        isLegal &= succeeded(verifyEnd(op));
    });
    if (!isLegal)
      signalPassFailure();
    markAllAnalysesPreserved();
  }

  /// The CTAs of a cluster of the kernel.
  FailureOr<int64_t> getClusterCtas(LLVM::LLVMFuncOp func) {
    for (StringRef attribute :
         {NVVM::NVVMDialect::getClusterMaxBlocksAttrName(),
          NVVM::NVVMDialect::getBlocksAreClustersAttrName()})
      if (func->hasAttr(attribute))
        return func.emitOpError("has the attribute '")
               << attribute << "', but the size of a cluster is declared by '"
               << NVVM::NVVMDialect::getClusterDimAttrName() << "'";
    auto dims = func->getAttrOfType<DenseI32ArrayAttr>(
        NVVM::NVVMDialect::getClusterDimAttrName());
    if (!dims)
      return 1;
    constexpr int32_t most = 8;
    ArrayRef<int32_t> sizes = dims.asArrayRef();
    bool isRow = llvm::all_of(sizes.drop_front(),
                              [](int32_t size) { return size == 1; });
    if (!isRow || sizes.front() < 2 || sizes.front() > most)
      return func.emitOpError("has clusters of ")
             << dims << " CTAs; give 2 to " << most << " in one dimension";
    return sizes.front();
  }

  LogicalResult verifyOp(Operation *op, int64_t ctas) {
    if (hasMulticastText(op))
      return op->emitOpError("is a multicast as text, which no kernel may "
                             "use; inside a cluster, use an op with "
                             "'multicast_mask'");
    if (isa<NVVM::MapaOp>(op) && ctas == 1)
      return op->emitOpError("maps an address to another CTA, but the kernel "
                             "declares no cluster; give it '")
             << NVVM::NVVMDialect::getClusterDimAttrName() << "'";
    Value mask = getMulticastMask(op);
    if (!mask)
      return success();
    if (ctas == 1)
      return op->emitOpError("is a multicast, but the kernel declares no "
                             "cluster; give it '")
             << NVVM::NVVMDialect::getClusterDimAttrName()
             << "', or start one copy per CTA, without 'multicast_mask'";
    APInt targets;
    if (!matchPattern(mask, m_ConstantInt(&targets)))
      return op->emitOpError("has a 'multicast_mask' that is no constant, so "
                             "that it may name CTAs outside of the cluster");
    if (targets.isZero() || targets.getActiveBits() > uint64_t(ctas))
      return op->emitOpError("has the 'multicast_mask' ")
             << targets.getZExtValue() << "; give the bits of 1 to " << ctas
             << " CTAs of the cluster";
    return success();
  }

  /// True if the op, beside those without effects, accesses no shared memory: a
  /// wait for the launches before, or text without instructions.
  static bool isHarmless(Operation *op) {
    if (auto text = dyn_cast<LLVM::InlineAsmOp>(op))
      return text.getAsmString().empty();
    return isa<NVVM::GriddepcontrolOp>(op) || isMemoryEffectFree(op);
  }

  /// Checks that all CTAs of the cluster meet behind the last access.
  LogicalResult verifyEnd(Operation *end) {
    for (Operation *op = end->getPrevNode(); op; op = op->getPrevNode()) {
      if (isa<NVVM::ClusterWaitOp>(op))
        return success();
      if (!isHarmless(op))
        break;
    }
    return end->emitOpError("ends a CTA of a cluster, whose shared memory "
                            "others may access; put nvvm.cluster.arrive and "
                            "nvvm.cluster.wait ahead of it");
  }
};

} // namespace
