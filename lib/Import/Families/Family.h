//===- Family.h - what one family of models means by its keys ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An entry of the table of families: data, no code. It says which keys of a
// config.json become which field of the layer's spec, which keys are expected
// to have a certain value, which say nothing of the layer, which decoder layers
// have experts, and what checkpoints call the tensors. ReadFamily.cpp applies
// it, ListModels.cpp prints it.
//
// Keys are written in a small notation:
//   "n_group"              a required key
//   "n_group=1"            the value (JSON) that the model's code assumes where
//                          the file is silent
//   "n_group?=1"           null means that the model lacks the feature
//   "a|b=1"                two names of one key
//   "moe_topk@layer=1"     a value, or a list with one for each decoder layer
//   "moe_intermediate_size@0"  an element of a list
//   "act.name"             a key of an object
//   "^d_model"             a key of the object around
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FAMILIES_FAMILY_H
#define MOEC_LIB_IMPORT_FAMILIES_FAMILY_H

#include "moec/Import/LayerSpec.h"

#include "llvm/ADT/SmallVector.h"

namespace moec {

/// A key of a config.json, parsed from the notation above.
struct Key {
  Key() = default;
  /*implicit*/ Key(const char *text);

  /// Whether the family has the key at all.
  explicit operator bool() const { return !names.empty(); }

  llvm::SmallVector<llvm::StringRef, 2> names;
  /// JSON; none for a required key.
  std::optional<llvm::StringRef> fallback;
  bool takesNull = false;
  /// A list has one value for each decoder layer.
  bool perLayer = false;
  /// The element of a list that is taken.
  std::optional<unsigned> element;
};

/// A field of the spec that a key decides, or that the family fixes.
template <typename T>
struct Choice {
  T value{};
  Key key;
};

/// Strings that a key may hold, and what each means.
template <typename T>
struct Words {
  llvm::StringRef word;
  T value;
};

/// A key whose value must be one of `values` (JSON) where the file states it:
/// the model's code does not look at it, or moec cannot do the other. Null is
/// the same as false and 0, and another value than others unless the key has a
/// `?`.
struct Expectation {
  Key key;
  llvm::SmallVector<llvm::StringRef, 2> values;
};

/// Which decoder layers have experts: one way in which models say it. Rules are
/// asked in order. One that lists layers decides alone when the file has it;
/// the others must all agree that a layer has experts.
struct LayerRule {
  enum Kind {
    /// Layers from a number on: `first_k_dense_replace`.
    From,
    /// Every n-th layer, counted from 1: `decoder_sparse_step`; none for 0.
    Step,
    /// Layers whose number is a multiple: `moe_layer_freq` as a number. As a
    /// list it has a 1 for each layer with experts, and decides alone.
    Frequency,
    /// `index % period == offset`.
    Period,
    /// A list of the layers without experts: `mlp_only_layers`.
    Except,
    /// A list of the layers with experts, which decides alone.
    Listed,
    /// A word per layer, `words` are those with experts; decides alone.
    Types,
    /// A letter per layer; `words` are the letters with experts; decides alone.
    Pattern,
    /// First and last layer.
    Range,
    /// A boolean that turns all experts on.
    Enabled,
    /// A list of booleans, one per layer; decides alone.
    Flags,
  } kind;
  Key key;
  Key second;
  llvm::StringRef words;
};

/// What the checkpoints of a family call the tensors inside a decoder layer's
/// MoE block. Alternatives are separated by `|`; `{e}` stands for an expert.
struct Names {
  /// The block within the decoder layer.
  llvm::StringRef block = "mlp";
  llvm::StringRef gate = "gate.weight";
  llvm::StringRef gateBias = "gate.bias";
  llvm::StringRef selectionBias = "gate.e_score_correction_bias";
  llvm::StringRef expertScale;
  llvm::StringRef hashTable = "gate.tid2eid";
  /// Modules of one expert, in the order gate, up, down.
  llvm::StringRef expert[3] = {"experts.{e}.gate_proj", "experts.{e}.up_proj",
                               "experts.{e}.down_proj"};
  /// Tensors of all experts, gate and up in one.
  llvm::StringRef fused[2] = {"experts.gate_up_proj", "experts.down_proj"};
  /// Gate and up rows of all experts, a tensor each.
  llvm::StringRef fusedHalves[2];
  /// Fused tensors have the contracted dimension before the rows.
  bool fusedTransposed = false;
  /// Experts follow one another in the rows of one matrix: gate, up, down.
  llvm::StringRef stacked[3];
  /// Modules of the shared expert: gate, up, down.
  llvm::StringRef shared[3] = {"shared_experts.gate_proj",
                               "shared_experts.up_proj",
                               "shared_experts.down_proj"};
  /// The module that is gate and up of the shared expert in one.
  llvm::StringRef sharedFused;
  llvm::StringRef sharedGate = "shared_expert_gate.weight";
  llvm::StringRef latent[2] = {"fc1_latent_proj.weight",
                               "fc2_latent_proj.weight"};
};

struct Family {
  /// `model_type`s, separated by blanks.
  llvm::StringRef modelTypes;
  /// The object that holds the keys, if it is not the whole file:
  /// "text_config". With a `?` behind it the file may hold them itself.
  llvm::StringRef within;
  /// That object says itself what it is: its `model_type` names the family of
  /// the layers, and what is in this entry besides `irrelevant` is not used.
  bool namedWithin = false;
  /// Why layers of this family cannot be described; the rest is empty then.
  llvm::StringRef refusal;
  /// What a reader of the table should know.
  llvm::StringRef note;

  Key hiddenSize = "hidden_size";
  Key numLayers = "num_hidden_layers?=null";
  Key numExperts, topK, intermediateSize;
  /// Keys that may repeat `intermediateSize` and nothing else.
  Key sameAsIntermediate;

  Entry entry = Entry::Gate;

  /// The name of the activation; without a key the kind is fixed.
  Choice<Activation> activation;
  /// Activations without a gate: names mean the kinds of `_no_mul`.
  bool ungated = false;
  Key limit, alpha;
  std::optional<double> fixedAlpha, fixedBeta;
  /// Parameters of `situ`.
  Key gateSoftcap, upSoftcap;
  GateUpOrder gateUpOrder = GateUpOrder::GateUp;
  bool expertBias = false;

  Choice<Score> score;
  llvm::SmallVector<Words<Score>, 3> scoreWords;
  Choice<bool> gateBias, selectionBias;
  /// The word of `selectionBias.key` with which there is a bias, where the key
  /// is no boolean.
  llvm::StringRef selectionBiasWord;
  bool expertScale = false;
  Key softcap;
  Key numGroups, topkGroups;
  GroupScore groupScore = GroupScore::Max;
  /// Groups count only where this key holds this word.
  Key groupsIf;
  llvm::StringRef groupsIfWord;
  Choice<RouteWeight> weight;
  llvm::SmallVector<Words<RouteWeight>, 2> weightWords;
  Choice<bool> renormalize;
  double renormalizeEpsilon = 0.0;
  /// The weight of a token's only expert is left as it is.
  bool keepsOnlyWeight = false;
  Key scale;
  /// What weights are multiplied by whatever the file says.
  double fixedScale = 1.0;
  bool weightOnInput = false;
  Select select = Select::TopK;
  /// Layers whose word in the rule `Types` is this one take ids from a table;
  /// without such a list the first `hashLayers` do.
  llvm::StringRef hashWord;
  Key hashLayers;
  Key hashVocabulary;
  Key zeroExperts;
  Key latentSize;

  /// Shared experts: their number (1 without the key) and the width of one.
  Key numShared, sharedWidth;
  bool hasShared = false;
  SharedGate sharedGate = SharedGate::None;
  /// A limit of the shared expert's own activation; `sharedUnlimited` says that
  /// it has none though the routed experts have one.
  Key sharedLimit;
  bool sharedUnlimited = false;
  /// What the shared expert's output is multiplied by.
  double sharedScale = 1.0;
  /// The word of this key with which routed and shared output are averaged.
  Key combination;

  llvm::SmallVector<LayerRule, 3> layers;
  llvm::SmallVector<Expectation, 4> expected;
  /// Keys that match the pattern of what could matter and say nothing of the
  /// layer, separated by blanks.
  llvm::StringRef irrelevant;
  Names names;

  /// Whether `modelTypes` has the word.
  bool has(llvm::StringRef modelType) const;
  llvm::SmallVector<llvm::StringRef> getModelTypes() const;

  /// All keys that are read, for lists and for the check of what is left.
  llvm::SmallVector<const Key *> getKeys() const;
};

/// All families in the order of their files.
llvm::ArrayRef<Family> getFamilies();

/// The entry of a `model_type`, or null.
const Family *findFamily(llvm::StringRef modelType);

} // namespace moec

#endif // MOEC_LIB_IMPORT_FAMILIES_FAMILY_H
