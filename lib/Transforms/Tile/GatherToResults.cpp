//===- GatherToResults.cpp - gathers that nobody takes ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GatherToResults.h"

#include "CollectiveSums.h"
#include "Launches.h"
#include "moec/Schedules/StepOrder.h"

using namespace mlir;
using namespace moec;

/// Whether the kernel of a summing collective reads the memory only before it
/// signals its arrival: neither as the data that it moves nor as its first
/// other operand, which may be the ids of the rank's own rows.
static bool isReadAhead(plan::CollectiveOp collective, Value memory) {
  if (collective.getKind() == plan::CollectiveKind::AllGather)
    return false;
  SmallVector<Value> read = collective.getRead();
  size_t numFirst =
      std::min(collective.getIns().size() + 1, size_t(read.size()));
  return !llvm::is_contained(ArrayRef(read).take_front(numFirst), memory) &&
         !llvm::is_contained(collective.getOuts(), memory);
}

/// Whether a later collective releases the memory, as `moert::verifyPlan`
/// requires.
static bool isReleased(plan::CollectiveOp gather, Value memory,
                       const StepOrder &order) {
  for (Operation *op = gather->getNextNode(); op; op = op->getNextNode()) {
    auto release = dyn_cast<plan::CollectiveOp>(op);
    if (release && hasExchange(release) &&
        release.getAxis() == gather.getAxis() &&
        order.isUsedUp(memory, release) &&
        (!llvm::is_contained(release->getOperands(), memory) ||
         isReadAhead(release, memory)))
      return true;
  }
  return false;
}

/// Whether a launch reads the memory in a run without tokens, in which the
/// gather may be launched but the release may not.
static bool isReadWithoutTokens(plan::VariantOp variant, Value memory,
                                SymbolTable &symbols) {
  if (variant.getMinTokens() > 0 ||
      cast<MemRefType>(memory.getType()).isDynamicDim(0))
    return false;
  return llvm::any_of(variant.getBody().getOps<plan::LaunchOp>(),
                      [&](plan::LaunchOp launch) {
                        if (!llvm::is_contained(launch->getOperands(), memory))
                          return false;
                        tile::KernelOp kernel = getKernel(launch, symbols);
                        if (!kernel || !kernel.getGridAttr())
                          return true;
                        moert::Result<int64_t> ctas =
                            kernel.getGridAttr().getExpr().evaluate(0);
                        return !ctas || *ctas > 0;
                      });
}

void moec::gatherToResults(plan::VariantOp variant, SymbolTable &symbols) {
  StepOrder order(variant);
  for (auto gather : variant.getBody().getOps<plan::CollectiveOp>()) {
    if (gather.getKind() != plan::CollectiveKind::AllGather ||
        !hasExchange(gather))
      continue;
    bool mayBeWritten = llvm::all_of(gather.getOuts(), [&](Value out) {
      return isa_and_nonnull<plan::BufferOp>(out.getDefiningOp()) &&
             order.isFirst(gather, out) && isReleased(gather, out, order) &&
             !isReadWithoutTokens(variant, out, symbols);
    });
    if (mayBeWritten)
      gather.setToResults(true);
  }
}
