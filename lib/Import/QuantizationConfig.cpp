//===- QuantizationConfig.cpp - quantization in a model's config ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Quantization changes all values of a layer, so nothing is ignored here.
// Unknown methods, fields and values are errors, and so are statements about
// quantization in other places.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "ExcludedModules.h"
#include "QuantizationMethods.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

void refuseOtherFields(FieldReader &reader, StringRef method,
                       IgnoredFields &ignored) {
  for (const json::Member &member : reader.getObjectValue().members) {
    std::string path = reader.getPath(member.name);
    if (reader.isKnown(member.name) || member.value.isNull() ||
        ignored.take(path))
      continue;
    reader.getContext().diags.error(
        reader.getContext().text, member.nameRange,
        reader.show(member.name) + " is not supported with quant_method \"" +
            method +
            "\"; if it says nothing of the experts, read past it with "
            "--ignore-field=" +
            path);
  }
}

void refuseValue(FieldReader &reader, StringRef field, const Twine &expected) {
  const json::Value *value = reader.get(field);
  reader.error(field, reader.show(field) +
                          (value ? " = " + describeValue(*value)
                                 : std::string(", which is absent,")) +
                          " is not supported; " + expected + " is");
}

ScaleType getScaleType(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return ScaleType::F32;
  case DType::BF16:
    return ScaleType::BF16;
  case DType::F16:
    return ScaleType::F16;
  }
  llvm_unreachable("every dtype is listed");
}

OperandQuantization makeFp8(Granularity granularity, bool isStatic) {
  OperandQuantization operand;
  operand.granularity = granularity;
  operand.isStatic = isStatic;
  return operand;
}

QuantizationSpec getMeaning(StringRef name, Packing packing) {
  for (const QuantizationName &entry : getQuantizationNames())
    if (entry.name == name) {
      QuantizationSpec meaning = entry.meaning;
      meaning.packing = packing;
      return meaning;
    }
  llvm_unreachable("asked for with a name of the table");
}

namespace {

/// Fields that list modules excluded from quantization.
constexpr StringLiteral kExceptions[] = {
    "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules",
    "llm_int8_skip_modules"};

/// Reads the lists of excluded modules. An entry that cannot be translated is
/// an error, and so is a list that excludes only some matrices of a gemm.
ExcludedModules readExceptions(FieldReader &reader, const Family &family,
                               const LayerSpec &spec) {
  const json::Member *method = reader.getObjectValue().find("quant_method");
  ExcludedModules excluded(family, spec,
                           method && method->value.text == "compressed-tensors"
                               ? ModuleMatching::CompressedTensors
                               : ModuleMatching::Components);
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

/// Sets `quantization` on the gemms that are not excluded.
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

constexpr StringLiteral kSupported =
    "\"fp8\" of tensors and of blocks of 128 x 128, \"compressed-tensors\", "
    "\"modelopt\", \"gptq\", \"awq\", \"bitsandbytes\" and \"mxfp4\" are";

QuantizationSpec readFp8(FieldReader &reader) {
  reader.getOneOf("fmt", {"e4m3", "float8_e4m3fn"});
  if (reader.has("weight_block_size")) {
    reader.getOneOf("activation_scheme", {"dynamic"});
    checkBlockSize(reader);
    QuantizationSpec result = getMeaning("fp8_block128");
    // Weight scales are used as stored; this affects activation scales.
    if (reader.has("scale_fmt")) {
      reader.getOneOf("scale_fmt", {"ue8m0"});
      result.activation->scale = ScaleType::E8M0;
    }
    return result;
  }
  // Quantization of the KV cache.
  reader.markKnown("kv_cache_scheme");
  StringRef scheme =
      reader.getOneOf("activation_scheme", {"dynamic", "static"});
  return {makeFp8(Granularity::Tensor),
          makeFp8(Granularity::Tensor, /*isStatic=*/scheme == "static")};
}

/// `excluded` has the exclusions of the reader's object; a nested object has
/// its own lists.
std::optional<QuantizationSpec>
readMethod(FieldReader &reader, const Family &family, const LayerSpec &spec,
           QuantizationContext &context,
           std::optional<ExcludedModules> &excluded) {
  std::optional<StringRef> method = reader.getString("quant_method");
  if (!method || excluded->coversAll())
    return std::nullopt;
  for (StringRef field : {"quantization.weight", "quantization.activation"})
    reader.getContext().origins[field] = {reader.show("quant_method"),
                                          reader.get("quant_method")->range};
  if (method == "fp8") {
    QuantizationSpec result = readFp8(reader);
    refuseOtherFields(reader, *method, context.ignored);
    return result;
  }
  if (method == "compressed-tensors")
    return readCompressedTensors(reader, context);
  if (method == "gptq")
    return readGptq(reader, context);
  if (method == "awq")
    return readAwq(reader, context);
  if (method == "bitsandbytes")
    return readBitsAndBytes(reader, context);
  if (method == "modelopt" || method == "modelopt_fp4") {
    const json::Value *object = reader.getObject("quantization");
    if (!object)
      return readModelOpt(reader, context);
    reader.markKnown("producer");
    refuseOtherFields(reader, *method, context.ignored);
    FieldReader inner(reader.getContext(), *object,
                      reader.getPath("quantization") + ".",
                      FieldReader::Null::IsAbsent);
    excluded.emplace(readExceptions(inner, family, spec));
    if (excluded->coversAll())
      return std::nullopt;
    return readModelOpt(inner, context);
  }
  if (method == "mxfp4") {
    refuseOtherFields(reader, *method, context.ignored);
    return getMeaning("mxfp4");
  }
  reader.error("quant_method", "quantization " +
                                   describeValue(*reader.get("quant_method")) +
                                   " is not supported; " + kSupported);
  return std::nullopt;
}

/// Refuses keys with which other tools state a quantization.
void refuseOtherStatements(FieldReader &config, DType dtype,
                           IgnoredFields &ignored) {
  for (StringRef name :
       {"compression_config", "quantization", "quant_config", "quant_method",
        "load_in_4bit", "load_in_8bit", "expert_dtype", "experts_dtype",
        "moe_dtype", "weight_dtype"}) {
    const json::Value *value = config.get(name);
    bool isOff = !value ||
                 (value->kind == json::Value::Kind::Boolean && !value->boolean);
    // The layer's own dtype is not a quantization.
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

/// Reads the hf_quant_config.json that ModelOpt writes beside a config.json.
void readQuantConfigFile(const SourceText &text, Diagnostics &diags,
                         const Family &family, QuantizationContext &context,
                         LayerSpec &spec) {
  FailureOr<json::Value> document = json::parse(text, diags);
  if (failed(document))
    return;
  if (!document->isObject()) {
    diags.error(text, document->range,
                "must be an object, not " + describeValue(*document));
    return;
  }
  ImportContext own{text, diags, {}};
  FieldReader outer(own, *document, "", FieldReader::Null::IsAbsent);
  const json::Value *object = outer.getObject("quantization");
  if (!object)
    return;
  FieldReader reader(own, *object, "quantization.",
                     FieldReader::Null::IsAbsent);
  // Null means that only the KV cache is quantized.
  if (!reader.has("quant_algo"))
    return;
  ExcludedModules excluded = readExceptions(reader, family, spec);
  std::optional<QuantizationSpec> result;
  if (!excluded.coversAll())
    result = readModelOpt(reader, context);
  setQuantization(result, excluded, spec);
}

} // namespace

void readQuantization(FieldReader &config, FieldReader *outer,
                      const Family &family, const SpecOverrides &overrides,
                      IgnoredFields &ignored, LayerSpec &spec) {
  QuantizationContext context{spec.dtype, ignored};
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
    std::optional<ExcludedModules> excluded;
    excluded.emplace(readExceptions(inner, family, spec));
    std::optional<QuantizationSpec> result =
        readMethod(inner, family, spec, context, excluded);
    setQuantization(result, *excluded, spec);
    spec.expertColumns = context.hasColumnOrder && spec.quantization.w13;
    if (spec.sharedExperts)
      spec.sharedExperts->columns =
          context.hasColumnOrder && spec.sharedExperts->quantization.w13;
  }
  if (overrides.quantConfig && !stated)
    readQuantConfigFile(*overrides.quantConfig, config.getContext().diags,
                        family, context, spec);
}

} // namespace moec
