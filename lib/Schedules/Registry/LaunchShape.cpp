//===- LaunchShape.cpp - what configs make of a launch ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/LaunchShape.h"

using namespace mlir;
using namespace moec;

LaunchShape moec::getLaunchShape(tile::KernelOp kernel, const Target &target) {
  LaunchShape shape;
  // The CTAs of a gemm run the other phases of its kernel. Joined gemms have
  // equal grids.
  bool hasProduct = !kernel.getBody().getOps<tile::GemmOp>().empty();
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    auto config = op.getAttrOfType<tile::ConfigAttr>("config");
    const Schedule &schedule = *findSchedule(target, config.getSchedule());
    moert::Expr grid = schedule.grid(&op, config, target);
    if (isa<tile::GemmOp>(op) || shape.grid == moert::Expr(0))
      shape.grid = grid;
    else if (!hasProduct)
      // A CTA of a kernel with several phases takes part in each of them.
      shape.grid = moert::Expr::max(shape.grid, grid);
    shape.block = std::max(shape.block, schedule.block(&op, config));
    shape.shared = std::max(shape.shared, schedule.shared(&op, config));
    llvm::append_range(shape.tensorMaps, schedule.tensorMaps(&op, config));
  }
  return shape;
}
