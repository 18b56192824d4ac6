//===- Import.h - imports a layer spec from JSON ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads a layer from a spec or from a model's config.json. The result is
// complete and consistent. A field that cannot be honoured is an error that
// names it, never dropped.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_IMPORT_H
#define MOEC_IMPORT_IMPORT_H

#include "moec/Import/GgufModel.h"
#include "moec/Support/Json.h"

#include <functional>
#include <memory>

namespace moec {

/// The tensors of a model's checkpoint.
struct StoredTensors {
  std::vector<std::string> names;
  /// The dtype of a tensor; none if layers have no such dtype, or if the file
  /// cannot be read.
  std::function<std::optional<DType>(llvm::StringRef name)> findDType;
};

/// A caller's overrides of a layer description; checked like values of the
/// file.
struct SpecOverrides {
  /// Number of experts with weights, to test a large model on a small machine.
  /// Expert groups do not change.
  std::optional<int64_t> numExperts;
  std::optional<int64_t> maxTokens;
  /// Entry point. Operations before it are not part of the layer: with logits
  /// the router's bias, with ids all of routing but `weight_on_input`.
  std::optional<Entry> entry;
  std::optional<bool> numValidTokens;
  /// The bits of a row must not depend on other rows.
  bool batchInvariant = false;
  /// Weights with more digits than the layer's dtype are to be rounded.
  bool roundWeights = false;
  /// Decoder layer of a model's configuration, counted from 0 as in the names
  /// of its tensors. Default: the first one with experts.
  std::optional<int64_t> layer;
  /// Weights of a checkpoint follow, so that `layer` is of use to a spec too:
  /// as the layer of the weights.
  bool readsWeights = false;
  /// The part of a decoder layer, where a model has several with routers and
  /// experts of their own; empty for that of text tokens.
  std::string part;
  /// Text of a `parallel` object (docs/use/parallel.md) that replaces that of
  /// the description.
  std::optional<SourceText> parallel;
  /// Keys of a model's configuration to ignore although they could describe the
  /// layer, spelled as in messages ("text_config.route_scale").
  std::vector<std::string> ignoredFields;
  /// The layer is to be compiled or run, not only described: a feature that no
  /// target lowers, or a size that no device could hold, is an error.
  bool toCompile = false;
  /// Text of the hf_quant_config.json beside a model's configuration, which
  /// states the quantization of ModelOpt checkpoints.
  std::optional<SourceText> quantConfig;
  /// The model's checkpoint, if it is at hand. It tells which matrices are
  /// quantized where the configuration does not, and the router's dtype.
  std::shared_ptr<const StoredTensors> tensors;
  /// The GGUF file that the configuration was written from (GgufModel.h). Its
  /// tensors tell the rest.
  std::shared_ptr<const GgufModel> gguf;
};

/// One decoder layer of a model.
struct DecoderLayer {
  int64_t index = 0;
  bool hasExperts = false;
};

/// Parses a spec (docs/use/layers.md).
llvm::FailureOr<LayerSpec> parseLayerSpec(const SourceText &text,
                                          const json::Value &document,
                                          const SpecOverrides &overrides,
                                          Diagnostics &diags);

/// Parses the config.json of a model and returns its MoE layer.
llvm::FailureOr<LayerSpec> parseModelConfig(const SourceText &text,
                                            const json::Value &document,
                                            const SpecOverrides &overrides,
                                            Diagnostics &diags);

/// Parses either of the two; a spec has the field `moec_spec`.
llvm::FailureOr<LayerSpec> importJson(const SourceText &text,
                                      const SpecOverrides &overrides,
                                      Diagnostics &diags);

/// Reads and parses a file.
llvm::FailureOr<LayerSpec> importJsonFile(llvm::StringRef path,
                                          const SpecOverrides &overrides,
                                          Diagnostics &diags);

/// Returns the decoder layers of a model's config.json, in order. A
/// configuration that does not state their number is an error.
llvm::FailureOr<std::vector<DecoderLayer>>
getDecoderLayers(const SourceText &text, const SpecOverrides &overrides,
                 Diagnostics &diags);

/// The `model_type` values that `parseModelConfig` knows, in alphabetical
/// order.
std::vector<llvm::StringRef> getKnownModelTypes();

/// Prints the table of families as JSON. For each `model_type`: the keys it
/// reads with their defaults, the values it expects, the keys that do not
/// concern the layer, and the refused keys with the reason.
void printModels(llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_IMPORT_IMPORT_H
