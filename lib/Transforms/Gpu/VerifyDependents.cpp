//===- VerifyDependents.cpp - waits for the launch before -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Verifies that kernels wait for the launch before them, by a forward walk over
// the blocks that some path reaches without a wait. In a kernel of the form
// `ahead`, accesses pass up to the barrier that ends its first phase. Behind a
// barrier that ends an await for earlier launches, all but stores pass.

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/PointerIntPair.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace moec {
#define GEN_PASS_DEF_VERIFYGPUDEPENDENTSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// On an op that reads memory which no launch of a run writes.
constexpr llvm::StringLiteral kWeightsAttr = "moec.weights";
/// On a kernel, its `#tile.kernel_form`.
constexpr llvm::StringLiteral kFormAttr = "moec.form";
/// On the barrier up to which a kernel of the form `ahead` does not access
/// memory of launches that it may overlap.
constexpr llvm::StringLiteral kEndsAheadAttr = "moec.ends_ahead";
/// On the acquire load of a counter that the launch before sets.
constexpr llvm::StringLiteral kSignalAttr = "moec.signal";
/// On a barrier behind which a kernel knows that launches have ended that come
/// before the launch before it.
constexpr llvm::StringLiteral kEndsAwaitAttr = "moec.ends_await";

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

  /// Looks through ops that only offset or pass a pointer; all others are of
  /// unknown origin.
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

  /// The value inserted into a memref's descriptor; null if unknown.
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
  explicit DependentVerifier(LLVM::LLVMFuncOp func)
      : func(func), form(func->getAttrOfType<tile::KernelFormAttr>(kFormAttr)) {
  }

  LogicalResult run() {
    SmallVector<State> worklist{
        {&func.getBody().front(),
         form && form.getAhead() ? Passing::All : Passing::None}};
    DenseSet<State> reached{worklist.front()};
    while (!worklist.empty()) {
      State state = worklist.pop_back_val();
      Passing passing = state.getInt();
      if (waitsOrLacks(*state.getPointer(), passing))
        continue;
      for (Block *next : state.getPointer()->getSuccessors())
        if (State entered(next, passing); reached.insert(entered).second)
          worklist.push_back(entered);
    }
    return failure(hasFailed);
  }

private:
  /// The accesses that pass without a wait.
  enum class Passing : unsigned { None, AllButStores, All };
  /// A block, and what passes at its start.
  using State = llvm::PointerIntPair<Block *, 2, Passing>;

  /// Whether the walk ends at the block: it waits, or lacks a wait, which is
  /// reported once. `passing`: what passes, on entry at the block's start, on
  /// return at its end.
  bool waitsOrLacks(Block &block, Passing &passing) {
    for (Operation &op : block) {
      if (op.hasAttr(kEndsAheadAttr))
        passing = Passing::None;
      if (op.hasAttr(kEndsAwaitAttr))
        passing = Passing::AllButStores;
      if (auto control = dyn_cast<NVVM::GriddepcontrolOp>(op)) {
        if (control.getKind() == NVVM::GridDepActionKind::wait)
          return true;
        continue;
      }
      if (isa<LLVM::ReturnOp>(op))
        return report(op, "ends the kernel");
      bool passes = passing == Passing::All ||
                    (passing == Passing::AllButStores && !isStore(op)) ||
                    op.hasAttr(kSignalAttr) || (form && form.getIndependent());
      if (!passes && isAccess(op))
        return report(op, "accesses global memory");
    }
    return false;
  }

  /// Counters that a launch shares with those before it alone may change.
  static bool isStore(Operation &op) { return isa<LLVM::StoreOp>(op); }

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
        << " on a path without a wait for the launch before this one, which "
           "may still run; insert 'nvvm.griddepcontrol wait' before it on "
           "every path, or at the kernel's entry";
    return true;
  }

  LLVM::LLVMFuncOp func;
  /// Null for a kernel that waits at its entry.
  tile::KernelFormAttr form;
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
