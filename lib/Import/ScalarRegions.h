//===- ScalarRegions.h - formulas as regions --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_SCALARREGIONS_H
#define MOEC_LIB_IMPORT_SCALARREGIONS_H

#include "moec/Import/LayerSpec.h"

#include "mlir/IR/Builders.h"

namespace moec {

/// Writes the elementwise part of a score into an empty region. Where that is
/// the identity the region stays empty.
void buildScoreRegion(mlir::Region &region, Score score);

/// The same for the weight of a selected expert.
void buildWeightRegion(mlir::Region &region, RouteWeight weight);

/// Writes an activation into an empty region. Parameters are read by
/// `moe.param` from the dictionary that `getActivationParams` returns.
void buildActivationRegion(mlir::Region &region,
                           const ActivationSpec &activation);

/// The parameters that the region reads, by name; null when there are none.
mlir::DictionaryAttr getActivationParams(mlir::MLIRContext *context,
                                         const ActivationSpec &activation);

} // namespace moec

#endif // MOEC_LIB_IMPORT_SCALARREGIONS_H
