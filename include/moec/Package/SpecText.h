//===- SpecText.h - a layer as a spec ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PACKAGE_SPECTEXT_H
#define MOEC_PACKAGE_SPECTEXT_H

#include "moec/Import/LayerSpec.h"

#include <string>

namespace moec {

/// The layer as JSON (docs/layers.md), whatever it came from: importing the
/// text gives the same layer, but for `modelType`, which no spec has. Fields
/// with their default are left out.
std::string printLayerSpec(const LayerSpec &spec);

} // namespace moec

#endif // MOEC_PACKAGE_SPECTEXT_H
