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

#include "AllowList.h"
#include "FieldReader.h"
#include "moec/Import/Import.h"

namespace moec {

/// The dtype that models call by this name, if it is one of ours.
std::optional<DType> parseModelDType(llvm::StringRef name);

/// The field `quantization` of the spec, or of its shared experts; errors are
/// reported.
ExpertQuantization readQuantizationField(FieldReader &outer);

/// The field that says how the product with this weight is quantized
/// ("quantization", "shared_experts.quantization.w2").
std::string getQuantizationField(const ImportContext &context,
                                 llvm::StringRef weight);

/// Sets what a config.json, and the hf_quant_config.json beside it, say about
/// quantization; errors are reported. `outer` is the object around the one that
/// holds the layer's keys, if there is one.
void readQuantization(FieldReader &config, FieldReader *outer,
                      const Family &family, const SpecOverrides &overrides,
                      IgnoredFields &ignored, LayerSpec &spec);

/// The object `parallel` of a text of its own; errors are reported.
ParallelSpec readParallel(const SourceText &text, Diagnostics &diags);

/// Reports what makes no sense in a complete spec.
void checkLayerSpec(const LayerSpec &spec, ImportContext &context);

/// Reports what a sensible spec has that cannot be compiled.
void checkCompiles(const LayerSpec &spec, ImportContext &context);

/// Applies the overrides, then checks the spec. `numErrorsBefore` is the
/// number of errors at the start of the import: after others, nothing is
/// checked.
llvm::FailureOr<LayerSpec> finishImport(LayerSpec spec,
                                        const SpecOverrides &overrides,
                                        ImportContext &context,
                                        unsigned numErrorsBefore);

} // namespace moec

#endif // MOEC_LIB_IMPORT_INTERNAL_H
