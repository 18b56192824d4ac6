//===- Family.h - how a family of models is described -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One entry of the table of families: data without code. It maps the keys of a
// config.json to fields of the layer spec, and lists keys with expected values,
// keys that do not concern the layer, the decoder layers with experts, and the
// names of tensors in checkpoints. ReadFamily.cpp applies an entry,
// ListModels.cpp prints it.
//
// Notation of keys:
//   "n_group"              a required key
//   "n_group=1"            default value (JSON) of the model's code
//   "n_group?=1"           null means that the model lacks the feature
//   "a|b=1"                two names of one key
//   "moe_topk@layer=1"     a value, or a list with one for each decoder layer
//   "moe_intermediate_size@0"  an element of a list
//   "act.name"             a key of an object
//   "^d_model"             a key of the enclosing object
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FAMILIES_FAMILY_H
#define MOEC_LIB_IMPORT_FAMILIES_FAMILY_H

#include "moec/Import/LayerSpec.h"

#include "llvm/ADT/SmallVector.h"

namespace moec {

/// A key of a config.json, parsed from this notation.
struct Key {
  Key() = default;
  /*implicit*/ Key(const char *text);

  /// Whether the family has the key.
  explicit operator bool() const { return !names.empty(); }

  llvm::SmallVector<llvm::StringRef, 2> names;
  /// Default as JSON; none for a required key.
  std::optional<llvm::StringRef> fallback;
  bool takesNull = false;
  /// A list has one value per decoder layer.
  bool perLayer = false;
  /// Index of the list element to use.
  std::optional<unsigned> element;
};

/// A field of the spec that a key sets or the family fixes.
template <typename T>
struct Choice {
  T value{};
  Key key;
};

/// Accepted strings of a key and their meanings.
template <typename T>
struct Words {
  llvm::StringRef word;
  T value;
};

/// A key whose value, if present, must be one of `values` (JSON), because the
/// model's code ignores it or moec does not support other values. Null matches
/// false and 0, and any expectation if the key has a `?`.
struct Expectation {
  Key key;
  llvm::SmallVector<llvm::StringRef, 2> values;
  /// For messages: what a layer lacks for other values.
  llvm::StringRef reason;
};

/// A rule that tells which decoder layers have experts. Rules are evaluated in
/// order. A rule that lists layers decides alone if the file has its key; all
/// others must agree that a layer has experts.
struct LayerRule {
  enum Kind {
    /// Layers from an index on: `first_k_dense_replace`.
    From,
    /// Every n-th layer, counted from 1: `decoder_sparse_step`; 0 means none.
    Step,
    /// Layers whose index is a multiple: `moe_layer_freq` as a number. A list
    /// with a 1 per layer with experts decides alone.
    Frequency,
    /// `index % period == offset`; the offset is 1 without a second key.
    Period,
    /// A list of the layers without experts: `mlp_only_layers`.
    Except,
    /// A list of the layers with experts; decides alone.
    Listed,
    /// A list with a word per layer, or of objects with the word under a key
    /// ("blocks.type"); `words` are those with experts. Decides alone.
    Types,
    /// A string with a letter per layer; `words` are those with experts.
    /// Decides alone.
    Pattern,
    /// First and last layer.
    Range,
    /// A boolean that enables experts in all layers.
    Enabled,
    /// A list of booleans, one per layer; decides alone.
    Flags,
  } kind;
  Key key;
  Key second;
  llvm::StringRef words;
};

/// Names of the tensors of a MoE block in the family's checkpoints. `|`
/// separates alternatives; `{e}` is the expert's id.
struct Names {
  /// The block inside the decoder layer.
  llvm::StringRef block = "mlp";
  llvm::StringRef gate = "gate.weight";
  llvm::StringRef gateBias = "gate.bias";
  /// The first of the router's two weights.
  llvm::StringRef gateHidden;
  llvm::StringRef selectionBias = "gate.e_score_correction_bias";
  llvm::StringRef expertScale;
  llvm::StringRef hashTable = "gate.tid2eid";
  /// Modules of one expert: gate, up, down.
  llvm::StringRef expert[3] = {"experts.{e}.gate_proj", "experts.{e}.up_proj",
                               "experts.{e}.down_proj"};
  /// Tensors of all experts, with gate and up in one.
  llvm::StringRef fused[2] = {"experts.gate_up_proj", "experts.down_proj"};
  /// Gate and up rows of all experts as separate tensors.
  llvm::StringRef fusedHalves[2];
  /// Fused tensors are stored as K x rows.
  bool fusedTransposed = false;
  /// Matrices with all experts stacked in the rows: gate, up, down.
  llvm::StringRef stacked[3];
  /// Modules of the shared expert: gate, up, down.
  llvm::StringRef shared[3] = {"shared_experts.gate_proj",
                               "shared_experts.up_proj",
                               "shared_experts.down_proj"};
  /// Module with gate and up of the shared expert in one.
  llvm::StringRef sharedFused;
  llvm::StringRef sharedGate = "shared_expert_gate.weight";
  llvm::StringRef sharedGateBias = "shared_expert_gate.bias";
  /// The bias of the experts' sum.
  llvm::StringRef outputBias;
  llvm::StringRef latent[2] = {"fc1_latent_proj.weight",
                               "fc2_latent_proj.weight"};
  /// Weights of the norms out of the latent projection, of an expert's rows and
  /// of their sum.
  llvm::StringRef norms[3];
  /// The first gemm of experts needs the factor of its input.
  bool haveInputFactor = false;
  /// Modules of the narrow experts that groups of experts share.
  llvm::StringRef adjugate[3];
  /// Tensors of all experts that every token has, with gate and up in one.
  llvm::StringRef always[2];
  /// `expertScale` names one factor of all weights.
  bool isOneScale = false;
  /// Tensors of other routers and their experts, separated by blanks, that the
  /// layer ignores.
  llvm::StringRef otherRouters;
  /// The router's weight is stored as K x rows under the first of its names.
  bool gateTransposed = false;
  /// The layer is one of two parts with as many experts each, 0 or 1: experts
  /// are numbered through both, and the selection bias has a row for each.
  std::optional<int64_t> partOfTwo;
  /// Several layers share a bank of experts outside of them. Names begin at the
  /// model then, not at the block: `{l}` is the decoder layer's index, `{b}`
  /// that of its bank.
  bool haveBanks = false;
};

/// An RMS norm of the layer: its epsilon, and the boolean that enables it.
struct FamilyNorm {
  Key epsilon, enabled;
  double offset = 0.0;
  bool weightFirst = false;
};

struct Family {
  /// `model_type` values, separated by blanks.
  llvm::StringRef modelTypes;
  /// The object with the keys, if it is not the whole file: "text_config". With
  /// a `?` suffix the keys may also be in the file itself.
  llvm::StringRef within;
  /// The family of the layers is found by the `model_type` of that object. Of
  /// this entry only `irrelevant` is used then.
  bool namedWithin = false;
  /// Reason why layers of this family cannot be described; all else is empty
  /// then.
  llvm::StringRef refusal;
  /// Note for readers of the table.
  llvm::StringRef note;
  /// What such a layer computes otherwise than the model, if the file has this
  /// key, neither false nor null, or the other key with this word.
  llvm::StringRef remark;
  Key remarkIf;
  Key remarkIfWord;
  llvm::StringRef remarkWord;

  /// A list with an object per decoder layer, whose keys replace those around
  /// it.
  Key layerObjects;

  Key hiddenSize = "hidden_size";
  Key numLayers = "num_hidden_layers?=null";
  Key numExperts, topK, intermediateSize;
  /// Keys that may only repeat `intermediateSize`.
  Key sameAsIntermediate;
  /// Width of an expert where `intermediateSize` is null; another width if that
  /// has a value.
  Key widthOtherwise;
  /// Likewise, in hidden sizes.
  int64_t hiddenSizesPerWidth = 0;

  Entry entry = Entry::Gate;
  /// The layer starts from logits if this key is true.
  Key logitsIf;

  /// The name of the activation; the kind is fixed if there is no key.
  Choice<Activation> activation;
  /// Names mean activations without a gate: the `_no_mul` kinds.
  bool ungated = false;
  Key limit, alpha;
  std::optional<double> fixedAlpha, fixedBeta;
  /// Parameters of `situ`.
  Key gateSoftcap, upSoftcap;
  GateUpOrder gateUpOrder = GateUpOrder::GateUp;
  bool expertBias = false;
  /// A bias is added to the sum of the experts.
  bool outputBias = false;
  /// Number of neighbouring experts that share a narrow one, its width, and the
  /// factor of what it adds.
  Key adjugateSharing, adjugateWidth;
  double adjugateFactor = 1.0;
  /// Factor of the experts' input, unless one of these keys is true.
  double inputFactor = 1.0;
  Key inputFactorUnless[2];

  Choice<Score> score;
  llvm::SmallVector<Words<Score>, 3> scoreWords;
  Choice<bool> gateBias, selectionBias;
  /// The router is two gemms with a tanh between them if this key is true: its
  /// width per expert.
  Key hasGateHidden;
  int64_t gateHiddenPerExpert = 0;
  /// The word of `selectionBias.key` that enables the bias, if the key is not a
  /// boolean.
  llvm::StringRef selectionBiasWord;
  bool expertScale = false;
  Key softcap, logitScale;
  Key numGroups, topkGroups;
  GroupScore groupScore = GroupScore::Max;
  /// Groups are used only if this key has this word.
  Key groupsIf;
  llvm::StringRef groupsIfWord;
  Choice<RouteWeight> weight;
  llvm::SmallVector<Words<RouteWeight>, 2> weightWords;
  Choice<bool> renormalize;
  double renormalizeEpsilon = 0.0;
  /// With one expert per token the weight is not renormalized.
  bool keepsOnlyWeight = false;
  Key scale;
  /// Factor of the weights that no key states.
  double fixedScale = 1.0;
  bool weightOnInput = false;
  Select select = Select::TopK;
  /// Layers with this word in the rule `Types` look up their ids in a table;
  /// without such a list, the first `hashLayers` layers do.
  llvm::StringRef hashWord;
  Key hashLayers;
  Key hashVocabulary;
  Key zeroExperts;
  /// Experts without weights behind the others: their number, and the word for
  /// what they return, `copy` (the input) or `zero`.
  Key emptyExperts, emptyKind;
  /// Number of experts behind the others that return zero, if no key states it.
  int64_t numSkips = 0;
  /// The model leaves out tokens of an expert that has as many of a sequence.
  Key capacity;
  Key latentSize;
  FamilyNorm normLatentIn, normExpert, normLatentOut;
  /// Number of experts behind the others that every token has: shared experts
  /// whose weights come from the router.
  Key alwaysChosen;
  /// Number of banks; layers take them in turn.
  Key numBanks;
  /// Number of consecutive layers, from the second key on, that share the bank
  /// of the first of them.
  Key layersPerBank, firstBank;

  /// Number of shared experts (1 without the key) and width of each.
  Key numShared, sharedWidth;
  bool hasShared = false;
  SharedGate sharedGate = SharedGate::None;
  bool sharedGateBias = false;
  /// Limit of the shared expert's activation. `sharedUnlimited`: it has none
  /// although the routed experts have one.
  Key sharedLimit;
  bool sharedUnlimited = false;
  /// Factor of the shared expert's output.
  double sharedScale = 1.0;
  /// Key whose word `average` means the average of routed and shared output.
  Key combination;

  llvm::SmallVector<LayerRule, 3> layers;
  llvm::SmallVector<Expectation, 4> expected;
  /// Suspicious keys that do not concern the layer, separated by blanks.
  llvm::StringRef irrelevant;
  Names names;

  /// Whether `modelTypes` contains the word.
  bool has(llvm::StringRef modelType) const;
  llvm::SmallVector<llvm::StringRef> getModelTypes() const;

  /// All keys that are read, to list them and to find unread ones.
  llvm::SmallVector<const Key *> getKeys() const;
};

/// All families, in the order of their files.
llvm::ArrayRef<Family> getFamilies();

/// The family of a `model_type`, or null.
const Family *findFamily(llvm::StringRef modelType);

} // namespace moec

#endif // MOEC_LIB_IMPORT_FAMILIES_FAMILY_H
