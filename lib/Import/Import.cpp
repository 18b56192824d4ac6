//===- Import.cpp - imports a layer spec from JSON ------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AllowList.h"
#include "Internal.h"

using namespace llvm;

namespace moec {

namespace {

/// Replaces an integer of the spec by a command-line option.
void overrideInteger(ImportContext &context, StringRef field, StringRef option,
                     std::optional<int64_t> value, int64_t max,
                     int64_t &result) {
  if (!value)
    return;
  context.origins[field] = {option.str(), std::nullopt};
  if (*value < 1 || *value > max)
    context.error(field, option + " must be an integer from 1 to " +
                             Twine(max) + ", not " + Twine(*value));
  else
    result = *value;
}

/// Moves the entry point; operations that produce the new inputs leave the
/// layer.
void overrideEntry(ImportContext &context, Entry entry, LayerSpec &spec) {
  if (spec.entry == entry)
    return;
  if (spec.entry == Entry::Ids) {
    context.error("entry", "the layer starts from ids and weights and says "
                           "nothing of routing; entry \"" +
                               stringify(entry) + "\" cannot be chosen");
    return;
  }
  if (entry == Entry::Gate && !spec.modelType.empty()) {
    context.error("entry", "the router of model_type \"" + spec.modelType +
                               "\" reads states of its own and is no part of "
                               "the layer; entry \"gate\" cannot be chosen");
    return;
  }
  spec.entry = entry;
  if (entry == Entry::Gate)
    spec.routing.logitsDtype = DType::F32;
  if (entry == Entry::Logits)
    spec.routing.gateBias = spec.routing.splitGate = false;
  if (entry == Entry::Ids) {
    RoutingSpec routed;
    routed.weightOnInput = spec.routing.weightOnInput;
    spec.routing = routed;
    spec.recordIds = spec.replayIds = std::nullopt;
  }
}

} // namespace

FailureOr<LayerSpec> finishImport(LayerSpec spec,
                                  const SpecOverrides &overrides,
                                  ImportContext &context,
                                  unsigned numErrorsBefore) {
  auto failed = [&] { return context.diags.getNumErrors() != numErrorsBefore; };
  // Relations between fields are meaningless if a field was not read.
  if (failed())
    return failure();
  if (overrides.numExperts && *overrides.numExperts > spec.numExperts)
    context.error("num_experts",
                  "--num-experts=" + Twine(*overrides.numExperts) +
                      " is more than the " + Twine(spec.numExperts) +
                      " experts of the layer (" + context.show("num_experts") +
                      "); it keeps some of them");
  else
    overrideInteger(context, "num_experts", "--num-experts",
                    overrides.numExperts, limits::kMaxExperts, spec.numExperts);
  overrideInteger(context, "max_tokens", "--max-tokens", overrides.maxTokens,
                  limits::kMaxTokens, spec.maxTokens);
  if (overrides.entry)
    overrideEntry(context, *overrides.entry, spec);
  spec.numValidTokens = overrides.numValidTokens.value_or(spec.numValidTokens);
  spec.batchInvariant |= overrides.batchInvariant;
  spec.roundWeights |= overrides.roundWeights;
  if (overrides.parallel)
    spec.parallel = readParallel(*overrides.parallel, context.diags);
  if (!failed())
    checkLayerSpec(spec, context);
  if (!failed() && overrides.toCompile)
    checkCompiles(spec, context);
  if (failed())
    return failure();
  return spec;
}

FailureOr<LayerSpec> importJson(const SourceText &text,
                                const SpecOverrides &overrides,
                                Diagnostics &diags) {
  FailureOr<json::Value> document = json::parse(text, diags);
  if (llvm::failed(document))
    return failure();
  if (document->find("moec_spec")) {
    unsigned numErrors = diags.getNumErrors();
    if (!overrides.part.empty())
      diags.error(text.getName(), "--part=" + overrides.part +
                                      ": a spec is of one part; leave it out");
    if (overrides.layer && !overrides.readsWeights)
      diags.error(text.getName(),
                  "--layer=" + Twine(*overrides.layer) +
                      ": a spec is of one layer, and no weights of a model "
                      "are read, of which it would be the layer; leave it out");
    IgnoredFields(overrides.ignoredFields, {})
        .reportUnused(text.getName(), diags);
    FailureOr<LayerSpec> spec =
        parseLayerSpec(text, *document, overrides, diags);
    if (diags.getNumErrors() != numErrors)
      return failure();
    spec->layerIndex = overrides.layer;
    return spec;
  }
  return parseModelConfig(text, *document, overrides, diags);
}

FailureOr<LayerSpec> importJsonFile(StringRef path,
                                    const SpecOverrides &overrides,
                                    Diagnostics &diags) {
  FailureOr<SourceText> text = readTextFile(path, json::kMaxBytes, diags);
  if (llvm::failed(text))
    return failure();
  return importJson(*text, overrides, diags);
}

} // namespace moec
