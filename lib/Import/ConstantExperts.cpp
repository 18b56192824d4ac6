//===- ConstantExperts.cpp - experts that MoNE has replaced ---------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// MoNE (arXiv:2507.00390) replaces experts by constant vectors and keeps the
// router. Its two forms are those that vLLM reads: `approximate_experts` lists
// ids by decoder layer; `compression_config.transform_config.
// expert_substitution` names the vectors too.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace moec {

namespace {

constexpr StringLiteral kIds = "approximate_experts";
constexpr StringLiteral kSubstitution = "expert_substitution";

/// The only number in a module's name, the decoder layer's; none if there are
/// several.
std::optional<int64_t> findNumber(StringRef module) {
  std::optional<int64_t> found;
  for (StringRef rest = module; !rest.empty();) {
    StringRef name;
    std::tie(name, rest) = rest.split('.');
    int64_t number = 0;
    if (name.getAsInteger(10, number))
      continue;
    if (found)
      return std::nullopt;
    found = number;
  }
  return found;
}

/// The experts of a layer in `approximate_experts`.
std::vector<int64_t> readIds(FieldReader &config, int64_t layer) {
  std::vector<int64_t> experts;
  if (const json::Value *layers = config.getObject(kIds))
    if (const json::Member *own = layers->find(std::to_string(layer)))
      for (const json::Value &element : own->value.elements)
        experts.push_back(element.getInteger().value_or(-1));
  return experts;
}

/// The experts of a target of `expert_substitution`. The vector of expert 3
/// ends in ".3.approx_value".
std::vector<int64_t> readTarget(FieldReader &target) {
  target.getOneOf("weight_layout", {"compact_retained_experts"});
  std::vector<int64_t> experts;
  const json::Value *replacements = target.getObject("replacements");
  if (!replacements)
    return experts;
  FieldReader all = target.getInner("replacements", *replacements);
  for (const json::Member &member : replacements->members) {
    const json::Value *object = all.getObject(member.name);
    if (!object)
      continue;
    FieldReader one = all.getInner(member.name, *object);
    one.getOneOf("format", {"constant-v1"});
    std::string end = "." + member.name + ".approx_value";
    if (const json::Value *tensors = one.getObject("tensors")) {
      FieldReader names = one.getInner("tensors", *tensors);
      std::optional<StringRef> name = names.getString("value");
      if (name && !name->ends_with(end))
        names.error("value", names.show("value") + " must end in \"" + end +
                                 "\"; rename the tensor");
    }
    int64_t id = -1;
    if (StringRef(member.name).getAsInteger(10, id))
      id = -1;
    experts.push_back(id);
  }
  return experts;
}

std::vector<int64_t> readSubstitution(FieldReader &config, int64_t layer) {
  std::vector<int64_t> experts;
  std::vector<FieldReader> inner = {config};
  for (StringRef name :
       {StringRef("compression_config"), StringRef("transform_config"),
        StringRef(kSubstitution)}) {
    const json::Value *object =
        inner.back().has(name) ? inner.back().getObject(name) : nullptr;
    if (!object)
      return experts;
    inner.push_back(inner.back().getInner(name, *object));
  }
  FieldReader &all = inner.back();
  all.getInteger("version", 1, 1);
  if (const json::Value *semantics = all.getObject("router_semantics")) {
    FieldReader router = all.getInner("router_semantics", *semantics);
    for (StringRef field :
         {"preserve_logical_expert_ids", "preserve_router_weights"})
      if (!router.getBoolean(field, true))
        router.error(field, router.show(field) + " must be true");
    StringRef renormalizes = "renormalize_after_substitution";
    if (router.getBoolean(renormalizes, false))
      router.error(renormalizes, router.show(renormalizes) + " must be false");
  }
  const json::Value *targets = all.getObject("targets");
  if (!targets)
    return experts;
  FieldReader ofLayers = all.getInner("targets", *targets);
  for (const json::Member &member : targets->members)
    if (findNumber(member.name) == layer)
      if (const json::Value *object = ofLayers.getObject(member.name)) {
        FieldReader target = ofLayers.getInner(member.name, *object);
        llvm::append_range(experts, readTarget(target));
      }
  return experts;
}

} // namespace

bool statesSubstitution(const json::Value &compression) {
  const json::Member *transform = compression.find("transform_config");
  return transform && compression.members.size() == 1 &&
         transform->value.members.size() == 1 &&
         transform->value.find(kSubstitution);
}

void readConstantExperts(FieldReader &config, FieldReader *outer, int64_t layer,
                         LayerSpec &spec) {
  for (FieldReader *reader : {outer, &config}) {
    if (!reader || !spec.constantExperts.empty())
      continue;
    StringRef field = kIds;
    std::vector<int64_t> experts = readIds(*reader, layer);
    if (experts.empty()) {
      experts = readSubstitution(*reader, layer);
      field = "compression_config";
    }
    if (experts.empty())
      continue;
    llvm::sort(experts);
    bool areIds =
        experts.front() >= 0 && experts.back() < spec.numExperts &&
        std::adjacent_find(experts.begin(), experts.end()) == experts.end();
    std::string shown =
        reader->show(field) + " of layer " + std::to_string(layer);
    if (!areIds || int64_t(experts.size()) >= spec.numExperts)
      return reader->error(
          field, shown + " must list different experts below " +
                     std::to_string(spec.numExperts) + ", and not all of them");
    if (spec.expertBias || spec.routing.weightOnInput || spec.adjugate)
      return reader->error(
          field, shown + " is not supported for model_type \"" +
                     spec.modelType +
                     "\", whose experts have a bias, take their weight with "
                     "the input, or share an expert");
    spec.expertBias = true;
    spec.remarks.push_back(shown + " makes " + std::to_string(experts.size()) +
                           " experts constant: their vectors are biases of "
                           "'experts.w2', their matrices zeros");
    spec.constantExperts = std::move(experts);
  }
}

} // namespace moec
