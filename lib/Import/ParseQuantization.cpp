//===- ParseQuantization.cpp - parser of the object quantization ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Expands short names; later code never sees them.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace llvm;

namespace moec {

namespace {

using Null = FieldReader::Null;

/// Granularities of one operand, and their spelling.
struct Forms {
  /// Granularities written as a word.
  ArrayRef<Granularity> words;
  /// Granularities written as an object with one or two sizes.
  SmallVector<Granularity, 2> sized;
  StringLiteral text;
};

constexpr Granularity kWeightWords[] = {Granularity::Tensor,
                                        Granularity::Channel};
constexpr Granularity kActivationWords[] = {Granularity::Tensor,
                                            Granularity::Token};

Forms getForms(bool isActivation) {
  if (isActivation)
    return {kActivationWords,
            {Granularity::Group},
            R"("tensor", "token" or {"group": 128})"};
  return {kWeightWords,
          {Granularity::Group, Granularity::Block},
          R"("tensor", "channel", {"group": 32} or {"block": [128, 128]})"};
}

/// Reads the size of a group or the two sizes of a block.
bool readSizes(const json::Value &value, OperandQuantization &operand) {
  auto read = [](const json::Value &from, int64_t &size) {
    std::optional<int64_t> number = from.getInteger();
    if (!number || *number < 1 || *number > limits::kMaxWidth)
      return false;
    size = *number;
    return true;
  };
  if (operand.granularity == Granularity::Group) {
    operand.blockRows = 1;
    return read(value, operand.blockColumns);
  }
  return value.elements.size() == 2 &&
         read(value.elements[0], operand.blockRows) &&
         read(value.elements[1], operand.blockColumns);
}

/// Reads the field `scale`: the elements that share a scale.
bool readGranularity(const json::Value &value, const Forms &forms,
                     OperandQuantization &operand) {
  if (value.kind == json::Value::Kind::String) {
    std::optional<Granularity> word = symbolize<Granularity>(value.text);
    if (!word || !is_contained(forms.words, *word))
      return false;
    operand.granularity = *word;
    return true;
  }
  if (value.members.size() != 1)
    return false;
  std::optional<Granularity> sized =
      symbolize<Granularity>(value.members.front().name);
  if (!sized || !is_contained(forms.sized, *sized))
    return false;
  operand.granularity = *sized;
  return readSizes(value.members.front().value, operand);
}

OperandQuantization readOperand(FieldReader &outer, StringRef name,
                                const json::Value &object, bool isActivation) {
  FieldReader reader(outer.getContext(), object, outer.getPath(name) + ".",
                     Null::IsWrong);
  OperandQuantization operand;
  operand.storage = reader.getEnum<StorageType>("dtype");
  Forms forms = getForms(isActivation);
  if (const json::Value *scale = reader.get("scale")) {
    if (!readGranularity(*scale, forms, operand))
      reader.reportWrong("scale", *scale, forms.text);
  } else {
    reader.reportMissing("scale", forms.text);
  }
  operand.scale = reader.getEnum<ScaleType>("scale_dtype", ScaleType::F32);
  if (isActivation) {
    operand.isStatic = reader.getBoolean("static", false);
  } else {
    operand.hasZeroPoint = reader.getBoolean("zero_point", false);
    operand.hasGlobalScale = reader.getBoolean("global_scale", false);
    operand.hasMinimum = reader.getBoolean("minimum", false);
  }
  bool areNumbers = operand.scale == ScaleType::F32 ||
                    operand.scale == ScaleType::BF16 ||
                    operand.scale == ScaleType::F16;
  if (operand.hasMinimum && (!isInteger(operand.storage) || !areNumbers ||
                             operand.granularity != Granularity::Group ||
                             operand.hasZeroPoint || operand.hasGlobalScale))
    reader.error("minimum",
                 reader.show("minimum") +
                     " belongs to \"int8\" and \"int4\" in groups, with "
                     "\"scale_dtype\" \"f32\", \"bf16\" or \"f16\" and without "
                     "'zero_point' and 'global_scale'; remove it");
  if (operand.hasZeroPoint && !isInteger(operand.storage))
    reader.error("zero_point", reader.show("zero_point") +
                                   " belongs to \"int8\" and \"int4\"; "
                                   "remove it");
  if (operand.hasGlobalScale && !operand.blockColumns)
    reader.error("global_scale",
                 reader.show("global_scale") +
                     " is a factor of the scales of groups or blocks; write "
                     "\"scale\": {\"group\": 16}, or remove it");
  if (isActivation && operand.storage == StorageType::Int8 &&
      operand.granularity == Granularity::Group)
    reader.error("scale", reader.show("scale") +
                              " of \"int8\" activations is \"tensor\" or "
                              "\"token\"");
  bool arePowersOfTwo = operand.scale == ScaleType::E8M0 &&
                        operand.granularity == Granularity::Group;
  if (isActivation && operand.scale != ScaleType::F32 && !arePowersOfTwo)
    reader.error("scale_dtype",
                 reader.show("scale_dtype") +
                     " of activations is \"f32\", or \"e8m0\" of groups, whose "
                     "scales become powers of two");
  if (isActivation && getElementBits(operand.storage) < 8)
    reader.error("dtype", reader.show("dtype") +
                              " of activations is \"fp8_e4m3\" or \"int8\"; "
                              "remove 'activation' for weights alone");
  if (operand.isStatic && operand.granularity != Granularity::Tensor)
    reader.error("static", reader.show("static") +
                               " scales belong to all rows; write \"scale\": "
                               "\"tensor\", or remove 'static'");
  reader.refuseUnknown();
  return operand;
}

/// The short names, for messages.
std::string listShortNames() {
  std::string names;
  for (const QuantizationName &entry : getQuantizationNames())
    names += "\"" + entry.name.str() + "\", ";
  return names;
}

/// Expands a short name; reports unknown ones and returns none.
std::optional<QuantizationSpec> readShortName(FieldReader &reader,
                                              StringRef field,
                                              const json::Value &value,
                                              const Twine &expected) {
  for (const QuantizationName &entry : getQuantizationNames())
    if (entry.name == value.text)
      return entry.meaning;
  reader.reportWrong(field, value, expected);
  return std::nullopt;
}

/// Reads the fields `weight` and `activation` of an object.
std::optional<QuantizationSpec> readOperands(FieldReader &reader) {
  const json::Value *weight = reader.get("weight");
  const json::Value *activation = reader.get("activation");
  std::string expected =
      listShortNames() +
      R"(or an object such as {"dtype": "fp8_e4m3", "scale": "channel"})";
  std::optional<QuantizationSpec> result;
  if (!weight) {
    reader.reportMissing("weight", expected);
  } else if (weight->kind == json::Value::Kind::String) {
    result = readShortName(reader, "weight", *weight, expected);
    if (result && activation)
      reader.error("activation", reader.show("weight") + " = \"" +
                                     weight->text +
                                     "\" says what activations are; write the "
                                     "weight as an object, or remove " +
                                     reader.show("activation"));
  } else if (weight->isObject()) {
    result.emplace();
    result->weight =
        readOperand(reader, "weight", *weight, /*isActivation=*/false);
    if (const json::Value *object = reader.getObject("activation"))
      result->activation =
          readOperand(reader, "activation", *object, /*isActivation=*/true);
  } else {
    reader.reportWrong("weight", *weight, expected);
  }
  for (auto [name, value] :
       {std::pair("weight", weight), std::pair("activation", activation)})
    if (value)
      reader.getContext().origins[reader.getPath(name)] = {reader.show(name),
                                                           value->range};
  return result;
}

/// Reads the quantization of experts or, with `isProduct`, of one of their
/// gemms: a short name, an object, or null for none.
ExpertQuantization readField(FieldReader &outer, StringRef name,
                             bool isProduct) {
  const json::Value *value = outer.get(name);
  if (!value || value->isNull())
    return {};
  std::string expected =
      listShortNames() + R"(an object such as {"weight": "mxfp4"}, or null)";
  if (value->kind == json::Value::Kind::String) {
    outer.getContext().origins[outer.getPath(name) + ".weight"] = {
        outer.show(name), value->range};
    return readShortName(outer, name, *value, expected);
  }
  if (!value->isObject()) {
    outer.reportWrong(name, *value, expected);
    return {};
  }
  FieldReader reader(outer.getContext(), *value, outer.getPath(name) + ".",
                     Null::IsWrong);
  ExpertQuantization result = readOperands(reader);
  if (!isProduct) {
    if (reader.has("w13"))
      result.w13 = readField(reader, "w13", /*isProduct=*/true).w13;
    if (reader.has("w2"))
      result.w2 = readField(reader, "w2", /*isProduct=*/true).w2;
  }
  reader.refuseUnknown();
  return result;
}

} // namespace

ExpertQuantization readQuantizationField(FieldReader &outer) {
  return readField(outer, "quantization", /*isProduct=*/false);
}

std::string getQuantizationField(const ImportContext &context,
                                 StringRef weight) {
  auto [experts, product] = weight.split('.');
  SmallVector<std::string, 2> objects = {"quantization"};
  if (experts == "shared_experts")
    objects.insert(objects.begin(), "shared_experts.quantization");
  for (const std::string &object : objects)
    for (const std::string &path : {object + "." + product.str(), object})
      if (context.origins.count(path + ".weight"))
        return path;
  return objects.back();
}

} // namespace moec
