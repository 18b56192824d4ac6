//===- QuantizationConfig.cpp - quantization_config -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Quantization changes every number of a layer, so nothing here is lenient: a
// method, a field or a value that is not known is an error.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

/// Exceptions from quantization may name anything but the experts.
void checkExceptions(FieldReader &reader) {
  StringRef field = "modules_to_not_convert";
  const json::Value *list = reader.getList(field);
  if (!list)
    return;
  for (const json::Value &element : list->elements) {
    StringRef name = element.text;
    bool isExpert =
        name.contains("experts") || (name.contains("shared_expert") &&
                                     !name.contains("shared_expert_gate"));
    if (element.kind != json::Value::Kind::String || isExpert)
      reader.getContext().diags.error(
          reader.getContext().text, element.range,
          reader.show(field) + " contains " + describeValue(element) +
              "; only names of modules outside the experts are supported");
  }
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

} // namespace

std::optional<WeightQuantization> readQuantizationConfig(FieldReader &config) {
  if (config.has("compression_config"))
    config.error("compression_config",
                 config.show("compression_config") + " is not supported");
  const json::Value *object = config.getObject("quantization_config");
  if (!object)
    return std::nullopt;
  FieldReader reader(config.getContext(), *object, "quantization_config.",
                     FieldReader::Null::IsAbsent);
  std::optional<StringRef> method = reader.getString("quant_method");
  if (!method)
    return std::nullopt;
  if (method == "fp8") {
    reader.getOneOf("fmt", {"e4m3", "float8_e4m3fn"});
    reader.getOneOf("activation_scheme", {"dynamic"});
    checkBlockSize(reader);
    checkExceptions(reader);
    refuseOtherFields(reader, *method);
    return WeightQuantization::Fp8Block128;
  }
  if (method == "mxfp4") {
    checkExceptions(reader);
    refuseOtherFields(reader, *method);
    return WeightQuantization::MxFp4;
  }
  reader.error("quant_method",
               "quantization " + describeValue(*reader.get("quant_method")) +
                   " is not supported; \"fp8\" with blocks of 128 x 128 and "
                   "\"mxfp4\" are");
  return std::nullopt;
}

} // namespace moec
