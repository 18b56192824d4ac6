//===- VerifyDependents.cpp - waits for the launch before -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A forward walk over the blocks that some path reaches with no wait before.

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace moec {
#define GEN_PASS_DEF_VERIFYGPUDEPENDENTSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// On an op that reads what no launch of a run writes.
constexpr llvm::StringLiteral kWeightsAttr = "moec.weights";
/// On a kernel that touches nothing that launches touch which it may overlap.
constexpr llvm::StringLiteral kIndependentAttr = "moec.independent";

/// Whether a pointer may lead to memory that another kernel uses.
class GlobalPointers {
public:
  bool mayBeGlobal(Value pointer) {
    auto type = dyn_cast<LLVM::LLVMPointerType>(pointer.getType());
    if (!type)
      return false;
    unsigned space = type.getAddressSpace();
    if (space != kGeneric && space != kGlobal)
      return false;
    llvm::SmallPtrSet<Value, 8> seen;
    return comesFromOutside(pointer, seen);
  }

private:
  static constexpr unsigned kGeneric = 0, kGlobal = 1;

  /// Looks through what only moves a pointer; all else is of unknown origin.
  static bool comesFromOutside(Value pointer,
                               llvm::SmallPtrSetImpl<Value> &seen) {
    if (!seen.insert(pointer).second)
      return false;
    Operation *op = pointer.getDefiningOp();
    if (!op)
      return true;
    if (isa<LLVM::AllocaOp>(op))
      return false;
    if (auto address = dyn_cast<LLVM::AddressOfOp>(op)) {
      auto global = SymbolTable::lookupNearestSymbolFrom<LLVM::GlobalOp>(
          op, address.getGlobalNameAttr());
      return !global || !global.getConstant();
    }
    if (auto cast = dyn_cast<LLVM::AddrSpaceCastOp>(op)) {
      auto from = cast.getArg().getType();
      unsigned space =
          llvm::cast<LLVM::LLVMPointerType>(from).getAddressSpace();
      return (space == kGeneric || space == kGlobal) &&
             comesFromOutside(cast.getArg(), seen);
    }
    if (auto gep = dyn_cast<LLVM::GEPOp>(op))
      return comesFromOutside(gep.getBase(), seen);
    if (auto extract = dyn_cast<LLVM::ExtractValueOp>(op))
      if (Value member = findMember(extract))
        return comesFromOutside(member, seen);
    return true;
  }

  /// What was inserted into a memref's descriptor; null if that is not known.
  static Value findMember(LLVM::ExtractValueOp extract) {
    Value all = extract.getContainer();
    while (auto insert = all.getDefiningOp<LLVM::InsertValueOp>()) {
      if (insert.getPosition() == extract.getPosition())
        return insert.getValue();
      all = insert.getContainer();
    }
    return {};
  }
};

class DependentVerifier {
public:
  explicit DependentVerifier(LLVM::LLVMFuncOp func) : func(func) {}

  LogicalResult run() {
    SmallVector<Block *> worklist{&func.getBody().front()};
    llvm::SmallPtrSet<Block *, 16> reached{worklist.front()};
    while (!worklist.empty()) {
      Block *block = worklist.pop_back_val();
      if (waitsOrLacks(*block))
        continue;
      for (Block *next : block->getSuccessors())
        if (reached.insert(next).second)
          worklist.push_back(next);
    }
    return failure(hasFailed);
  }

private:
  /// Whether nothing after the block has to be looked at: it waits, or should
  /// have, which is reported once.
  bool waitsOrLacks(Block &block) {
    for (Operation &op : block) {
      if (auto control = dyn_cast<NVVM::GriddepcontrolOp>(op)) {
        if (control.getKind() == NVVM::GridDepActionKind::wait)
          return true;
        continue;
      }
      if (isa<LLVM::ReturnOp>(op))
        return report(op, "ends the kernel");
      if (!func->hasAttr(kIndependentAttr) && isAccess(op))
        return report(op, "accesses global memory");
    }
    return false;
  }

  bool isAccess(Operation &op) {
    if (isMemoryEffectFree(&op) || op.hasAttr(kWeightsAttr))
      return false;
    if (auto prefetch = dyn_cast<NVVM::PrefetchOp>(op);
        prefetch && prefetch.getTensormap())
      return false;
    return llvm::any_of(op.getOperands(), [&](Value operand) {
      return pointers.mayBeGlobal(operand);
    });
  }

  bool report(Operation &op, StringRef what) {
    hasFailed = true;
    op.emitOpError(what)
        << " on a path on which the thread has not waited for the launch "
           "before this one, which may still run; insert 'nvvm.griddepcontrol "
           "wait' before, on every path, or at the kernel's entry";
    return true;
  }

  LLVM::LLVMFuncOp func;
  GlobalPointers pointers;
  bool hasFailed = false;
};

struct VerifyGpuDependents
    : moec::impl::VerifyGpuDependentsPassBase<VerifyGpuDependents> {
  void runOnOperation() override {
    LLVM::LLVMFuncOp func = getOperation();
    if (!func->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()) ||
        func.isExternal())
      return;
    if (failed(DependentVerifier(func).run()))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
