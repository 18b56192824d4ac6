//===- ReadFamily.h - applies a family to a config.json ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FAMILIES_READFAMILY_H
#define MOEC_LIB_IMPORT_FAMILIES_READFAMILY_H

#include "KeyReader.h"

namespace moec {

/// Reads the family-specific fields: sizes, activation, routing, shared
/// experts. `layerWord` is the layer's word in the list of layer types. Reports
/// errors.
void readFamily(const Family &family, KeyReader &reader, int64_t layer,
                llvm::StringRef layerWord, LayerSpec &spec);

} // namespace moec

#endif // MOEC_LIB_IMPORT_FAMILIES_READFAMILY_H
