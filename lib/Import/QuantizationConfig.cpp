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
/// that names a part of the layer's matrices, are errors.
Coverage readExceptions(FieldReader &reader, const Family &family,
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
  Coverage coverage = excluded.getCoverage();
  if (coverage == Coverage::Some)
    reader.error(lastField,
                 reader.show(lastField) + " contains \"" +
                     excluded.getFirstHit() +
                     "\", which leaves some matrices of this layer's experts "
                     "as they are; layers whose experts are quantized in part "
                     "are not supported");
  return coverage;
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
                     " must be [128, 128]; other scales of fp8 weights are "
                     "not supported");
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
    "\"fp8\" with blocks of 128 x 128 and \"mxfp4\" are";

std::optional<WeightQuantization>
readMethod(FieldReader &reader, const Family &family, const LayerSpec &spec) {
  std::optional<StringRef> method = reader.getString("quant_method");
  if (!method || readExceptions(reader, family, spec) != Coverage::None)
    return std::nullopt;
  if (method == "fp8") {
    reader.getOneOf("fmt", {"e4m3", "float8_e4m3fn"});
    reader.getOneOf("activation_scheme", {"dynamic"});
    checkBlockSize(reader);
    refuseOtherFields(reader, *method);
    return WeightQuantization::Fp8Block128;
  }
  if (method == "mxfp4") {
    reader.getContext().origins["quantization.weight"] = {
        reader.show("quant_method"), reader.get("quant_method")->range};
    refuseOtherFields(reader, *method);
    return WeightQuantization::MxFp4;
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
  if (!algorithm || readExceptions(reader, family, spec) != Coverage::None)
    return;
  reader.error("quant_algo", "quantization " + describeValue(*algorithm) +
                                 " of ModelOpt is not supported; " +
                                 kSupported);
}

} // namespace

std::optional<WeightQuantization>
readQuantization(FieldReader &config, FieldReader *outer, const Family &family,
                 const LayerSpec &spec, const SpecOverrides &overrides,
                 IgnoredFields &ignored) {
  std::optional<WeightQuantization> result;
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
    result = readMethod(inner, family, spec);
  }
  if (overrides.quantConfig && !stated)
    readModelOpt(*overrides.quantConfig, config.getContext(), family, spec);
  return result;
}

} // namespace moec
