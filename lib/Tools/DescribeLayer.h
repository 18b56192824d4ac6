//===- DescribeLayer.h - what a layer is, in words --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_DESCRIBELAYER_H
#define MOEC_LIB_TOOLS_DESCRIBELAYER_H

#include "mlir/IR/BuiltinOps.h"
#include "moec/Analysis/Schedules.h"
#include "moec/Import/LayerSpec.h"

namespace moec {

/// Sizes, formats and routing, in lines of at most 140 columns.
void describeLayer(const LayerSpec &spec, llvm::raw_ostream &os);

/// A line for each kind of product with quantized operands: how the target
/// multiplies it, and why so. Returns their number.
size_t describeWays(mlir::ModuleOp module, const Target &target,
                    llvm::raw_ostream &os);

/// Experts of a token, as the ranking of a module at level tile has them; 1
/// where there is none.
int64_t findTopK(mlir::ModuleOp module);

} // namespace moec

#endif // MOEC_LIB_TOOLS_DESCRIBELAYER_H
