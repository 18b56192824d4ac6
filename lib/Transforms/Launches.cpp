//===- Launches.cpp - what launches of a plan run and pass ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Launches.h"

using namespace mlir;
using namespace moec;

tile::KernelOp moec::getKernel(plan::LaunchOp launch, SymbolTable &symbols) {
  return symbols.lookup<tile::KernelOp>(launch.getKernel());
}

SmallVector<Value> moec::getOperands(plan::LaunchOp launch) {
  SmallVector<Value> operands(launch.getIns());
  llvm::append_range(operands, launch.getOuts());
  return operands;
}

Value moec::getPassed(plan::LaunchOp launch, Value argument) {
  return argument
             ? getOperands(launch)[cast<BlockArgument>(argument).getArgNumber()]
             : Value();
}

plan::LaunchOp moec::findWriter(plan::LaunchOp launch, Value value) {
  for (Operation *op = launch->getPrevNode(); op; op = op->getPrevNode())
    if (auto before = dyn_cast<plan::LaunchOp>(op);
        before && llvm::is_contained(before.getOuts(), value))
      return before;
  return nullptr;
}
