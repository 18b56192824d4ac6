//===- PlanData.h - a plan.program as the runtime's data --------*- C++ -*-===//
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

/// The one `plan.program` of `module`, at level plan or tile, as data for
/// `target` ("cpu"), checked by moert::verifyPlan. A kernel's grid is that of
/// its `tile.kernel`; one that is not decided, as at level plan, is a single
/// CTA. A launch gets its `ins`, its `outs` and the token count.
mlir::FailureOr<moert::Plan> translatePlan(mlir::ModuleOp module,
                                           llvm::StringRef target);

} // namespace moec

#endif // MOEC_COMPILER_PLANDATA_H
