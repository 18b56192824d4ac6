//===- ScalarRegions.h - regions that see one element -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SCALARREGIONS_H
#define MOEC_ANALYSIS_SCALARREGIONS_H

#include "mlir/IR/Operation.h"

namespace moec {

/// Makes the regions of `op` self-contained: constants that they use from
/// outside (canonicalization hoists them to the function) are copied into them.
/// Any other value from outside is an error, reported on `op`.
mlir::LogicalResult sinkConstants(mlir::Operation *op);

} // namespace moec

#endif // MOEC_ANALYSIS_SCALARREGIONS_H
