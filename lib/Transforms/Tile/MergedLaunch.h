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

/// Merges two consecutive launches into one launch of a kernel with the phases
/// of both. Memory that the first one writes and the second one reads is passed
/// once, as an out.
class MergedLaunch {
public:
  /// `outs` are additional outs of the merged launch.
  MergedLaunch(plan::LaunchOp first, plan::LaunchOp second,
               mlir::ValueRange outs = {});

  /// Makes a kernel named after both, before the first one, with copies of
  /// their phases.
  tile::KernelOp makeKernel(mlir::SymbolTable &symbols) const;
  /// The argument of such a kernel for an operand.
  mlir::Value getArgument(tile::KernelOp kernel, mlir::Value passed) const;
  /// Replaces both launches by one of the kernel. An in of the first one gets
  /// another slot if the second one may overwrite it.
  void replaceBy(tile::KernelOp kernel);

private:
  void separate();

  plan::LaunchOp first, second;
  llvm::SmallVector<mlir::Value> ins, outs;
};

/// Kernels of merged launches, by the names of the two original kernels.
using MergedKernels =
    llvm::MapVector<std::pair<mlir::StringAttr, mlir::StringAttr>,
                    tile::KernelOp>;

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_MERGEDLAUNCH_H
