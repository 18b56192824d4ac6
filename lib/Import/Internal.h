//===- Internal.h - steps of an import --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the files of this library call in each other.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_INTERNAL_H
#define MOEC_LIB_IMPORT_INTERNAL_H

#include "FieldReader.h"
#include "moec/Import/Import.h"

namespace moec {

/// A family of models: those whose config.json means the same.
struct ModelFamily {
  llvm::StringLiteral modelType;
  /// Reads all of the layer that depends on the family.
  void (*read)(FieldReader &config, LayerSpec &spec);
};

/// All families, in alphabetical order.
llvm::ArrayRef<ModelFamily> getModelFamilies();

/// What a config.json says about quantization; errors are reported.
std::optional<WeightQuantization> readQuantizationConfig(FieldReader &config);

/// Reports what makes no sense in a complete spec.
void checkLayerSpec(const LayerSpec &spec, ImportContext &context);

/// Applies the overrides, then checks the spec. `numErrorsBefore` is the
/// number of errors at the start of the import: after others, nothing is
/// checked.
llvm::FailureOr<LayerSpec> finishImport(LayerSpec spec,
                                        const SpecOverrides &overrides,
                                        ImportContext &context,
                                        unsigned numErrorsBefore);

} // namespace moec

#endif // MOEC_LIB_IMPORT_INTERNAL_H
