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

/// First part of the verification of a scalar region, for `verify()`: one block
/// with one f32 argument per name of `arguments`, in order.
llvm::LogicalResult
verifyScalarArguments(mlir::Operation *op, mlir::Region &region,
                      llvm::StringRef name,
                      llvm::ArrayRef<std::string> arguments);

/// Second part, for `verifyRegions()`: ops of arith and math on scalars (and
/// `moe.param`), and one f32 yielded by the op's dialect. An empty region is
/// legal.
llvm::LogicalResult verifyScalarBody(mlir::Operation *op, mlir::Region &region,
                                     llvm::StringRef name);

/// The directive `custom<ScalarRegion>`. Value names are local to the region:
/// else an op before the region could name a value inside it, and if the
/// region's op then fails to parse, MLIR writes to freed memory.
mlir::ParseResult parseScalarRegion(mlir::OpAsmParser &parser,
                                    mlir::Region &region);
void printScalarRegion(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                       mlir::Region &region);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_SCALARREGION_H
