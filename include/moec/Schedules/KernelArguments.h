//===- KernelArguments.h - what launches pass to a kernel -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_KERNELARGUMENTS_H
#define MOEC_SCHEDULES_KERNELARGUMENTS_H

#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// Per argument of a kernel, but the token count: whether it is a workspace
/// buffer in every launch, of which there is one.
llvm::SmallVector<bool> getWorkspaceArguments(tile::KernelOp kernel);

} // namespace moec

#endif // MOEC_SCHEDULES_KERNELARGUMENTS_H
