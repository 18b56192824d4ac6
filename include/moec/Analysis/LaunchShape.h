//===- LaunchShape.h - what configs make of a launch ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_LAUNCHSHAPE_H
#define MOEC_ANALYSIS_LAUNCHSHAPE_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// What follows for a launch from the configs of its kernel's phases.
struct LaunchShape {
  /// CTAs, or tasks of the CPU.
  moert::Expr grid = 0;
  /// Threads of a CTA.
  int64_t block = 0;
  /// Bytes of dynamic shared memory.
  int64_t shared = 0;
  llvm::SmallVector<tile::TensorMapAttr> tensorMaps;
};

/// Each phase has a config that its schedule accepts.
LaunchShape getLaunchShape(tile::KernelOp kernel, const Target &target);

} // namespace moec

#endif // MOEC_ANALYSIS_LAUNCHSHAPE_H
