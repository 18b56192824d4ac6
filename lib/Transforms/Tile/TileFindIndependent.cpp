//===- TileFindIndependent.cpp - kernels that need not wait -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A dependent launch begins when the one before it has begun, which may have
// begun early as well, and so on, back to a launch that is not dependent:
// everything before that one has ended. But memory written by an earlier launch
// or by other ranks is visible only after a wait: the start of CTAs makes
// nothing visible to them. In a kernel with several phases, the first phase
// alone may be independent if the next one waits.

#include "Launches.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILEFINDINDEPENDENTPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

/// Whether an earlier step of the run writes the memory.
static bool isWrittenAhead(Value memory, plan::LaunchOp launch) {
  return llvm::any_of(memory.getUsers(), [&](Operation *user) {
    if (user->getBlock() != launch->getBlock() ||
        !user->isBeforeInBlock(launch))
      return false;
    if (auto collective = dyn_cast<plan::CollectiveOp>(user))
      return llvm::is_contained(collective.getOuts(), memory);
    auto before = dyn_cast<plan::LaunchOp>(user);
    return before && llvm::is_contained(before.getOuts(), memory);
  });
}

/// Whether a dependent launch may overlap all launches that may still run when
/// it begins.
static bool isIndependent(plan::LaunchOp launch, ValueRange ins,
                          ValueRange outs) {
  if (llvm::any_of(ins, [&](Value in) { return isWrittenAhead(in, launch); }))
    return false;
  for (Operation *op = launch->getPrevNode(); op; op = op->getPrevNode()) {
    auto before = dyn_cast<plan::LaunchOp>(op);
    if (!before || before.getStream() != launch.getStream())
      continue;
    if (!isIndependent(ins, outs, before))
      return false;
    if (!before.getDependent())
      return true;
  }
  return false;
}

/// Whether the first phase quantizes for later kernels and may overlap all
/// launches that may still run.
static bool isAhead(plan::LaunchOp launch, tile::KernelOp kernel) {
  Operation &phase = kernel.getBody().front().front();
  if (!isa<tile::QuantizeOp>(phase) ||
      phase.getNextNode() == kernel.getBody().front().getTerminator())
    return false;
  SmallVector<MemoryEffects::EffectInstance> effects;
  cast<MemoryEffectOpInterface>(phase).getEffects(effects);
  SmallVector<Value> ins, outs;
  for (const MemoryEffects::EffectInstance &effect : effects)
    (isa<MemoryEffects::Write>(effect.getEffect()) ? outs : ins)
        .push_back(getPassed(launch, effect.getValue()));
  return isIndependent(launch, ins, outs);
}

namespace {

struct TileFindIndependent
    : moec::impl::TileFindIndependentPassBase<TileFindIndependent> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    // Kernels with dependent launches, and whether all of these launches, or at
    // least their first phases, are independent.
    struct Found {
      bool isIndependent = true, isAhead = true;
    };
    llvm::MapVector<tile::KernelOp, Found> kernels;
    getOperation().walk([&](plan::LaunchOp launch) {
      tile::KernelOp kernel = getKernel(launch, symbols);
      if (!kernel || !launch.getDependent())
        return;
      Found &found = kernels[kernel];
      found.isIndependent &=
          isIndependent(launch, launch.getIns(), launch.getOuts());
      found.isAhead &= isAhead(launch, kernel);
    });
    for (auto [kernel, found] : kernels) {
      kernel.setIndependent(found.isIndependent);
      kernel.setAhead(found.isAhead);
    }
  }
};

} // namespace
