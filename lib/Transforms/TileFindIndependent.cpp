//===- TileFindIndependent.cpp - kernels that need not wait -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A dependent launch begins when the one before it has begun. That one may have
// begun early as well, and so on, back to a launch that is not dependent: what
// is before that has ended.

#include "Launches.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILEFINDINDEPENDENTPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

/// Whether two tensors of a plan may have memory in common. Those of the caller
/// may.
static bool mayOverlap(Value a, Value b) {
  if (a == b)
    return true;
  auto buffer = a.getDefiningOp<plan::BufferOp>();
  auto other = b.getDefiningOp<plan::BufferOp>();
  if (buffer && other)
    return !buffer.getSlot() || !other.getSlot() ||
           *buffer.getSlot() == *other.getSlot();
  return !buffer && !other;
}

static bool mayOverlap(ValueRange some, ValueRange others) {
  return llvm::any_of(some, [&](Value a) {
    return llvm::any_of(others, [&](Value b) { return mayOverlap(a, b); });
  });
}

/// Whether `launch` may run beside `before`.
static bool isIndependent(plan::LaunchOp launch, plan::LaunchOp before) {
  return !mayOverlap(launch.getIns(), before.getOuts()) &&
         !mayOverlap(launch.getOuts(), before.getIns()) &&
         !mayOverlap(launch.getOuts(), before.getOuts());
}

/// Whether a dependent launch may run beside all that may still run when it
/// begins.
static bool isIndependent(plan::LaunchOp launch) {
  for (Operation *op = launch->getPrevNode(); op; op = op->getPrevNode()) {
    auto before = dyn_cast<plan::LaunchOp>(op);
    if (!before || before.getStream() != launch.getStream())
      continue;
    if (!isIndependent(launch, before))
      return false;
    if (!before.getDependent())
      return true;
  }
  return false;
}

namespace {

struct TileFindIndependent
    : moec::impl::TileFindIndependentPassBase<TileFindIndependent> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    // Kernels with dependent launches, and whether all of these are
    // independent.
    llvm::MapVector<tile::KernelOp, bool> kernels;
    getOperation().walk([&](plan::LaunchOp launch) {
      tile::KernelOp kernel = getKernel(launch, symbols);
      if (!kernel || !launch.getDependent())
        return;
      auto [entry, isNew] = kernels.insert({kernel, true});
      entry->second = entry->second && isIndependent(launch);
    });
    for (auto [kernel, isIndependent] : kernels)
      kernel.setIndependent(isIndependent);
  }
};

} // namespace
