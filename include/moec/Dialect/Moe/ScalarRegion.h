//===- ScalarRegion.h - regions on single f32 values ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_SCALARREGION_H
#define MOEC_DIALECT_MOE_SCALARREGION_H

#include "mlir/IR/Operation.h"

namespace moec::moe {

/// The first half of the check of a scalar region, for `verify()`: one block
/// whose arguments are the f32 values that `arguments` names, in order.
llvm::LogicalResult
verifyScalarArguments(mlir::Operation *op, mlir::Region &region,
                      llvm::StringRef name,
                      llvm::ArrayRef<std::string> arguments);

/// The second half, for `verifyRegions()`: ops of arith and math on single
/// values (and `moe.param`), and one f32 yielded by the op's dialect. An empty
/// region is right.
llvm::LogicalResult verifyScalarBody(mlir::Operation *op, mlir::Region &region,
                                     llvm::StringRef name);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_SCALARREGION_H
