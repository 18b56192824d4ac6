//===- ReadFamily.cpp - applies a family to a config.json -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReadFamily.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace llvm;

namespace moec {

namespace {

/// Activation names in models.
struct ActivationName {
  StringLiteral name;
  Activation gated;
  Activation ungated;
};

constexpr ActivationName kActivationNames[] = {
    {"silu", Activation::Silu, Activation::SiluNoMul},
    {"swish", Activation::Silu, Activation::SiluNoMul},
    {"gelu", Activation::Gelu, Activation::GeluNoMul},
    {"gelu_pytorch_tanh", Activation::GeluTanh, Activation::GeluTanhNoMul},
    {"gelu_new", Activation::GeluTanh, Activation::GeluTanhNoMul},
    {"relu", Activation::Relu, Activation::ReluNoMul},
    {"relu2", Activation::Relu2, Activation::Relu2NoMul},
};

/// Sets the limit of an activation; 0 or absent means none. Without a limit,
/// `SwigluStep` is plain silu.
ActivationSpec limitActivation(ActivationSpec activation,
                               std::optional<double> limit) {
  // For an activation that always has a limit, 0 stays and is refused later.
  bool isOptional = activation.kind == Activation::SwigluStep ||
                    !getParameters(activation.kind).limit.fallback;
  activation.limit = limit && *limit == 0 && isOptional ? std::nullopt : limit;
  if (activation.kind == Activation::SwigluStep && !activation.limit)
    return getDefaultActivation(Activation::Silu);
  return activation;
}

class FamilyImport {
public:
  FamilyImport(const Family &family, KeyReader &reader, int64_t layer,
               StringRef layerWord, LayerSpec &spec)
      : family(family), reader(reader), layer(layer), layerWord(layerWord),
        spec(spec) {}

  void run() {
    readSizes();
    readActivation();
    readScore();
    readSelection();
    readWeight();
    readSharedExperts();
    if (reader.isSet(family.remarkIf) ||
        reader.isWord(family.remarkIfWord, family.remarkWord))
      spec.remarks.push_back(family.remark.str());
  }

private:
  void readSizes();
  void readAdjugate();
  void addSkips(int64_t number);
  void readEmptyExperts();
  std::optional<NormSpec> readNorm(const FamilyNorm &norm, bool isThere);
  void readActivation();
  void readScore();
  void readSelection();
  void readWeight();
  void readSharedExperts();

  /// Whether the layer looks up ids in a table.
  bool usesHash() {
    int64_t first = reader.getInteger(family.hashLayers, 0, 4096).value_or(0);
    return layerWord.empty() ? layer < first : layerWord == family.hashWord;
  }

  /// The value of the choice's key, or the value that the family fixes.
  bool read(const Choice<bool> &choice, StringRef field) {
    return choice.key ? reader.getBoolean(choice.key, field) : choice.value;
  }

  const Family &family;
  KeyReader &reader;
  int64_t layer;
  StringRef layerWord;
  LayerSpec &spec;
};

void FamilyImport::readSizes() {
  auto size = [&](const Key &key, StringRef field, int64_t max) {
    return reader.getInteger(key, 1, max, field).value_or(1);
  };
  spec.entry = family.entry;
  if (family.logitsIf && reader.getBoolean(family.logitsIf))
    spec.entry = Entry::Logits;
  spec.hiddenSize = size(family.hiddenSize, "hidden_size", limits::kMaxWidth);
  spec.numExperts = size(family.numExperts, "num_experts", limits::kMaxExperts);
  spec.topK = size(family.topK, "top_k", limits::kMaxTopK);
  std::optional<int64_t> width = reader.getInteger(
      family.intermediateSize, 1, limits::kMaxWidth, "intermediate_size");
  if (!width && family.widthOtherwise)
    width = reader.getInteger(family.widthOtherwise, 1, limits::kMaxWidth,
                              "intermediate_size");
  spec.intermediateSize = width.value_or(
      std::max<int64_t>(family.hiddenSizesPerWidth, 1) * spec.hiddenSize);
  if (reader.has(family.sameAsIntermediate)) {
    int64_t other = size(family.sameAsIntermediate, "", limits::kMaxWidth);
    if (other != spec.intermediateSize)
      reader.error(family.sameAsIntermediate,
                   reader.show(family.sameAsIntermediate) + " = " +
                       Twine(other) + " differs from " +
                       reader.show(family.intermediateSize) + " = " +
                       Twine(spec.intermediateSize) +
                       ", the width of an expert in the model's code");
  }
  if (family.zeroExperts)
    spec.numZeroExperts =
        reader
            .getInteger(family.zeroExperts, 0, limits::kMaxExperts,
                        "num_zero_experts")
            .value_or(0);
  if (family.emptyExperts)
    readEmptyExperts();
  addSkips(family.numSkips);
  if (family.alwaysChosen) {
    spec.numAlwaysChosen =
        reader.getInteger(family.alwaysChosen, 0, limits::kMaxTopK - spec.topK)
            .value_or(0);
    spec.numExperts += spec.numAlwaysChosen;
    spec.topK += spec.numAlwaysChosen;
  }
  if (family.capacity)
    spec.expertCapacity = reader.getInteger(
        family.capacity, 1, limits::kMaxTokens, "expert_capacity");
  if (family.names.haveBanks)
    spec.bank = layer;
  if (family.numBanks)
    spec.bank = layer % reader.getInteger(family.numBanks, 1, 4096).value_or(1);
  if (family.layersPerBank) {
    int64_t first = reader.getInteger(family.firstBank, 0, 4096).value_or(0);
    int64_t size = reader.getInteger(family.layersPerBank, 1, 4096).value_or(1);
    spec.bank = layer - std::max<int64_t>(layer - first, 0) % size;
  }
  if (family.adjugateWidth)
    readAdjugate();
  if (family.latentSize)
    spec.latentSize = reader.getInteger(family.latentSize, 1, limits::kMaxWidth,
                                        "latent_size");
  bool isLatent = spec.latentSize.has_value();
  spec.norms.latentIn = readNorm(family.normLatentIn, isLatent);
  spec.norms.expert = readNorm(family.normExpert, true);
  spec.norms.latentOut = readNorm(family.normLatentOut, isLatent);
}

std::optional<NormSpec> FamilyImport::readNorm(const FamilyNorm &norm,
                                               bool isThere) {
  if (!norm.epsilon || (norm.enabled && !reader.getBoolean(norm.enabled)) ||
      !isThere)
    return std::nullopt;
  NormSpec spec;
  spec.epsilon = reader.getNumber(norm.epsilon, "norms.epsilon").value_or(0.0);
  spec.offset = norm.offset;
  spec.weightFirst = norm.weightFirst;
  return spec;
}

/// An expert and the narrow one that it shares are one.
void FamilyImport::readAdjugate() {
  AdjugateSpec adjugate;
  adjugate.numExperts =
      reader.getInteger(family.adjugateSharing, 1, limits::kMaxExperts)
          .value_or(1);
  adjugate.width =
      reader.getInteger(family.adjugateWidth, 1, limits::kMaxWidth).value_or(1);
  adjugate.factor = family.adjugateFactor;
  if (spec.numExperts % adjugate.numExperts != 0)
    reader.error(family.adjugateSharing,
                 reader.show(family.adjugateSharing) + " is " +
                     Twine(adjugate.numExperts) + ", but must divide the " +
                     Twine(spec.numExperts) + " experts (" +
                     reader.show(family.numExperts) + ")");
  spec.intermediateSize += adjugate.width;
  spec.adjugate = adjugate;
}

/// Experts that return nothing are those of another rank.
void FamilyImport::addSkips(int64_t number) {
  if (number == 0)
    return;
  std::vector<int64_t> ids(size_t(spec.numExperts));
  std::iota(ids.begin(), ids.end(), 0);
  spec.placement.emplace();
  spec.placement->localExperts = std::move(ids);
  spec.numExperts += number;
}

void FamilyImport::readEmptyExperts() {
  int64_t number =
      reader.getInteger(family.emptyExperts, 0, limits::kMaxExperts)
          .value_or(0);
  StringRef kind =
      reader.getWord(family.emptyKind, {"copy", "zero"}).value_or("copy");
  if (kind == "copy") {
    spec.numZeroExperts = number;
    return;
  }
  addSkips(number);
}

void FamilyImport::readActivation() {
  Activation kind = family.activation.value;
  if (family.activation.key) {
    SmallVector<StringRef> names;
    for (const ActivationName &entry : kActivationNames)
      names.push_back(entry.name);
    StringRef name =
        reader.getWord(family.activation.key, names).value_or("silu");
    const auto *found = llvm::find_if(kActivationNames, [&](const auto &entry) {
      return entry.name == name;
    });
    kind = family.ungated ? found->ungated : found->gated;
  }
  spec.activation = getDefaultActivation(kind);
  spec.gateUpOrder = family.gateUpOrder;
  spec.expertBias = family.expertBias;
  spec.outputBias = family.outputBias;
  bool keepsInput = false;
  for (const Key &key : family.inputFactorUnless)
    if (key)
      keepsInput |= reader.getBoolean(key);
  if (family.names.haveInputFactor)
    spec.inputFactor = keepsInput ? 1.0 : family.inputFactor;
  if (family.limit) {
    std::optional<double> limit =
        reader.getNumber(family.limit, "activation.limit");
    ActivationParameters parameters = getParameters(kind);
    if (limit && !parameters.limit.exists)
      reader.error(family.limit, reader.show(family.limit) + " needs " +
                                     (family.activation.key
                                          ? reader.show(family.activation.key)
                                          : std::string("activation")) +
                                     " = \"silu\", not \"" + stringify(kind) +
                                     "\"");
    else
      spec.activation = limitActivation(spec.activation, limit);
  }
  if (family.alpha)
    spec.activation.alpha = reader.getNumber(family.alpha, "activation.alpha");
  if (family.fixedAlpha)
    spec.activation.alpha = family.fixedAlpha;
  if (family.fixedBeta)
    spec.activation.beta = family.fixedBeta;
  if (family.gateSoftcap)
    spec.activation.beta =
        reader.getNumber(family.gateSoftcap, "activation.beta").value_or(1.0);
  if (family.upSoftcap)
    spec.activation.linearBeta =
        reader.getNumber(family.upSoftcap, "activation.linear_beta")
            .value_or(0.0);
}

void FamilyImport::readScore() {
  RoutingSpec &routing = spec.routing;
  routing.score = family.score.value;
  routing.weight = family.weight.value;
  if (family.score.key) {
    SmallVector<StringRef> names;
    for (const auto &word : family.scoreWords)
      names.push_back(word.word);
    if (auto name = reader.getWord(family.score.key, names))
      for (const auto &word : family.scoreWords)
        if (word.word == *name)
          routing.score = word.value;
  }
  if (family.weight.key) {
    SmallVector<StringRef> names;
    for (const auto &word : family.weightWords)
      names.push_back(word.word);
    if (auto name = reader.getWord(family.weight.key, names))
      for (const auto &word : family.weightWords)
        if (word.word == *name)
          routing.weight = word.value;
  }
  routing.gateBias = read(family.gateBias, "routing.gate_bias");
  if (family.hasGateHidden && reader.getBoolean(family.hasGateHidden) &&
      spec.entry == Entry::Gate)
    routing.gateHiddenSize = family.gateHiddenPerExpert * spec.numExperts;
  if (family.selectionBiasWord.empty())
    routing.selectionBias =
        read(family.selectionBias, "routing.selection_bias");
  else
    routing.selectionBias =
        reader.getWord(family.selectionBias.key,
                       {"greedy", family.selectionBiasWord}) ==
        family.selectionBiasWord;
  routing.expertScale = family.expertScale;
  if (family.logitScale)
    routing.logitScale =
        reader.getNumber(family.logitScale, "routing.logit_scale").value_or(1);
  if (family.softcap) {
    double softcap =
        reader.getNumber(family.softcap, "routing.logit_softcap").value_or(0);
    if (softcap < 0)
      reader.error(family.softcap,
                   reader.show(family.softcap) + " must not be negative");
    if (softcap > 0)
      routing.logitSoftcap = softcap;
  }
}

void FamilyImport::readSelection() {
  RoutingSpec &routing = spec.routing;
  routing.select = family.select;
  routing.weightOnInput = family.weightOnInput;
  if (family.numGroups) {
    routing.numGroups =
        reader
            .getInteger(family.numGroups, 1, limits::kMaxExperts,
                        "routing.num_groups")
            .value_or(1);
    routing.groupScore = family.groupScore;
  }
  if (family.topkGroups)
    routing.topkGroups =
        reader
            .getInteger(family.topkGroups, 1, limits::kMaxExperts,
                        "routing.topk_groups")
            .value_or(1);
  if (family.groupsIf) {
    // Greedy selection ignores groups.
    StringRef words[] = {"greedy", family.groupsIfWord};
    if (reader.getWord(family.groupsIf, words) != family.groupsIfWord)
      routing.numGroups = routing.topkGroups = 1;
  }
  if (!family.hashWord.empty() && usesHash()) {
    routing.select = Select::Hash;
    routing.selectionBias = false;
    routing.hashVocabSize =
        reader.getInteger(family.hashVocabulary, 1, limits::kMaxVocabulary,
                          "routing.hash_vocab_size");
  }
}

void FamilyImport::readWeight() {
  RoutingSpec &routing = spec.routing;
  // A softmax over the selected experts is already normalized.
  bool renormalize = read(family.renormalize, "routing.renormalize");
  if (family.keepsOnlyWeight && spec.topK == 1)
    renormalize = false;
  if (routing.weight != RouteWeight::Softmax && renormalize) {
    routing.renormalize = true;
    routing.renormalizeEpsilon = family.renormalizeEpsilon;
  }
  routing.scale = family.fixedScale;
  if (family.scale) {
    double scale =
        reader.getNumber(family.scale, "routing.scale").value_or(1.0);
    if (scale <= 0)
      reader.error(family.scale,
                   reader.show(family.scale) +
                       " must be greater than 0: with a factor of 0 or less "
                       "on all weights the experts say nothing, or the "
                       "opposite");
    routing.scale *= scale;
  }
}

void FamilyImport::readSharedExperts() {
  if (!family.hasShared)
    return;
  // More shared experts than any model has; bounds the product below.
  constexpr int64_t maxShared = 1024;
  int64_t count = 1;
  if (family.numShared)
    count = reader.getInteger(family.numShared, 0, maxShared).value_or(0);
  // A width of 0 means no shared expert.
  std::optional<int64_t> width =
      count == 0
          ? 0
          : reader.getInteger(family.sharedWidth, family.numShared ? 1 : 0,
                              limits::kMaxWidth,
                              "shared_experts.intermediate_size");
  bool averaged = false;
  if (family.combination)
    averaged = reader.getWord(family.combination, {"sum", "average"}) ==
               StringRef("average");
  if (count == 0 || width.value_or(0) == 0)
    return;
  if (count * *width > limits::kMaxWidth) {
    const Key &key = family.numShared ? family.numShared : family.sharedWidth;
    reader.error(key, reader.show(key) + " shared experts of width " +
                          Twine(*width) + " are wider than " +
                          Twine(limits::kMaxWidth) + " together");
  }
  SharedExpertsSpec shared;
  shared.intermediateSize = count * *width;
  shared.gate = family.sharedGate;
  shared.gateBias = family.sharedGateBias;
  shared.scale = family.sharedScale;
  if (averaged) {
    spec.routing.scale *= 0.5;
    shared.scale = 0.5;
  }
  if (family.sharedLimit || family.sharedUnlimited) {
    std::optional<double> limit;
    if (family.sharedLimit)
      limit = reader.getNumber(family.sharedLimit,
                               "shared_experts.activation.limit");
    ActivationSpec own = spec.activation;
    if (family.sharedLimit && !family.activation.key)
      own = getDefaultActivation(family.activation.value);
    own = limitActivation(own, limit);
    if (own.kind != spec.activation.kind || own.limit != spec.activation.limit)
      shared.activation = own;
  }
  spec.sharedExperts = shared;
}

} // namespace

void readFamily(const Family &family, KeyReader &reader, int64_t layer,
                StringRef layerWord, LayerSpec &spec) {
  FamilyImport(family, reader, layer, layerWord, spec).run();
}

} // namespace moec
