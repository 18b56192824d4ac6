//===- Optimize.h - runs LLVM's passes over kernels -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TARGET_OPTIMIZE_H
#define MOEC_LIB_TARGET_OPTIMIZE_H

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace moec {

/// Runs LLVM's O3 pipeline for that machine, without its vectorizers.
void optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace moec

#endif // MOEC_LIB_TARGET_OPTIMIZE_H
