//===- Quark.cpp - configuration of AMD Quark -----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A configuration for all modules, with overrides by name and by class. Weights
// and inputs are described by type, scheme and group.
//
//===----------------------------------------------------------------------===//

#include "QuantizationMethods.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace moec {

namespace {

constexpr StringLiteral kTool = "quark", kWeight = "weight";

/// The fields of `weight` or `input_tensors` that were read.
struct Operand {
  StringRef dtype, scheme;
  bool isDynamic = false, isSymmetric = true;
  int64_t groupSize = 0;
};

/// Refuses a field that says how scales are laid out, with another value than
/// those; absent it says nothing.
void expectLayout(FieldReader &reader, StringRef field,
                  ArrayRef<StringRef> accepted) {
  const json::Value *value = reader.get(field);
  if (!value)
    return;
  std::string found = value->text;
  if (value->kind == json::Value::Kind::Array) {
    for (const json::Value &element : value->elements)
      found += (found.empty() ? "" : " x ") + element.text;
  }
  if (!is_contained(accepted, found))
    reader.error(field, reader.show(field) + " = " +
                            (found.empty() ? describeValue(*value) : found) +
                            " is not supported with 'qscheme' \"" +
                            reader.getString("qscheme").value_or("") + "\"; " +
                            join(accepted, " or ") + " is");
}

/// Scales of weights are those of rows, of blocks of 128 x 128, or of groups
/// along a row.
void checkLayout(FieldReader &reader, const Operand &operand) {
  if (operand.scheme == "per_channel")
    expectLayout(reader, "ch_axis", {"0"});
  else if (operand.scheme == "per_group")
    expectLayout(reader, "ch_axis", {"-1", "1"});
  else if (operand.scheme == "per_block")
    expectLayout(reader, "block_size", {"128 x 128"});
  if (operand.dtype == "fp4")
    expectLayout(reader, "scale_format", {"e8m0"});
}

/// Reads an operand. A list of one element is that element.
std::optional<Operand> readOperand(FieldReader &parent, StringRef field) {
  const json::Value *value = parent.get(field);
  if (value && value->kind == json::Value::Kind::Array &&
      value->elements.size() == 1)
    value = &value->elements.front();
  if (!value)
    return std::nullopt;
  if (!value->isObject()) {
    parent.reportWrong(field, *value, "an object");
    return std::nullopt;
  }
  FieldReader reader = parent.getInner(field, *value);
  Operand operand;
  operand.dtype = reader.getString("dtype").value_or("");
  operand.scheme = reader.getString("qscheme").value_or("");
  operand.isDynamic = reader.getBoolean("is_dynamic", false);
  operand.isSymmetric = reader.getBoolean("symmetric", true);
  if (reader.has("group_size"))
    operand.groupSize = reader.getInteger("group_size", 1, limits::kMaxWidth);
  if (field == kWeight)
    checkLayout(reader, operand);
  return operand;
}

std::optional<OperandQuantization> getWeight(const Operand &operand) {
  constexpr int64_t side = 128, mxColumns = 32;
  OperandQuantization weight;
  if (operand.isDynamic || !operand.isSymmetric)
    return std::nullopt;
  if (operand.dtype == "fp4" && operand.scheme == "per_group" &&
      operand.groupSize == mxColumns)
    return getMeaning("mxfp4").weight;
  if (operand.dtype == "int8")
    weight.storage = StorageType::Int8;
  else if (operand.dtype != "fp8_e4m3")
    return std::nullopt;
  if (operand.scheme == "per_tensor") {
    weight.granularity = Granularity::Tensor;
  } else if (operand.scheme == "per_channel") {
    weight.granularity = Granularity::Channel;
  } else if (operand.scheme == "per_block" &&
             weight.storage == StorageType::Fp8E4M3) {
    weight.granularity = Granularity::Block;
    weight.blockRows = weight.blockColumns = side;
  } else {
    return std::nullopt;
  }
  return weight;
}

std::optional<OperandQuantization> getActivation(const Operand &operand) {
  constexpr int64_t columns = 128;
  OperandQuantization input;
  if (!operand.isSymmetric)
    return std::nullopt;
  if (operand.dtype == "int8")
    input.storage = StorageType::Int8;
  else if (operand.dtype != "fp8_e4m3")
    return std::nullopt;
  if (operand.scheme == "per_tensor") {
    input.isStatic = !operand.isDynamic;
  } else if (operand.scheme == "per_channel" && operand.isDynamic) {
    input.granularity = Granularity::Token;
  } else if (operand.scheme == "per_group" && operand.isDynamic &&
             operand.groupSize == columns) {
    input.granularity = Granularity::Group;
    input.blockRows = 1;
    input.blockColumns = columns;
  } else {
    return std::nullopt;
  }
  return input;
}

std::string describe(const Operand &operand) {
  return (operand.dtype + " " + operand.scheme +
          (operand.isDynamic ? ", dynamic" : "") +
          (operand.isSymmetric ? "" : ", not symmetric") +
          (operand.groupSize ? " of " + Twine(operand.groupSize) : Twine()))
      .str();
}

std::optional<Scheme> readScheme(FieldReader &reader,
                                 QuantizationContext &context) {
  std::optional<Operand> weight = readOperand(reader, kWeight);
  // Modules with other quantized tensors, as attention with a KV cache.
  if (!weight)
    return std::nullopt;
  Scheme scheme;
  std::optional<OperandQuantization> found = getWeight(*weight);
  if (!found)
    reader.error(kWeight,
                 reader.show(kWeight) + " is " + describe(*weight) +
                     ", which is not supported; fp8_e4m3 per_tensor, "
                     "per_channel and per_block of 128 x 128, int8 per_tensor "
                     "and per_channel, and fp4 per_group of 32 are");
  scheme.quantization.weight = found.value_or(OperandQuantization());
  scheme.quantization.packing = Packing::ModelOpt;
  if (reader.has("output_tensors"))
    refuseValue(reader, "output_tensors", "null");
  StringRef field = "input_tensors";
  if (std::optional<Operand> input = readOperand(reader, field)) {
    scheme.quantization.activation = getActivation(*input);
    if (input->dtype == "fp4")
      keepActivations(context, reader.show(field));
    else if (!scheme.quantization.activation)
      reader.error(field,
                   reader.show(field) + " is " + describe(*input) +
                       ", which is not supported" +
                       reader.offerIgnoring(
                           field, "; leave activations as they are with "));
  }
  return scheme;
}

} // namespace

void readQuark(FieldReader &reader, QuantizationContext &context,
               QuantizationMethod &method) {
  // Number 0 is the scheme of all modules that no override names.
  std::vector<std::pair<StringRef, const json::Member *>> overrides;
  auto add = [&](StringRef field, Matching matching) {
    const json::Value *object = reader.getObject(field);
    if (!object)
      return;
    for (const json::Member &member : object->members) {
      overrides.push_back({field, &member});
      method.rules.add(matching, member.name, int(overrides.size()));
    }
  };
  add("layer_quant_config", Matching::Glob);
  add("layer_type_quant_config", Matching::Class);
  const json::Value *all = reader.getObject("global_quant_config");
  method.rules.setDefault(all ? 0 : ModuleRules::kNotQuantized);
  refuseOtherFields(reader, kTool);
  method.read = [&reader, &context, all, overrides](int number) {
    if (number == 0) {
      FieldReader own = reader.getInner("global_quant_config", *all);
      return readScheme(own, context);
    }
    auto [field, member] = overrides[size_t(number) - 1];
    const json::Value &object = reader.getObjectValue().find(field)->value;
    FieldReader own =
        reader.getInner(field, object).getInner(member->name, member->value);
    return readScheme(own, context);
  };
}

} // namespace moec
