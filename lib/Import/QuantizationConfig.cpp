//===- QuantizationConfig.cpp - how a model's weights are stored -*- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Quantization changes every number of a layer, so nothing here is lenient: a
// method, a field or a value that is not known is an error, and so is a
// statement about quantization that stands elsewhere than where it is read.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "ExcludedModules.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

/// Fields that list modules which stay as they are.
constexpr StringLiteral kExceptions[] = {
    "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules",
    "llm_int8_skip_modules"};

/// Reads the lists of exceptions; an entry that is not understood, and a list
/// that names a part of a product's matrices, are errors.
ExcludedModules readExceptions(FieldReader &reader, const Family &family,
                               const LayerSpec &spec) {
  ExcludedModules excluded(family, spec);
  StringRef lastField;
  for (StringRef field : kExceptions) {
    const json::Value *list = reader.getList(field);
    if (!list)
      continue;
    lastField = field;
    for (const json::Value &element : list->elements) {
      bool understood = element.kind == json::Value::Kind::String &&
                        excluded.exclude(element.text);
      if (!understood)
        reader.getContext().diags.error(
            reader.getContext().text, element.range,
            reader.show(field) + " contains " + describeValue(element) +
                ", which is no name of a module that can be understood; write "
                "names, names with *, or simple expressions as "
                "\"re:.*experts.*\"");
    }
  }
  for (StringRef weight : spec.getExpertWeights())
    if (excluded.getCoverage(weight) == Coverage::Some) {
      reader.error(lastField,
                   reader.show(lastField) + " contains \"" +
                       excluded.getFirstHit(weight) +
                       "\", which leaves some matrices of this layer's '" +
                       weight +
                       "' as they are; products that are quantized in part "
                       "are not supported");
      break;
    }
  return excluded;
}

/// `quantization` for the products that are not excluded.
void setQuantization(const std::optional<QuantizationSpec> &quantization,
                     const ExcludedModules &excluded, LayerSpec &spec) {
  auto choose = [&](StringRef experts) {
    ExpertQuantization result(quantization);
    if (excluded.getCoverage((experts + ".w13").str()) == Coverage::All)
      result.w13.reset();
    if (excluded.getCoverage((experts + ".w2").str()) == Coverage::All)
      result.w2.reset();
    return result;
  };
  spec.quantization = choose("experts");
  if (spec.sharedExperts)
    spec.sharedExperts->quantization = choose("shared_experts");
}

void checkBlockSize(FieldReader &reader) {
  const json::Value *list = reader.getList("weight_block_size");
  bool supported = list && list->elements.size() == 2 &&
                   llvm::all_of(list->elements, [](const json::Value &value) {
                     return value.getInteger() == int64_t(128);
                   });
  if (!supported)
    reader.error("weight_block_size",
                 reader.show("weight_block_size") +
                     " must be [128, 128], or absent for one scale of a "
                     "tensor; other scales of fp8 weights are not supported");
}

/// Fields that the method does not know would change it.
void refuseOtherFields(FieldReader &reader, StringRef method) {
  for (const json::Member &member : reader.getObjectValue().members)
    if (!reader.isKnown(member.name) && !member.value.isNull())
      reader.getContext().diags.error(
          reader.getContext().text, member.nameRange,
          reader.show(member.name) + " is not supported with quant_method \"" +
              method + "\"");
}

constexpr StringLiteral kSupported =
    "\"fp8\" of tensors and of blocks of 128 x 128, \"compressed-tensors\" of "
    "float-quantized 8 bits and \"mxfp4\" are";

QuantizationSpec getMeaning(StringRef name) {
  for (const QuantizationName &entry : getQuantizationNames())
    if (entry.name == name)
      return entry.meaning;
  llvm_unreachable("asked for with a name of the table");
}

/// e4m3 with f32 scales.
OperandQuantization makeFp8(Granularity granularity, bool isStatic = false) {
  OperandQuantization operand;
  operand.granularity = granularity;
  operand.isStatic = isStatic;
  return operand;
}

QuantizationSpec readFp8(FieldReader &reader) {
  reader.getOneOf("fmt", {"e4m3", "float8_e4m3fn"});
  if (reader.has("weight_block_size")) {
    reader.getOneOf("activation_scheme", {"dynamic"});
    checkBlockSize(reader);
    return getMeaning("fp8_block128");
  }
  // What the cache of keys holds.
  reader.markKnown("kv_cache_scheme");
  StringRef scheme =
      reader.getOneOf("activation_scheme", {"dynamic", "static"});
  return {makeFp8(Granularity::Tensor),
          makeFp8(Granularity::Tensor, /*isStatic=*/scheme == "static")};
}

/// The objects `weights` and `input_activations` of a group of
/// compressed-tensors, whose names of granularities are `strategies`.
OperandQuantization readCompressedOperand(FieldReader &outer, StringRef name,
                                          const json::Value &object,
                                          ArrayRef<StringRef> strategies,
                                          bool isActivation) {
  FieldReader reader(outer.getContext(), object, outer.getPath(name) + ".",
                     FieldReader::Null::IsAbsent);
  auto require = [&](StringRef field, bool isRight, const Twine &expected) {
    if (const json::Value *value = reader.get(field))
      if (!isRight)
        reader.error(field, reader.show(field) + " = " + describeValue(*value) +
                                " is not supported; " + expected + " is");
  };
  auto isInteger = [&](StringRef field, int64_t number) {
    const json::Value *value = reader.get(field);
    return value && value->getInteger() == number;
  };
  if (!reader.has("num_bits"))
    reader.reportMissing("num_bits", "8");
  require("num_bits", isInteger("num_bits", 8), "8");
  reader.getOneOf("type", {"float"});
  bool isDynamic = false;
  if (isActivation)
    isDynamic = reader.getBoolean("dynamic", false);
  else if (reader.getBoolean("dynamic", false))
    reader.error("dynamic", reader.show("dynamic") +
                                " weights are not supported; weights are "
                                "stored quantized");
  if (!reader.getBoolean("symmetric", true))
    reader.error("symmetric", reader.show("symmetric") +
                                  " = false is not supported; true is");
  OperandQuantization operand =
      makeFp8(*symbolize<Granularity>(reader.getOneOf("strategy", strategies)),
              /*isStatic=*/isActivation && !isDynamic);
  if (operand.isStatic && operand.granularity != Granularity::Tensor)
    reader.error("dynamic", reader.show("dynamic") +
                                " must be true with strategy \"token\"; "
                                "scales that are stored belong to strategy "
                                "\"tensor\"");
  // How scales were found says nothing of what they are.
  for (StringRef field : {"observer", "observer_kwargs"})
    reader.markKnown(field);
  refuseOtherFields(reader, "compressed-tensors");
  return operand;
}

std::optional<QuantizationSpec> readCompressed(FieldReader &reader) {
  // Floats of 8 bits are stored as themselves by either.
  constexpr StringRef formats[] = {"float-quantized", "naive-quantized"};
  reader.getOneOf("format", formats);
  reader.getOneOf("quantization_status", {"compressed", "frozen"});
  // What the cache of keys holds, and what wrote the file.
  for (StringRef field :
       {"kv_cache_scheme", "version", "global_compression_ratio"})
    reader.markKnown(field);
  for (StringRef field : {"sparsity_config", "transform_config"})
    if (const json::Value *object = reader.getObject(field))
      if (!object->members.empty())
        reader.error(field,
                     reader.show(field) + " is not supported; leave it empty");
  const json::Value *groups = reader.getObject("config_groups");
  refuseOtherFields(reader, "compressed-tensors");
  if (!groups || groups->members.size() != 1) {
    reader.error("config_groups",
                 reader.show("config_groups") +
                     " must hold one group, whose scheme is that of all "
                     "linear layers; layers of several schemes are not "
                     "supported");
    return std::nullopt;
  }
  const json::Member &member = groups->members.front();
  FieldReader outer(reader.getContext(), *groups,
                    reader.getPath("config_groups") + ".",
                    FieldReader::Null::IsAbsent);
  const json::Value *object = outer.getObject(member.name);
  if (!object)
    return std::nullopt;
  FieldReader group(reader.getContext(), *object,
                    outer.getPath(member.name) + ".",
                    FieldReader::Null::IsAbsent);
  const json::Value *targets = group.getList("targets");
  if (!targets || targets->elements.size() != 1 ||
      targets->elements.front().text != "Linear")
    group.error("targets", group.show("targets") +
                               " must be [\"Linear\"]; write what stays as it "
                               "is in " +
                               reader.show("ignore"));
  group.getOneOf("format", formats);
  if (const json::Value *value = group.get("output_activations"))
    group.error("output_activations", group.show("output_activations") + " = " +
                                          describeValue(*value) +
                                          " is not supported; null is");
  const json::Value *weights = group.getObject("weights");
  if (!weights) {
    group.reportMissing("weights", "an object");
    return std::nullopt;
  }
  QuantizationSpec result;
  result.weight =
      readCompressedOperand(group, "weights", *weights, {"tensor", "channel"},
                            /*isActivation=*/false);
  if (const json::Value *inputs = group.getObject("input_activations"))
    result.activation = readCompressedOperand(group, "input_activations",
                                              *inputs, {"tensor", "token"},
                                              /*isActivation=*/true);
  refuseOtherFields(group, "compressed-tensors");
  return result;
}

std::optional<QuantizationSpec> readMethod(FieldReader &reader,
                                           const ExcludedModules &excluded) {
  std::optional<StringRef> method = reader.getString("quant_method");
  if (!method || excluded.coversAll())
    return std::nullopt;
  for (StringRef field : {"quantization.weight", "quantization.activation"})
    reader.getContext().origins[field] = {reader.show("quant_method"),
                                          reader.get("quant_method")->range};
  if (method == "fp8") {
    QuantizationSpec result = readFp8(reader);
    refuseOtherFields(reader, *method);
    return result;
  }
  if (method == "compressed-tensors")
    return readCompressed(reader);
  if (method == "mxfp4") {
    refuseOtherFields(reader, *method);
    return getMeaning("mxfp4");
  }
  reader.error("quant_method", "quantization " +
                                   describeValue(*reader.get("quant_method")) +
                                   " is not supported; " + kSupported);
  return std::nullopt;
}

/// Keys that state a quantization in other tools' words.
void refuseOtherStatements(FieldReader &config, DType dtype,
                           IgnoredFields &ignored) {
  for (StringRef name :
       {"compression_config", "quantization", "quant_config", "quant_method",
        "load_in_4bit", "load_in_8bit", "expert_dtype", "experts_dtype",
        "moe_dtype", "weight_dtype"}) {
    const json::Value *value = config.get(name);
    bool isOff = !value ||
                 (value->kind == json::Value::Kind::Boolean && !value->boolean);
    // The layer's own dtype is no quantization.
    bool isPlain = value && value->kind == json::Value::Kind::String &&
                   parseModelDType(value->text) == dtype;
    if (isOff || isPlain || ignored.take(config.getPath(name)))
      continue;
    config.error(name, config.show(name) + " = " + describeValue(*value) +
                           " states a quantization that is not supported; of "
                           "'quantization_config' " +
                           kSupported);
  }
}

/// The hf_quant_config.json that ModelOpt writes beside a config.json.
void readModelOpt(const SourceText &text, ImportContext &context,
                  const Family &family, const LayerSpec &spec) {
  FailureOr<json::Value> document = json::parse(text, context.diags);
  if (failed(document))
    return;
  if (!document->isObject())
    return context.diags.error(text, document->range,
                               "must be an object, not " +
                                   describeValue(*document));
  ImportContext own{text, context.diags, {}};
  FieldReader outer(own, *document, "", FieldReader::Null::IsAbsent);
  const json::Value *object = outer.getObject("quantization");
  if (!object)
    return;
  FieldReader reader(own, *object, "quantization.",
                     FieldReader::Null::IsAbsent);
  const json::Value *algorithm = reader.get("quant_algo");
  if (!algorithm || readExceptions(reader, family, spec).coversAll())
    return;
  reader.error("quant_algo", "quantization " + describeValue(*algorithm) +
                                 " of ModelOpt is not supported; " +
                                 kSupported);
}

} // namespace

void readQuantization(FieldReader &config, FieldReader *outer,
                      const Family &family, const SpecOverrides &overrides,
                      IgnoredFields &ignored, LayerSpec &spec) {
  StringRef field = "quantization_config";
  FieldReader *stated = nullptr;
  for (FieldReader *reader : {outer, &config}) {
    if (!reader)
      continue;
    refuseOtherStatements(*reader, spec.dtype, ignored);
    const json::Value *object = reader->get(field);
    if (!object || ignored.take(reader->getPath(field)))
      continue;
    if (stated)
      reader->error(field, reader->show(field) +
                               " is stated twice, here and "
                               "as " +
                               stated->show(field) + "; keep one");
    stated = reader;
    if (!reader->getObject(field))
      continue;
    FieldReader inner(reader->getContext(), *object,
                      reader->getPath(field) + ".",
                      FieldReader::Null::IsAbsent);
    ExcludedModules excluded = readExceptions(inner, family, spec);
    setQuantization(readMethod(inner, excluded), excluded, spec);
  }
  if (overrides.quantConfig && !stated)
    readModelOpt(*overrides.quantConfig, config.getContext(), family, spec);
}

} // namespace moec
