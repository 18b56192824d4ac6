//===- LaunchShape.cpp - what configs make of a launch ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchShape.h"

using namespace mlir;
using namespace moec;

void moec::setLaunchShape(tile::KernelOp kernel, const Target &target) {
  moert::Expr grid = 0;
  int64_t block = 0, shared = 0;
  SmallVector<Attribute> maps;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    auto config = op.getAttrOfType<tile::ConfigAttr>("config");
    const Schedule &schedule = *findSchedule(target, config.getSchedule());
    // A CTA of a kernel with several phases takes part in each of them.
    moert::Expr phaseGrid = schedule.grid(&op, config, target);
    grid =
        grid == moert::Expr(0) ? phaseGrid : moert::Expr::max(grid, phaseGrid);
    if (schedule.block)
      block = std::max(block, schedule.block(&op, config));
    if (schedule.shared)
      shared = std::max(shared, schedule.shared(&op, config));
    if (schedule.tensorMaps)
      llvm::append_range(maps, schedule.tensorMaps(&op, config));
  }
  MLIRContext *context = kernel.getContext();
  kernel.setGridAttr(plan::ExprAttr::get(context, grid.str()));
  if (!target.isGpu())
    return;
  kernel.setBlock(block);
  kernel.setShared(shared);
  if (!maps.empty())
    kernel.setTensorMapsAttr(ArrayAttr::get(context, maps));
}
