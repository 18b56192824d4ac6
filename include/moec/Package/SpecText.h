//===- SpecText.h - a layer as JSON -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PACKAGE_SPECTEXT_H
#define MOEC_PACKAGE_SPECTEXT_H

#include "mlir/IR/BuiltinOps.h"
#include "moec/Import/LayerSpec.h"

#include <optional>
#include <string>

namespace moec {

/// The layer as a JSON spec (docs/use/layers.md), without fields that have
/// their default. Importing the text gives the layer again, except for
/// `modelType`, which specs do not have.
std::string printLayerSpec(const LayerSpec &spec);

/// The identity of a layer (moert::ExecutorOptions::description): its spec, or
/// {"ir": SHA-256} for a layer that came as IR without a spec.
std::string describeLayer(const std::optional<LayerSpec> &spec,
                          mlir::ModuleOp module);

} // namespace moec

#endif // MOEC_PACKAGE_SPECTEXT_H
