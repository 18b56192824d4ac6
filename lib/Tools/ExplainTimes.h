//===- ExplainTimes.h - expected times of launches, for people --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_EXPLAINTIMES_H
#define MOEC_LIB_TOOLS_EXPLAINTIMES_H

#include "moec/Analysis/Schedules.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace moec {

struct LaunchedPhase {
  plan::LaunchOp launch;
  tile::KernelOp kernel;
  mlir::Operation *op;
  /// The kernel's, or what the phase makes, where a kernel has several.
  std::string name;
  /// Only the first phase of a kernel has to be launched.
  bool isFirst, isAlone;
};

/// Those of all launches of a variant.
llvm::SmallVector<LaunchedPhase> getLaunchedPhases(plan::VariantOp variant);

using ToldKernels = llvm::SmallPtrSet<mlir::Operation *, 16>;

/// Prints what the launches of a variant are expected to take at its ends, and
/// the configs that were not taken, of kernels that are not `told` already.
/// Nothing where no rates of the target are known.
void explainTimes(llvm::ArrayRef<LaunchedPhase> phases, plan::VariantOp variant,
                  int64_t topK, const Target &target, ToldKernels &told,
                  llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_EXPLAINTIMES_H
