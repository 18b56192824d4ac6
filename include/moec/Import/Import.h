//===- Import.h - JSON to a layer spec --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads a layer from our own JSON spec or from a model's config.json. What is
// returned is complete and consistent; what cannot be honoured is an error
// that names the field, never dropped.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_IMPORT_H
#define MOEC_IMPORT_IMPORT_H

#include "moec/Import/LayerSpec.h"
#include "moec/Support/Json.h"

namespace moec {

/// What a command line may change about a layer that was read. Values are
/// checked like those of the file.
struct SpecOverrides {
  /// Experts with weights, to test a large model on a small machine. Groups
  /// stay as they are.
  std::optional<int64_t> numExperts;
  std::optional<int64_t> maxTokens;
  /// Entry point. Logits include the router's bias; ids and weights include
  /// all of routing but `weight_on_input`. What they include is not part of
  /// the layer then.
  std::optional<Entry> entry;
  std::optional<bool> numValidTokens;
  /// The decoder layer of a model's configuration, counted from 0 as the names
  /// of its tensors count. Absent means the first one that has experts.
  std::optional<int64_t> layer;
  /// The text of an object `parallel` (docs/parallel.md) in place of that of
  /// the description.
  std::optional<SourceText> parallel;
  /// Keys of a model's configuration that are read past although they could
  /// describe the layer, as messages show them ("text_config.route_scale").
  std::vector<std::string> ignoredFields;
  /// The layer is to be compiled or run, not only described: what nothing
  /// lowers, and what no device could hold, is an error.
  bool toCompile = false;
  /// The text of the hf_quant_config.json beside a model's configuration, which
  /// states the quantization of ModelOpt's checkpoints.
  std::optional<SourceText> quantConfig;
};

/// What a decoder layer of a model is.
struct DecoderLayer {
  int64_t index = 0;
  bool hasExperts = false;
};

/// The layer that a spec of our own (docs/layers.md) describes.
llvm::FailureOr<LayerSpec> parseLayerSpec(const SourceText &text,
                                          const json::Value &document,
                                          const SpecOverrides &overrides,
                                          Diagnostics &diags);

/// The MoE layer of the model whose config.json this is.
llvm::FailureOr<LayerSpec> parseModelConfig(const SourceText &text,
                                            const json::Value &document,
                                            const SpecOverrides &overrides,
                                            Diagnostics &diags);

/// Either of the two: a spec has the field `moec_spec`.
llvm::FailureOr<LayerSpec> importJson(const SourceText &text,
                                      const SpecOverrides &overrides,
                                      Diagnostics &diags);

/// The same from a file.
llvm::FailureOr<LayerSpec> importJsonFile(llvm::StringRef path,
                                          const SpecOverrides &overrides,
                                          Diagnostics &diags);

/// The decoder layers of the model whose config.json this is, in their order.
/// A configuration that does not say how many it has is an error.
llvm::FailureOr<std::vector<DecoderLayer>>
getDecoderLayers(const SourceText &text, const SpecOverrides &overrides,
                 Diagnostics &diags);

/// The `model_type`s that `parseModelConfig` knows, in alphabetical order.
std::vector<llvm::StringRef> getKnownModelTypes();

/// Prints the table of families as JSON: for each `model_type` the keys that it
/// reads with what silence means, the values that it expects, the keys that say
/// nothing of the layer, and for those that are refused the reason.
void printModels(llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_IMPORT_IMPORT_H
