//===- ExplainTimes.h - explains expected times -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_EXPLAINTIMES_H
#define MOEC_LIB_TOOLS_EXPLAINTIMES_H

#include "PhaseTime.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace moec {

using ToldKernels = llvm::SmallPtrSet<mlir::Operation *, 16>;

/// Prints the expected times of a variant's launches at both ends of its token
/// range. Prints nothing if no rates of the target are known.
void explainTimes(llvm::ArrayRef<LaunchedPhase> phases, plan::VariantOp variant,
                  int64_t topK, const Target &target, llvm::raw_ostream &os);

/// Prints the configs that were not taken, and why, for kernels that are not in
/// `told` yet. Prints nothing if no rates of the target are known.
void explainChoices(llvm::ArrayRef<LaunchedPhase> phases,
                    plan::VariantOp variant, int64_t topK, const Target &target,
                    ToldKernels &told, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_EXPLAINTIMES_H
