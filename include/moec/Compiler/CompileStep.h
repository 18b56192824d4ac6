//===- CompileStep.h - progress of a compilation ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_COMPILESTEP_H
#define MOEC_COMPILER_COMPILESTEP_H

#include "mlir/IR/Action.h"
#include "mlir/IR/MLIRContext.h"

namespace moec {

/// Progress of a compilation: `done` of `all` steps are complete. An MLIR
/// action, so that a handler registered with the context observes it. Executed
/// on any compiling thread.
class CompileStep : public mlir::tracing::ActionImpl<CompileStep> {
public:
  CompileStep(llvm::ArrayRef<mlir::IRUnit> units, size_t done, size_t all)
      : ActionImpl(units), done(done), all(all) {}

  // The base class reads this name.
  // NOLINTNEXTLINE(readability-identifier-naming)
  static constexpr llvm::StringLiteral tag = "compile-step";
  size_t done, all;
};

inline void noteStep(mlir::MLIRContext *context, size_t done, size_t all) {
  context->executeAction<CompileStep>([] {}, /*irUnits=*/{}, done, all);
}

} // namespace moec

#endif // MOEC_COMPILER_COMPILESTEP_H
