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

/// Writes the elementwise part of a score, behind the bound of the logits, into
/// an empty region. Where that is the identity the region stays empty.
void buildScoreRegion(mlir::Region &region, const RoutingSpec &routing);

/// The same for the weight of a selected expert.
void buildWeightRegion(mlir::Region &region, RouteWeight weight);

/// Writes an activation into an empty region. Parameters are read by
/// `moe.param` from the dictionary that `getActivationParams` returns; `prefix`
/// precedes their names.
void buildActivationRegion(mlir::Region &region,
                           const ActivationSpec &activation,
                           llvm::StringRef prefix = "");

/// The parameters that the regions of the layer's activation and of the shared
/// expert's own ("shared_") read, by name; null when there are none.
mlir::DictionaryAttr getActivationParams(mlir::MLIRContext *context,
                                         const LayerSpec &spec);

/// What precedes the names of parameters of the shared expert's activation.
constexpr llvm::StringLiteral kSharedPrefix = "shared_";

} // namespace moec

#endif // MOEC_LIB_IMPORT_SCALARREGIONS_H
