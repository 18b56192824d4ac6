//===- PlanData.h - plan.program as runtime data ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_PLANDATA_H
#define MOEC_COMPILER_PLANDATA_H

#include "mlir/IR/BuiltinOps.h"
#include "moert/Plan.h"

namespace moec {

/// Translates the one `plan.program` of `module`, at level plan or tile, to
/// data for `target` ("cpu"), and checks it with moert::verifyPlan. A kernel's
/// grid is that of its `tile.kernel`; a grid that is not yet decided, as at
/// level plan, is one CTA. The arguments of a launch are its `ins`, its `outs`
/// and the token count.
mlir::FailureOr<moert::Plan> translatePlan(mlir::ModuleOp module,
                                           llvm::StringRef target);

} // namespace moec

#endif // MOEC_COMPILER_PLANDATA_H
