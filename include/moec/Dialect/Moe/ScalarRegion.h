//===- ScalarRegion.h - regions on single f32 values ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_SCALARREGION_H
#define MOEC_DIALECT_MOE_SCALARREGION_H

#include "mlir/IR/OpImplementation.h"
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

/// The directive `custom<ScalarRegion>`. Names of values are those of the
/// region alone: otherwise an op in front of the region could name a value
/// inside it, and when the region's op then fails to parse, MLIR writes to what
/// is gone.
mlir::ParseResult parseScalarRegion(mlir::OpAsmParser &parser,
                                    mlir::Region &region);
void printScalarRegion(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                       mlir::Region &region);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_SCALARREGION_H
