//===- DescribeLayer.h - describes a layer in text --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_DESCRIBELAYER_H
#define MOEC_LIB_TOOLS_DESCRIBELAYER_H

#include "mlir/IR/BuiltinOps.h"
#include "moec/Import/LayerSpec.h"
#include "moec/Schedules/Schedules.h"

namespace moec {

/// Prints sizes, formats and routing in lines of at most 140 columns.
void describeLayer(const LayerSpec &spec, llvm::raw_ostream &os);

/// Prints a line for each kind of gemm with quantized operands: the target's
/// strategy for it, and the reason. Returns the number of lines.
size_t describeStrategies(mlir::ModuleOp module, const Target &target,
                          llvm::raw_ostream &os);

/// Experts per token, taken from the ranking op of a module at level tile; 1
/// without such an op.
int64_t findTopK(mlir::ModuleOp module);

} // namespace moec

#endif // MOEC_LIB_TOOLS_DESCRIBELAYER_H
