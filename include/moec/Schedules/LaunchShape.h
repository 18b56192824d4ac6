//===- LaunchShape.h - what configs make of a launch ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_LAUNCHSHAPE_H
#define MOEC_SCHEDULES_LAUNCHSHAPE_H

#include "Schedules.h"

namespace moec {

/// Launch parameters that follow from the configs of a kernel's phases.
struct LaunchShape {
  /// CTAs, or tasks on a CPU.
  moert::Expr grid = 0;
  /// Threads of a CTA.
  int64_t block = 0;
  /// Bytes of dynamic shared memory.
  int64_t shared = 0;
  llvm::SmallVector<tile::TensorMapAttr> tensorMaps;
};

/// Requires that each phase has a config that its schedule accepts.
LaunchShape getLaunchShape(tile::KernelOp kernel, const Target &target);

} // namespace moec

#endif // MOEC_SCHEDULES_LAUNCHSHAPE_H
