//===- KernelArguments.cpp - what launches pass to a kernel -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/KernelArguments.h"

#include "moec/Dialect/Plan/Plan.h"

using namespace mlir;
using namespace moec;

SmallVector<bool> moec::getWorkspaceArguments(tile::KernelOp kernel) {
  SmallVector<bool> areBuffers;
  auto module = kernel->getParentOfType<ModuleOp>();
  for (auto program : module.getOps<plan::ProgramOp>())
    program.walk([&](plan::LaunchOp launch) {
      if (launch.getKernel() != kernel.getSymName())
        return;
      SmallVector<Value> operands(launch.getIns());
      llvm::append_range(operands, launch.getOuts());
      if (areBuffers.empty())
        areBuffers.assign(operands.size(), true);
      for (auto [isBuffer, operand] : llvm::zip(areBuffers, operands))
        isBuffer &= isa_and_nonnull<plan::BufferOp>(operand.getDefiningOp());
    });
  if (areBuffers.empty())
    areBuffers.assign(kernel.getBody().getNumArguments() - 1, false);
  return areBuffers;
}
