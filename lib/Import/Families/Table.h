//===- Table.h - notation of the table of families --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Row fills a Family with one method per common feature. An entry is an
// expression of a Row; features shared by several families are functions that
// return a Row to extend.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FAMILIES_TABLE_H
#define MOEC_LIB_IMPORT_FAMILIES_TABLE_H

#include "Family.h"

#include <vector>

namespace moec {

struct Row : Family {
  explicit Row(const char *types) { modelTypes = types; }

  /// Number of experts, experts per token, width of an expert.
  Row &sizes(Key experts, Key perToken, Key width) {
    numExperts = std::move(experts);
    topK = std::move(perToken);
    intermediateSize = std::move(width);
    // Pruned models have a value for each decoder layer.
    for (Key *key : {&numExperts, &topK, &intermediateSize})
      key->perLayer |= !key->element;
    return *this;
  }
  Row &in(const char *object) { return within = object, *this; }
  Row &says(const char *text) { return note = text, *this; }
  Row &startsFrom(Entry point) { return entry = point, *this; }

  // Activation.
  Row &act(Key key = "hidden_act=\"silu\"") {
    return activation.key = std::move(key), *this;
  }
  /// An activation that the model's code fixes.
  Row &fixedAct(Activation kind) {
    activation = {kind, Key()};
    return *this;
  }
  Row &clamp(Key key) { return limit = std::move(key), *this; }
  Row &order(GateUpOrder rows) { return gateUpOrder = rows, *this; }

  // Router.
  Row &softmax() { return score.value = Score::Softmax, *this; }
  Row &sigmoid() { return score.value = Score::Sigmoid, *this; }
  /// Selection by logits, softmax over the selected experts.
  Row &softmaxOfChosen() {
    score.value = Score::Identity;
    weight.value = RouteWeight::Softmax;
    return *this;
  }
  Row &bias() { return selectionBias.value = true, *this; }
  Row &biasIf(Key key) { return selectionBias.key = std::move(key), *this; }
  Row &renorm(double epsilon = 0.0) {
    renormalize.value = true;
    renormalizeEpsilon = epsilon;
    return *this;
  }
  Row &renormIf(Key key, double epsilon = 0.0) {
    renormalize.key = std::move(key);
    renormalizeEpsilon = epsilon;
    return *this;
  }
  Row &groups(Key number, Key kept, GroupScore by) {
    numGroups = std::move(number);
    topkGroups = std::move(kept);
    groupScore = by;
    return *this;
  }
  /// Renormalization only with several experts per token.
  Row &renormOfSeveral() { return keepsOnlyWeight = true, *this; }
  Row &scaledBy(Key key) { return scale = std::move(key), *this; }

  // Shared experts.
  Row &shared(Key number, Key width) {
    hasShared = true;
    numShared = std::move(number);
    sharedWidth = std::move(width);
    return *this;
  }
  Row &shared(Key width, SharedGate gate = SharedGate::None) {
    hasShared = true;
    sharedWidth = std::move(width);
    sharedGate = gate;
    return *this;
  }

  // Decoder layers with experts.
  Row &rule(LayerRule::Kind kind, Key key, const char *words = "") {
    layers.push_back({kind, std::move(key), Key(), words});
    return *this;
  }
  Row &rule(LayerRule::Kind kind, Key key, Key second) {
    layers.push_back({kind, std::move(key), std::move(second), ""});
    return *this;
  }
  Row &from(Key key) { return rule(LayerRule::From, std::move(key)); }
  Row &types(Key key = "mlp_layer_types?=null", const char *words = "sparse") {
    return rule(LayerRule::Types, std::move(key), words);
  }
  Row &step() {
    return rule(LayerRule::Step, "decoder_sparse_step=1")
        .rule(LayerRule::Except, "mlp_only_layers?=[]");
  }

  // Keys that are not read.
  Row &expect(Key key, std::initializer_list<llvm::StringRef> values,
              const char *reason = "") {
    expected.push_back({std::move(key), values, reason});
    return *this;
  }
  Row &ignore(const char *keys) { return irrelevant = keys, *this; }

  // Names in checkpoints.
  Row &block(const char *name) { return names.block = name, *this; }
  Row &gate(const char *name) { return names.gate = name, *this; }
  Row &biasName(const char *name) { return names.selectionBias = name, *this; }
  Row &expertNames(const char *gate, const char *up, const char *down) {
    names.expert[0] = gate, names.expert[1] = up, names.expert[2] = down;
    return *this;
  }
  Row &fusedNames(const char *gateUp, const char *down) {
    names.fused[0] = gateUp, names.fused[1] = down;
    return *this;
  }
  Row &transposed() { return names.fusedTransposed = true, *this; }
  Row &sharedNames(const char *gate, const char *up, const char *down) {
    names.shared[0] = gate, names.shared[1] = up, names.shared[2] = down;
    return *this;
  }
};

/// A model whose nested object `within` has its own `model_type`, which names
/// the family.
inline Row wrapper(const char *types, const char *within) {
  Row row(types);
  row.hiddenSize = row.numLayers = Key();
  row.namedWithin = true;
  return row.in(within).says("as the model_type of that object says");
}

/// A model may have a router for each kind of token; the layer has that of
/// text.
inline Row takeTextRouter(Row row) {
  row.expect("multi_gate", {"false", "true"})
      .expect("router_type", {"\"topN\"", "\"MultiRouter\""})
      .says("with several routers, that of text tokens");
  row.names.otherRouters = "image_gate.weight image_gate.expert_bias "
                           "audio_gate.weight audio_gate.expert_bias";
  row.remark = "tokens of images and audio have routers of their own in this "
               "model, 'image_gate' and 'audio_gate'; the layer has that of "
               "text tokens alone, so compute ids of others yourself (entry "
               "\"ids\")";
  row.remarkIf = "multi_gate";
  row.remarkIfWord = "router_type";
  row.remarkWord = "MultiRouter";
  return row;
}

/// A model whose layers cannot be described, with the reason.
inline Row refuse(const char *types, const char *reason) {
  Row row(types);
  row.refusal = reason;
  return row;
}

/// Each function appends the entries of its file.
void addSoftmaxFamilies(std::vector<Family> &all);
void addSigmoidFamilies(std::vector<Family> &all);
void addOtherFamilies(std::vector<Family> &all);
/// Models whose code is not part of Transformers.
void addPublishedFamilies(std::vector<Family> &all);
/// Layers with more than a router, experts and shared experts.
void addUncommonFamilies(std::vector<Family> &all);
/// Models with experts that a layer spec cannot describe, with the reason.
void addRefusedFamilies(std::vector<Family> &all);

} // namespace moec

#endif // MOEC_LIB_IMPORT_FAMILIES_TABLE_H
