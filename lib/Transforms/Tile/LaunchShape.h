//===- LaunchShape.h - what configs make of a launch ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_LAUNCHSHAPE_H
#define MOEC_LIB_TRANSFORMS_TILE_LAUNCHSHAPE_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// Sets the kernel's grid, block, shared memory and tensor maps from the
/// configs of its phases, each of which must be legal.
void setLaunchShape(tile::KernelOp kernel, const Target &target);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_LAUNCHSHAPE_H
