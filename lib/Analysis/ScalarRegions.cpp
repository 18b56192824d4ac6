//===- ScalarRegions.cpp - regions that see one element ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/ScalarRegions.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;

LogicalResult moec::sinkConstants(Operation *op) {
  for (Region &region : op->getRegions()) {
    if (region.empty())
      continue;
    SetVector<Value> captured;
    getUsedValuesDefinedAbove(region, captured);
    OpBuilder builder = OpBuilder::atBlockBegin(&region.front());
    for (Value value : captured) {
      Operation *source = value.getDefiningOp();
      if (!source || !matchPattern(source, m_Constant()))
        return op->emitOpError("has a region that uses a value from outside; a "
                               "scalar region sees its arguments and constants "
                               "only: pass the value as an operand");
      Operation *copy = builder.clone(*source);
      replaceAllUsesInRegionWith(value, copy->getResult(0), region);
    }
  }
  return success();
}
