//===- Internal.h - internal interface of the importer ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions shared by the files of this library.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_INTERNAL_H
#define MOEC_LIB_IMPORT_INTERNAL_H

#include "AllowList.h"
#include "FieldReader.h"
#include "moec/Import/Import.h"

namespace moec {

/// The dtype with this name in models, if it is supported.
std::optional<DType> parseModelDType(llvm::StringRef name);

/// Reads the field `quantization` of the spec or of its shared experts; reports
/// errors.
ExpertQuantization readQuantizationField(FieldReader &outer);

/// Path of the field that quantizes the gemm with this weight ("quantization",
/// "shared_experts.quantization.w2").
std::string getQuantizationField(const ImportContext &context,
                                 llvm::StringRef weight);

/// Reads the quantization from a config.json and the hf_quant_config.json
/// beside it; reports errors. `outer` is the object around the one with the
/// layer's keys, or null.
void readQuantization(FieldReader &config, FieldReader *outer,
                      const Family &family, const SpecOverrides &overrides,
                      IgnoredFields &ignored, LayerSpec &spec);

/// Reads the experts of a layer that MoNE has replaced by constant vectors.
void readConstantExperts(FieldReader &config, FieldReader *outer, int64_t layer,
                         LayerSpec &spec);
/// Whether a `compression_config` says nothing else.
bool statesSubstitution(const json::Value &compression);

/// Finds the dtype of the router in the checkpoint, if that is at hand.
void readRouterDType(const Family &family, const SpecOverrides &overrides,
                     LayerSpec &spec);

/// Parses a separate text with a `parallel` object; reports errors.
ParallelSpec readParallel(const SourceText &text, Diagnostics &diags);

/// Reports inconsistencies in a complete spec.
void checkLayerSpec(const LayerSpec &spec, ImportContext &context);

/// Reports features of a valid spec that cannot be compiled.
void checkCompiles(const LayerSpec &spec, ImportContext &context);

/// Applies the overrides, then checks the spec. `numErrorsBefore` is the error
/// count at the start of the import; nothing is checked after earlier errors.
llvm::FailureOr<LayerSpec> finishImport(LayerSpec spec,
                                        const SpecOverrides &overrides,
                                        ImportContext &context,
                                        unsigned numErrorsBefore);

} // namespace moec

#endif // MOEC_LIB_IMPORT_INTERNAL_H
