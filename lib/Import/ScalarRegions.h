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

/// Builds the elementwise part of a score, after the soft cap of logits, in an
/// empty region. The region stays empty for the identity.
void buildScoreRegion(mlir::Region &region, const RoutingSpec &routing);

/// Builds the weight of a selected expert; empty for the identity.
void buildWeightRegion(mlir::Region &region, RouteWeight weight);

/// Builds an activation in an empty region. `moe.param` reads its parameters
/// from the dictionary of `getActivationParams`; `prefix` is prepended to their
/// names.
void buildActivationRegion(mlir::Region &region,
                           const ActivationSpec &activation,
                           llvm::StringRef prefix = "");

/// The parameters of the layer's activation and of the shared expert's own
/// ("shared_"), by name; null if there are none.
mlir::DictionaryAttr getActivationParams(mlir::MLIRContext *context,
                                         const LayerSpec &spec);

/// Prefix of the parameters of the shared expert's activation.
constexpr llvm::StringLiteral kSharedPrefix = "shared_";

} // namespace moec

#endif // MOEC_LIB_IMPORT_SCALARREGIONS_H
