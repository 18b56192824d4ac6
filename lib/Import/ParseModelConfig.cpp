//===- ParseModelConfig.cpp - a model's config.json -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What all families share: finding the family, dtype, quantization, and the
// fields that a family does not read. Fields that describe no MoE layer are not
// looked at; fields that do, in any family, must have a value that changes
// nothing where the family's function has not read them.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace moec {

namespace {

/// A field that describes a MoE layer in some family, and the value with which
/// it says nothing in a family that does not read it.
struct ForeignField {
  StringLiteral name;
  enum Neutral {
    Nothing,    ///< null, false, 0, or empty
    One,        ///< or 1
    NumExperts, ///< or the number of experts that was read
    TopK,       ///< or the experts per token that were read
  } neutral = Nothing;
};

constexpr ForeignField kForeignFields[] = {
    {"ep_size", ForeignField::One},
    {"expert_bias"},
    {"experts_per_token", ForeignField::TopK},
    {"mlp_bias"},
    {"moe_k", ForeignField::TopK},
    {"moe_latent_size"},
    {"moe_num_experts", ForeignField::NumExperts},
    {"moe_num_shared_experts"},
    {"moe_shared_expert_intermediate_size"},
    {"n_group", ForeignField::One},
    {"n_routed_experts", ForeignField::NumExperts},
    {"n_shared_experts"},
    {"norm_topk_prob"},
    {"num_expert_group", ForeignField::One},
    {"num_experts", ForeignField::NumExperts},
    {"num_experts_per_tok", ForeignField::TopK},
    {"num_hash_layers"},
    {"num_local_experts", ForeignField::NumExperts},
    {"num_shared_experts"},
    {"routed_scaling_factor", ForeignField::One},
    {"scoring_func"},
    {"shared_expert_intermediate_size"},
    {"shared_intermediate_size"},
    {"swiglu_alpha"},
    {"swiglu_limit"},
    {"topk_group", ForeignField::One},
    {"topk_method"},
    {"use_routing_bias"},
    {"zero_expert_num"},
    {"zero_expert_type"},
};

bool isNeutral(const json::Value &value, ForeignField::Neutral neutral,
               const LayerSpec &spec) {
  using Kind = json::Value::Kind;
  if (value.kind == Kind::Null ||
      (value.kind == Kind::Boolean && !value.boolean) ||
      (value.kind != Kind::Boolean && value.kind != Kind::Number &&
       value.text.empty() && value.elements.empty() && value.members.empty()))
    return true;
  std::optional<double> number = value.getDouble();
  if (!number)
    return false;
  return *number == 0 || (neutral == ForeignField::One && *number == 1) ||
         (neutral == ForeignField::NumExperts && *number == spec.numExperts) ||
         (neutral == ForeignField::TopK && *number == spec.topK);
}

void refuseForeignFields(FieldReader &config, const LayerSpec &spec) {
  for (const ForeignField &field : kForeignFields) {
    if (config.isKnown(field.name))
      continue;
    const json::Value *value = config.get(field.name);
    if (value && !isNeutral(*value, field.neutral, spec))
      config.error(field.name, config.show(field.name) + " = " +
                                   describeValue(*value) +
                                   " is not supported for model_type \"" +
                                   spec.modelType + "\"");
  }
}

/// The field `torch_dtype`, lately called `dtype`; none when absent.
std::optional<DType> readDType(FieldReader &config) {
  std::optional<DType> result;
  for (StringRef name : {"torch_dtype", "dtype"}) {
    if (!config.has(name))
      continue;
    StringRef text = config.getOneOf(name, {"bfloat16", "float16", "float32"});
    DType dtype = text == "bfloat16"  ? DType::BF16
                  : text == "float16" ? DType::F16
                                      : DType::F32;
    if (result && *result != dtype)
      config.error(name, config.show(name) + " and " +
                             config.show("torch_dtype") +
                             " name different types");
    result = dtype;
  }
  return result;
}

/// A symbol name for the layer of a config file: the file's name, which for
/// a checkpoint's own config.json says nothing.
std::string nameLayer(StringRef fileName, StringRef modelType) {
  std::string name = sys::path::stem(fileName).str();
  constexpr size_t maxLength = 200;
  if (name.empty() || name == "config" || name.size() > maxLength)
    return modelType.str();
  for (char &c : name)
    if (!isAlnum(c) && c != '_' && c != '.' && c != '-')
      c = '_';
  return name;
}

const ModelFamily *findFamily(FieldReader &config) {
  std::string known = llvm::join(getKnownModelTypes(), ", ");
  if (!config.has("model_type")) {
    config.error("model_type",
                 "neither a spec ('moec_spec' is missing) nor a model's "
                 "configuration ('model_type' is missing); the known model "
                 "types are " +
                     known);
    return nullptr;
  }
  std::optional<StringRef> modelType = config.getString("model_type");
  if (!modelType)
    return nullptr;
  const ModelFamily *family =
      llvm::find_if(getModelFamilies(), [&](const ModelFamily &f) {
        return f.modelType == *modelType;
      });
  if (family != getModelFamilies().end())
    return family;
  config.error("model_type",
               "unknown model_type " +
                   describeValue(*config.get("model_type")) +
                   "; the known ones are " + known +
                   ". Any layer can be written as a spec (docs/layers.md)");
  return nullptr;
}

/// Reads what does not depend on the family, from the object that has the
/// fields of the layer.
void readCommon(FieldReader &config, LayerSpec &spec) {
  spec.hiddenSize = config.getInteger("hidden_size", 1, limits::kMaxWidth);
  if (std::optional<DType> dtype = readDType(config))
    spec.dtype = *dtype;
  if (auto quantization = readQuantizationConfig(config))
    spec.quantization = quantization;
}

} // namespace

std::vector<StringRef> getKnownModelTypes() {
  std::vector<StringRef> names;
  for (const ModelFamily &family : getModelFamilies())
    names.push_back(family.modelType);
  return names;
}

FailureOr<LayerSpec> parseModelConfig(const SourceText &text,
                                      const json::Value &document,
                                      const SpecOverrides &overrides,
                                      Diagnostics &diags) {
  unsigned numErrors = diags.getNumErrors();
  if (!document.isObject()) {
    diags.error(text, document.range,
                "a model's configuration must be an object, not " +
                    describeValue(document));
    return failure();
  }
  ImportContext context{text, diags, {}};
  FieldReader outer(context, document, /*path=*/"",
                    FieldReader::Null::IsAbsent);
  const ModelFamily *family = findFamily(outer);
  if (!family)
    return failure();

  LayerSpec spec;
  spec.name = nameLayer(text.getName(), family->modelType);
  spec.modelType = family->modelType.str();
  spec.dtype = DType::BF16;
  // Models of several modalities keep the language model's fields in an object
  // of their own; dtype and quantization may stand at either level.
  std::optional<FieldReader> inner;
  if (family->modelType == "llama4") {
    if (const json::Value *object = outer.getObject("text_config"))
      inner.emplace(context, *object, "text_config.",
                    FieldReader::Null::IsAbsent);
  }
  if (inner) {
    if (std::optional<DType> dtype = readDType(outer))
      spec.dtype = *dtype;
    spec.quantization = readQuantizationConfig(outer);
  }
  FieldReader &config = inner ? *inner : outer;
  readCommon(config, spec);
  family->read(config, spec);
  spec.routing.nonfinite = getDefaultNonFinite(spec.routing);
  refuseForeignFields(config, spec);
  return finishImport(std::move(spec), overrides, context, numErrors);
}

} // namespace moec
