//===- SpecText.h - a layer as a spec ---------------------------*- C++ -*-===//
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

/// The layer as JSON (docs/layers.md), whatever it came from: importing the
/// text gives the same layer, but for `modelType`, which no spec has. Fields
/// with their default are left out.
std::string printLayerSpec(const LayerSpec &spec);

/// The identity of a layer (moert::ExecutorOptions::description): its spec, or
/// {"ir": SHA-256} where the layer came as IR without a spec.
std::string describeLayer(const std::optional<LayerSpec> &spec,
                          mlir::ModuleOp module);

} // namespace moec

#endif // MOEC_PACKAGE_SPECTEXT_H
