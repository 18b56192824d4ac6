//===- CompressedTensors.cpp - configuration of compressed-tensors --------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `format` describes how a checkpoint stores weights; each group of
// `config_groups` describes the quantization of weights and activations.
// Formats are a table, and a scheme is accepted if its format has it.
//
//===----------------------------------------------------------------------===//

#include "QuantizationMethods.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

constexpr StringLiteral kMethod = "compressed-tensors";

/// Activation quantization that a format allows.
struct Inputs {
  /// The field `type`; always 8 bits.
  StringLiteral type;
  SmallVector<StringRef, 2> strategies = {"tensor", "token"};
  /// Group size in columns, for strategy "group".
  int64_t groupColumns = 0;
  /// Scales are rounded to powers of two (UE8M0).
  bool arePowersOfTwo = false;
};

/// One `format`.
struct Format {
  StringLiteral name;
  /// The field `type` of weights.
  StringLiteral type;
  ArrayRef<int64_t> bits;
  SmallVector<StringRef, 4> strategies;
  Packing packing;
  /// Allowed quantizations of activations, which may also be unquantized.
  SmallVector<Inputs, 2> inputs;
  bool hasZeroPoints = false;
  /// Group size in columns, if the format fixes it.
  int64_t groupColumns = 0;
  /// The `quantization` short name of the format.
  StringLiteral shortName = "";
};

constexpr int64_t kFour[] = {4}, kEight[] = {8};

ArrayRef<Format> getFormats() {
  static const Format formats[] = {
      {"pack-quantized",
       "int",
       kPackedBits,
       {"group", "channel"},
       Packing::CompressedInts,
       {{"int"}, {"float"}},
       /*hasZeroPoints=*/true},
      {"int-quantized",
       "int",
       kEight,
       {"tensor", "channel", "group"},
       Packing::Modules,
       {{"int"}},
       /*hasZeroPoints=*/true},
      {"float-quantized",
       "float",
       kEight,
       {"tensor", "channel", "block"},
       Packing::Modules,
       {{"float"}}},
      {"naive-quantized",
       "float",
       kEight,
       {"tensor", "channel", "block"},
       Packing::Modules,
       {{"float"}}},
      {"mxfp8-quantized",
       "float",
       kEight,
       {"group"},
       Packing::Modules,
       {{"float", {"group"}, 32, /*arePowersOfTwo=*/true}},
       /*hasZeroPoints=*/false,
       32,
       "mxfp8"},
      {"nvfp4-pack-quantized",
       "float",
       kFour,
       {"tensor_group"},
       Packing::CompressedFp4,
       {},
       /*hasZeroPoints=*/false,
       16,
       "nvfp4"},
      {"mxfp4-pack-quantized",
       "float",
       kFour,
       {"group"},
       Packing::CompressedFp4,
       {{"float", {"group"}, 128}},
       /*hasZeroPoints=*/false,
       32,
       "mxfp4"},
  };
  return formats;
}

/// The format of a group; a group without one has the format of the whole
/// model.
const Format *readFormat(FieldReader &config, FieldReader &group) {
  FieldReader &reader = group.has("format") ? group : config;
  SmallVector<StringRef> names;
  for (const Format &format : getFormats())
    names.push_back(format.name);
  if (!reader.has("format")) {
    reader.reportMissing("format", "one of " + listChoices(names));
    return nullptr;
  }
  StringRef name = reader.getOneOf("format", names);
  if (&reader == &group)
    config.markKnown("format");
  for (const Format &format : getFormats())
    if (format.name == name)
      return &format;
  llvm_unreachable("a name of the table");
}

/// Reads the objects `weights` and `input_activations` of a group.
class OperandReader {
public:
  OperandReader(FieldReader &group, StringRef name, const json::Value &object,
                const Format &format, QuantizationContext &context)
      : reader(group.getInner(name, object)), format(format), context(context) {
  }

  OperandQuantization readWeight() {
    readType({format.type}, format.bits);
    require("dynamic", !reader.getBoolean("dynamic", false), "false");
    bool isSymmetric = reader.getBoolean("symmetric", true);
    require("symmetric", isSymmetric || format.hasZeroPoints, "true");
    if (!isSymmetric && format.hasZeroPoints)
      operand.hasZeroPoint = true;
    readGranularity(format.strategies, format.groupColumns);
    if (!format.shortName.empty())
      operand = getMeaning(format.shortName).weight;
    else if (operand.granularity == Granularity::Group)
      operand.scale = getScaleType(context.dtype);
    readOrder();
    finish();
    return operand;
  }

  OperandQuantization readActivation(const OperandQuantization &weight) {
    SmallVector<StringRef, 2> types;
    for (const Inputs &inputs : format.inputs)
      types.push_back(inputs.type);
    constexpr int64_t bits = 8, besideBlocks = 128;
    StringRef type = readType(types, bits);
    bool isDynamic = reader.getBoolean("dynamic", false);
    require("symmetric", reader.getBoolean("symmetric", true), "true");
    const Inputs &inputs = *llvm::find_if(
        format.inputs, [&](const Inputs &one) { return one.type == type; });
    if (weight.granularity == Granularity::Block)
      readGranularity({"group"}, besideBlocks);
    else
      readGranularity(inputs.strategies, inputs.groupColumns);
    if (inputs.arePowersOfTwo)
      operand.scale = ScaleType::E8M0;
    operand.isStatic = !isDynamic;
    if (operand.isStatic && operand.granularity != Granularity::Tensor)
      reader.error("dynamic", reader.show("dynamic") +
                                  " must be true with strategy \"" +
                                  stringify(operand.granularity) +
                                  "\"; scales that are stored belong to "
                                  "strategy \"tensor\"");
    finish();
    return operand;
  }

private:
  void require(StringRef field, bool isRight, const Twine &expected) {
    if (!isRight)
      refuseValue(reader, field, expected);
  }

  /// "weight" only changed the order in which weights were rounded. With
  /// "group" a column may belong to any group; weight_g_idx has the groups.
  /// The tool has "static" and "dynamic" as other names, and true for "group".
  void readOrder() {
    StringRef field = "actorder";
    const json::Value *value = reader.get(field);
    bool isOff = !value ||
                 (value->kind == json::Value::Kind::Boolean && !value->boolean);
    if (isOff)
      return;
    SmallVector<StringRef, 4> orders = {"weight", "static"};
    bool mayOrder = format.packing == Packing::CompressedInts &&
                    operand.granularity == Granularity::Group;
    if (mayOrder)
      orders.append({"group", "dynamic"});
    bool isTrue = value->kind == json::Value::Kind::Boolean;
    StringRef order =
        isTrue && mayOrder ? "group" : reader.getOneOf(field, orders);
    hasColumnOrder = order == "group" || order == "dynamic";
  }

  StringRef readType(ArrayRef<StringRef> types, ArrayRef<int64_t> bits) {
    std::string expected = listNumbers(bits);
    const json::Value *value = reader.get("num_bits");
    std::optional<int64_t> number;
    if (value)
      number = value->getInteger();
    else
      reader.reportMissing("num_bits", expected);
    bool isRight = number && is_contained(bits, *number);
    require("num_bits", !value || isRight, expected);
    StringRef type = reader.getOneOf("type", types);
    operand.storage =
        type == "float" ? StorageType::Fp8E4M3 : StorageType::Int8;
    if (isRight)
      numBits = *number;
    return type;
  }

  /// A missing strategy follows from the group size, which the format may fix.
  void readGranularity(ArrayRef<StringRef> strategies, int64_t fixedColumns) {
    const json::Value *size = reader.get("group_size");
    std::optional<int64_t> columns;
    if (size)
      columns = size->getInteger();
    StringRef strategy = reader.getOneOf("strategy", strategies);
    if (!reader.has("strategy") && size) {
      StringRef implied = columns == -1 ? "channel" : "group";
      for (StringRef name : strategies)
        if (name.contains(implied))
          strategy = name;
    }
    bool isGroup = strategy == "group" || strategy == "tensor_group";
    operand.granularity = strategy == "tensor_group"
                              ? Granularity::Group
                              : *symbolize<Granularity>(strategy);
    if (isGroup)
      readGroup(size, columns, fixedColumns);
    else
      require("group_size", !size || columns == -1,
              "null with strategy \"" + strategy + "\"");
    if (strategy == "block")
      readBlock();
  }

  void readGroup(const json::Value *size, std::optional<int64_t> columns,
                 int64_t fixed) {
    std::string expected =
        fixed ? std::to_string(fixed) : std::string("a number above 0");
    if (!size)
      return reader.reportMissing("group_size", expected);
    bool isRight =
        fixed ? columns == fixed
              : columns && *columns > 0 && *columns <= limits::kMaxWidth;
    require("group_size", isRight, expected);
    operand.blockRows = 1;
    operand.blockColumns = isRight ? *columns : 1;
  }

  void readBlock() {
    const json::Value *list = reader.getList("block_structure");
    constexpr int64_t side = 128;
    bool isRight = list && list->elements.size() == 2 &&
                   llvm::all_of(list->elements, [&](const json::Value &value) {
                     return value.getInteger() == side;
                   });
    if (!isRight)
      reader.error("block_structure", reader.show("block_structure") +
                                          " must be [128, 128]; other blocks "
                                          "of weights are not supported");
    operand.blockRows = operand.blockColumns = side;
  }

  void finish() {
    // Formats with a short name fix the dtype of scales.
    if (!format.shortName.empty())
      reader.markKnown("scale_dtype");
    // The method that computed the scales does not matter.
    for (StringRef field : {"observer", "observer_kwargs", "zp_dtype"})
      reader.markKnown(field);
    refuseOtherFields(reader, kMethod);
  }

  FieldReader reader;
  const Format &format;
  QuantizationContext &context;
  OperandQuantization operand;

public:
  /// A column may belong to any group.
  bool hasColumnOrder = false;
  /// Bits per element.
  int64_t numBits = 8;
};

/// Quantization of activations; none if the user ignores the field.
std::optional<OperandQuantization>
readActivations(FieldReader &group, const Format &format,
                const OperandQuantization &weight,
                QuantizationContext &context) {
  StringRef field = "input_activations";
  const json::Value *inputs = group.getObject(field);
  if (!inputs)
    return std::nullopt;
  // 4-bit activations require 4-bit weights.
  constexpr int64_t four = 4;
  const json::Member *bits = inputs->find("num_bits");
  if (bits && bits->value.getInteger() == four &&
      getElementBits(weight.storage) == four) {
    keepActivations(context, group.show(field));
    return std::nullopt;
  }
  if (format.inputs.empty()) {
    group.error(field, group.show(field) + " is not supported with format \"" +
                           format.name + "\"" +
                           group.offerIgnoring(
                               field, "; leave activations as they are with "));
    return std::nullopt;
  }
  return OperandReader(group, field, *inputs, format, context)
      .readActivation(weight);
}

/// Reads the scheme of a group.
std::optional<Scheme> readGroup(FieldReader &config, FieldReader &group,
                                QuantizationContext &context) {
  const Format *format = readFormat(config, group);
  if (!format)
    return std::nullopt;
  if (group.has("output_activations"))
    refuseValue(group, "output_activations", "null");
  const json::Value *weights = group.getObject("weights");
  if (!weights) {
    group.reportMissing("weights", "an object");
    return std::nullopt;
  }
  Scheme scheme;
  scheme.quantization.packing = format->packing;
  OperandReader operand(group, "weights", *weights, *format, context);
  scheme.quantization.weight = operand.readWeight();
  if (isInteger(scheme.quantization.weight.storage))
    setIntegerBits(scheme.quantization, operand.numBits);
  scheme.hasColumnOrder = operand.hasColumnOrder;
  scheme.quantization.activation =
      readActivations(group, *format, scheme.quantization.weight, context);
  group.markKnown("targets");
  refuseOtherFields(group, kMethod);
  return scheme;
}

/// Adds the targets of all groups as rules: names come before expressions, and
/// these before classes, each in alphabetical order, as in `match_targets`.
void addTargets(FieldReader &groups, QuantizationMethod &method) {
  struct Target {
    Matching matching;
    std::string text;
    int group;
  };
  std::vector<Target> targets;
  for (auto [index, member] : enumerate(groups.getObjectValue().members)) {
    if (!groups.getObject(member.name) && !member.value.isNull())
      continue;
    FieldReader group = groups.getInner(member.name, member.value);
    const json::Value *list = group.getStrings("targets");
    if (!list) {
      if (!group.has("targets"))
        group.reportMissing("targets", "a list of names, expressions "
                                       "(\"re:.*experts.*\") and classes");
      continue;
    }
    for (const json::Value &element : list->elements) {
      StringRef text = element.text;
      if (text.consume_front("re:")) {
        targets.push_back({Matching::Expression, text.str(), int(index)});
        continue;
      }
      targets.push_back({Matching::Name, text.str(), int(index)});
      targets.push_back({Matching::Class, text.str(), int(index)});
    }
  }
  stable_sort(targets, [](const Target &a, const Target &b) {
    auto getOrder = [](const Target &target) {
      return target.matching == Matching::Name         ? 0
             : target.matching == Matching::Expression ? 1
                                                       : 2;
    };
    return std::make_tuple(getOrder(a), StringRef(a.text)) <
           std::make_tuple(getOrder(b), StringRef(b.text));
  });
  for (const Target &target : targets)
    if (target.matching != Matching::Expression)
      method.rules.add(target.matching, target.text, target.group);
    else if (!method.rules.addExpression(target.matching, target.text,
                                         target.group))
      groups.getContext().diags.error(
          groups.getContext().text, groups.getObjectValue().range,
          groups.getName() + ": the target \"re:" + target.text +
              "\" cannot be understood; write " + kReadableExpressions +
              ", as \"re:.*experts.*\"");
}

} // namespace

void readCompressedTensors(FieldReader &reader, QuantizationContext &context,
                           QuantizationMethod &method) {
  reader.getOneOf("quantization_status", {"compressed", "frozen"});
  for (StringRef field :
       {"sparsity_config", "transform_config", "moe_sparsity_config"})
    if (const json::Value *object = reader.getObject(field))
      if (!object->members.empty())
        reader.error(field, reader.show(field) +
                                " is not supported; leave it empty" +
                                reader.offerIgnoring(field));
  // A group without a format has that of the model.
  reader.markKnown("format");
  const json::Value *groups = reader.getObject("config_groups");
  if (!groups || groups->members.empty()) {
    reader.reportMissing("config_groups",
                         "an object with a group for each scheme");
    return;
  }
  FieldReader all = reader.getInner("config_groups", *groups);
  addTargets(all, method);
  refuseOtherFields(reader, kMethod);
  method.read = [&reader, &context, groups](int number) {
    const json::Member &member = groups->members[size_t(number)];
    FieldReader group = reader.getInner("config_groups", *groups)
                            .getInner(member.name, member.value);
    return readGroup(reader, group, context);
  };
}

} // namespace moec
