//===- LaunchShape.cpp - what configs make of a launch ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchShape.h"

#include "moec/Schedules/LaunchShape.h"

using namespace mlir;
using namespace moec;

void moec::setLaunchShape(tile::KernelOp kernel, const Target &target) {
  LaunchShape shape = getLaunchShape(kernel, target);
  MLIRContext *context = kernel.getContext();
  kernel.setGridAttr(plan::ExprAttr::get(context, shape.grid.str()));
  if (!target.isGpu())
    return;
  kernel.setBlock(shape.block);
  kernel.setShared(shape.shared);
  SmallVector<Attribute> maps(shape.tensorMaps.begin(), shape.tensorMaps.end());
  if (!maps.empty())
    kernel.setTensorMapsAttr(ArrayAttr::get(context, maps));
}
