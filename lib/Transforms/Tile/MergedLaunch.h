//===- MergedLaunch.h - two launches as one ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_MERGEDLAUNCH_H
#define MOEC_LIB_TRANSFORMS_TILE_MERGEDLAUNCH_H

#include "Launches.h"
#include "llvm/ADT/MapVector.h"

namespace moec {

/// Two launches that follow each other, as one launch of a kernel with the
/// phases of both. What the first one writes and the second one reads is passed
/// once, as an out.
class MergedLaunch {
public:
  /// `outs` are written beside those of the launches.
  MergedLaunch(plan::LaunchOp first, plan::LaunchOp second,
               mlir::ValueRange outs = {});

  /// A kernel called after both, in front of the first one's, with copies of
  /// their phases.
  tile::KernelOp makeKernel(mlir::SymbolTable &symbols) const;
  /// The argument of such a kernel for what is passed.
  mlir::Value getArgument(tile::KernelOp kernel, mlir::Value passed) const;
  /// Puts a launch of the kernel in place of the two. What the second one
  /// writes may have lain where the first one reads: such an in gets another
  /// slot.
  void replaceBy(tile::KernelOp kernel);

private:
  void separate();

  plan::LaunchOp first, second;
  llvm::SmallVector<mlir::Value> ins, outs;
};

/// Kernels of merged launches, by the names of those they are made of.
using MergedKernels =
    llvm::MapVector<std::pair<mlir::StringAttr, mlir::StringAttr>,
                    tile::KernelOp>;

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_MERGEDLAUNCH_H
