//===- GgufMetadata.cpp - GGUF metadata against a layer -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sources: gguf/constants.py of ggml's Python package; llama-hparams.h and
// llama-graph.cpp of llama.cpp for the meaning of values.
//
//===----------------------------------------------------------------------===//

#include "moec/Import/GgufMetadata.h"

#include "moec/Support/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace llvm;

namespace moec {

namespace {

/// Values of `<architecture>.expert_gating_func`.
enum Gating : int {
  Unset = 0,
  SoftmaxOfAll = 1,
  Sigmoid = 2,
  SoftmaxOfChosen = 3,
  SqrtSoftplus = 4,
};
constexpr StringLiteral kGatings[] = {"unset", "softmax", "sigmoid",
                                      "softmax of the chosen", "sqrtsoftplus"};

/// A metadata entry of the file.
struct MetadataValue {
  std::string key, text;
  double number = 0;
};

class Comparison {
public:
  Comparison(const LayerSpec &spec,
             const std::map<std::string, std::string> &metadata,
             std::optional<int64_t> layer)
      : spec(spec), metadata(metadata), layer(layer) {
    if (auto it = metadata.find("general.architecture"); it != metadata.end())
      architecture = it->second;
  }

  std::optional<std::string> run() {
    checkSizes();
    checkSharedExperts();
    // Ids and their weights come from the caller.
    if (spec.entry != Entry::Ids)
      checkRouting();
    return std::move(message);
  }

private:
  /// The value of `<architecture>.<name>` for the layer.
  std::optional<MetadataValue> find(StringRef name) const {
    MetadataValue entry;
    entry.key = architecture + "." + name.str();
    auto it = metadata.find(entry.key);
    if (it == metadata.end())
      return std::nullopt;
    StringRef text = it->second;
    if (text.consume_front("[") && text.consume_back("]")) {
      SmallVector<StringRef> values;
      text.split(values, ',');
      if (!layer || *layer >= int64_t(values.size()))
        return std::nullopt;
      text = values[size_t(*layer)];
    }
    // An array of strings or of a vocabulary has no text.
    if (text.empty())
      return std::nullopt;
    entry.text = text.str();
    if (text == "true" || text == "false") {
      entry.number = text == "true";
    } else if (text.getAsDouble(entry.number)) {
      entry.number = std::nan("");
      entry.text = "no number";
    }
    return entry;
  }

  /// Fails unless the value is one of `accepted`. `says` is the text for the
  /// description's value.
  void check(const std::optional<MetadataValue> &entry,
             ArrayRef<double> accepted, const Twine &says,
             StringRef meaning = "") {
    if (!entry || message)
      return;
    // The file stores numbers as f32.
    constexpr double tolerance = 1e-6;
    if (any_of(accepted, [&](double value) {
          return std::abs(entry->number - value) <=
                 tolerance * std::max(1.0, std::abs(value));
        }))
      return;
    message = "key " + quote(entry->key) + " is " + entry->text +
              (meaning.empty() ? "" : (" (" + meaning + ")").str()) +
              (layer ? " in layer " + std::to_string(*layer) : "") +
              ", but the description says " + says.str() +
              "; correct the one that is wrong";
  }
  void check(StringRef name, StringRef field, int64_t value) {
    check(find(name), double(value), "'" + field + "': " + Twine(value));
  }

  static StringRef says(bool value) { return value ? "true" : "false"; }

  void checkSizes() {
    check("embedding_length", "hidden_size", spec.hiddenSize);
    check("expert_count", "num_experts", spec.numExperts);
    // 0 means unset, here and below.
    int64_t width =
        spec.intermediateSize - (spec.adjugate ? spec.adjugate->width : 0);
    check(find("expert_feed_forward_length"), {double(width), 0.0},
          "'intermediate_size': " + Twine(width));
    for (StringRef name : {"moe_latent_size", "expert_latent_length"})
      check(find(name), double(spec.latentSize.value_or(0)),
            spec.latentSize ? "'latent_size': " + Twine(*spec.latentSize)
                            : "nothing of 'latent_size'");
    // The family states the factor of shared experts, not the file.
    if (spec.adjugate)
      check(find("expert_group_scale"), spec.adjugate->factor,
            "that the experts of a group are multiplied by " +
                std::string(formatv("{0:g}", spec.adjugate->factor)));
  }

  void checkSharedExperts() {
    std::optional<MetadataValue> count = find("expert_shared_count");
    std::optional<MetadataValue> width =
        find("expert_shared_feed_forward_length");
    if (!spec.sharedExperts) {
      check(count, 0.0, "nothing of 'shared_experts'");
      check(width, 0.0, "nothing of 'shared_experts'");
      return;
    }
    // The description has all shared experts as one.
    auto size = double(spec.sharedExperts->intermediateSize);
    SmallVector<double> widths = {size, 0.0};
    if (count && count->number >= 1)
      widths.push_back(size / count->number);
    else
      check(count, 1.0, "that there are 'shared_experts'");
    check(width, widths,
          "'shared_experts.intermediate_size': " +
              Twine(spec.sharedExperts->intermediateSize));
  }

  void checkRouting() {
    const RoutingSpec &routing = spec.routing;
    check("expert_used_count", "top_k", spec.topK);
    SmallVector<double> scales = {routing.scale};
    if (routing.scale == 1.0)
      scales.push_back(0.0);
    check(find("expert_weights_scale"), scales,
          "'routing.scale': " + std::string(formatv("{0:g}", routing.scale)));
    checkScore();
    checkGroups();
  }

  void checkScore() {
    const RoutingSpec &routing = spec.routing;
    bool isSparseMixer = routing.select == Select::SparseMixer;
    bool isSoftmaxOfChosen = routing.weight == RouteWeight::Softmax;
    SmallVector<double> accepted = {Unset};
    if (isSparseMixer || routing.score == Score::Softmax || isSoftmaxOfChosen)
      accepted.push_back(SoftmaxOfAll);
    if (isSparseMixer || isSoftmaxOfChosen ||
        (routing.score == Score::Softmax && routing.renormalize))
      accepted.push_back(SoftmaxOfChosen);
    if (routing.score == Score::Sigmoid ||
        routing.weight == RouteWeight::Sigmoid)
      accepted.push_back(Sigmoid);
    if (routing.score == Score::SqrtSoftplus)
      accepted.push_back(SqrtSoftplus);
    std::optional<MetadataValue> gating = find("expert_gating_func");
    StringRef meaning;
    for (size_t i = 0; gating && i < std::size(kGatings); ++i)
      if (gating->number == double(i))
        meaning = kGatings[i];
    check(gating, accepted,
          "'routing.score': \"" + stringify(routing.score) +
              "\", 'routing.weight': \"" + stringify(routing.weight) +
              "\", 'routing.renormalize': " + says(routing.renormalize),
          meaning);

    // Softmax weights over the selected experts always have the sum 1.
    if (isSparseMixer ||
        (isSoftmaxOfChosen && gating && gating->number == SoftmaxOfChosen))
      return;
    bool isNormalized = routing.renormalize || isSoftmaxOfChosen;
    check(find("expert_weights_norm"), double(isNormalized),
          "'routing.renormalize': " + says(routing.renormalize));
  }

  /// Selecting all groups equals no grouping.
  void checkGroups() {
    const RoutingSpec &routing = spec.routing;
    // No metadata key states it.
    if (routing.select == Select::PerGroup)
      return;
    std::optional<MetadataValue> count = find("expert_group_count");
    std::optional<MetadataValue> used = find("expert_group_used_count");
    bool isGrouped = routing.topkGroups < routing.numGroups;
    bool isGroupedThere =
        count && count->number > 1 && (!used || used->number < count->number);
    if (!isGrouped && !isGroupedThere)
      return;
    check("expert_group_count", "routing.num_groups", routing.numGroups);
    check("expert_group_used_count", "routing.topk_groups", routing.topkGroups);
  }

  const LayerSpec &spec;
  const std::map<std::string, std::string> &metadata;
  std::optional<int64_t> layer;
  std::string architecture;
  std::optional<std::string> message;
};

} // namespace

std::optional<std::string>
findContradiction(const LayerSpec &spec,
                  const std::map<std::string, std::string> &metadata,
                  std::optional<int64_t> layer) {
  return Comparison(spec, metadata, layer).run();
}

} // namespace moec
