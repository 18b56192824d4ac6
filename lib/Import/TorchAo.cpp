//===- TorchAo.cpp - configuration of torchao -----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `quant_type` of Transformers' TorchAoConfig holds a configuration of torchao,
// an object with its class, fields and version, for all modules or by name.
// torchao 0.18's safetensors have its tensors as `_weight_qdata`,
// `_weight_scale`, and those of a parameter of all experts as
// `_gate_up_proj_qdata`.
//
//===----------------------------------------------------------------------===//

#include "QuantizationMethods.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

constexpr StringLiteral kTorchAoTool = "torchao";

/// `_type` and the object `_data` of something that torchao has written.
struct Typed {
  StringRef type;
  FieldReader data;
};

std::optional<Typed> readTyped(FieldReader &reader) {
  std::optional<StringRef> type = reader.getString("_type");
  const json::Value *data = reader.getObject("_data");
  reader.markKnown("_version");
  if (!type || !data)
    return std::nullopt;
  return Typed{*type, reader.getInner("_data", *data)};
}

/// The class of a granularity; of two equal ones for activations and weights
/// that class, and "" for others.
std::string readGranularity(FieldReader &reader, StringRef absent) {
  const json::Value *value = reader.get("granularity");
  if (!value)
    return absent.str();
  auto readOne = [&](const json::Value &one) {
    if (!one.isObject())
      return std::string();
    FieldReader inner = reader.getInner("granularity", one);
    std::optional<Typed> typed = readTyped(inner);
    if (!typed)
      return std::string();
    constexpr int64_t side = 128;
    // Rows are the last dimension but one; blocks are of 1 x 128 activations
    // and 128 x 128 weights.
    if (typed->type != "PerBlock")
      return typed->type.str();
    const json::Value *size = typed->data.getList("block_size");
    bool isKnown = size && size->elements.size() == 2 &&
                   size->elements.back().getInteger() == side;
    return isKnown ? typed->type.str() : std::string();
  };
  if (value->kind != json::Value::Kind::Array)
    return readOne(*value);
  std::string all;
  for (const json::Value &one : value->elements) {
    std::string found = readOne(one);
    if (!all.empty() && found != all)
      return "";
    all = found;
  }
  return all;
}

/// Sets granularities of weights and activations.
bool setGranularity(StringRef name, QuantizationSpec &result) {
  OperandQuantization &weight = result.weight;
  OperandQuantization input = weight;
  constexpr int64_t side = 128;
  if (name == "PerTensor") {
    weight.granularity = input.granularity = Granularity::Tensor;
  } else if (name == "PerRow") {
    weight.granularity = Granularity::Channel;
    input.granularity = Granularity::Token;
  } else if (name == "PerBlock" && weight.storage == StorageType::Fp8E4M3) {
    weight.granularity = Granularity::Block;
    weight.blockRows = weight.blockColumns = side;
    input.granularity = Granularity::Group;
    input.blockRows = 1;
    input.blockColumns = side;
  } else {
    return false;
  }
  result.activation = input;
  return true;
}

/// Refuses another value than `name` of an enum or a dtype of Python.
void expect(FieldReader &reader, StringRef field, StringRef name) {
  const json::Value *value = reader.getObject(field);
  if (!value)
    return;
  FieldReader inner = reader.getInner(field, *value);
  inner.markKnown("_type");
  inner.getOneOf("_data", {name});
}

/// A class of configurations, and what it means.
struct Config {
  StringLiteral name;
  StorageType storage;
  bool hasActivations;
  /// The granularity if the field is absent.
  StringLiteral granularity;
};

constexpr Config kConfigs[] = {
    {"Float8WeightOnlyConfig", StorageType::Fp8E4M3, false, "PerRow"},
    {"Float8DynamicActivationFloat8WeightConfig", StorageType::Fp8E4M3, true,
     "PerTensor"},
    {"Int8WeightOnlyConfig", StorageType::Int8, false, "PerRow"},
    {"Int8DynamicActivationInt8WeightConfig", StorageType::Int8, true,
     "PerRow"},
};

/// Codes in groups along rows, with a scale and the value of the middle code.
Scheme readInt4(FieldReader &data) {
  Scheme scheme;
  scheme.quantization.packing = Packing::TorchAoInt4;
  OperandQuantization &weight = scheme.quantization.weight;
  constexpr int64_t largest = 256, usual = 128;
  weight.storage = StorageType::Int4;
  weight.hasMinimum = true;
  weight.granularity = Granularity::Group;
  weight.blockRows = 1;
  weight.blockColumns = data.getInteger("group_size", 1, largest, usual);
  StringRef field = "int4_packing_format";
  if (const json::Value *format = data.getObject(field)) {
    FieldReader inner = data.getInner(field, *format);
    inner.markKnown("_type");
    if (inner.getString("_data") != StringRef("PLAIN"))
      refuseValue(inner, "_data", "\"PLAIN\"", /*isRequired=*/true);
  }
  expect(data, "int4_choose_qparams_algorithm", "TINYGEMM");
  refuseOtherFields(data, kTorchAoTool);
  return scheme;
}

/// Integers of 1 to 8 bits that a file has as bytes, by row or in groups.
Scheme readIntx(FieldReader &data, bool hasActivations,
                QuantizationContext &context) {
  Scheme scheme;
  QuantizationSpec &result = scheme.quantization;
  result.packing = Packing::TorchAo;
  OperandQuantization &weight = result.weight;
  weight.storage = StorageType::Int8;
  StringRef of = hasActivations ? "weight_" : "";
  std::string granularity = (of + "granularity").str();
  weight.granularity = Granularity::Group;
  weight.blockRows = 1;
  weight.blockColumns = 32;
  if (!hasActivations)
    weight.granularity = Granularity::Channel;
  if (const json::Value *value = data.getObject(granularity)) {
    FieldReader inner = data.getInner(granularity, *value);
    std::optional<Typed> typed = readTyped(inner);
    if (typed && typed->type == "PerGroup") {
      weight.granularity = Granularity::Group;
      weight.blockColumns =
          typed->data.getInteger("group_size", 1, limits::kMaxWidth);
    } else if (typed && typed->type == "PerAxis" &&
               typed->data.getInteger("axis", -2, 1, 0) % 2 == 0) {
      weight.granularity = Granularity::Channel;
    } else {
      refuseValue(data, granularity, "PerGroup, or PerAxis of 0",
                  /*isRequired=*/true);
    }
  }
  if (weight.granularity == Granularity::Channel)
    weight.blockRows = weight.blockColumns = 0;
  // Bytes hold integers of fewer bits as they are.
  data.markKnown("weight_dtype");
  StringRef mapping = of.empty() ? "mapping_type" : "weight_mapping_type";
  if (const json::Value *value = data.getObject(mapping)) {
    FieldReader inner = data.getInner(mapping, *value);
    inner.markKnown("_type");
    weight.hasZeroPoint =
        inner.getOneOf("_data", {"SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR",
                                 "ASYMMETRIC"}) == "ASYMMETRIC";
  }
  data.markKnown((of + "scale_dtype").str());
  expect(data, "intx_packing_format", "UNPACKED_TO_INT8");
  data.markKnown("intx_choose_qparams_algorithm");
  data.markKnown("act_mapping_type");
  if (hasActivations)
    context.remarks.push_back(data.getName() +
                              " quantizes activations in a call; they stay "
                              "in " +
                              stringify(context.dtype).str());
  refuseOtherFields(data, kTorchAoTool);
  return scheme;
}

/// MX elements of 8 or 4 bits, for weights and activations.
Scheme readMx(FieldReader &data, QuantizationContext &context) {
  constexpr int64_t size = 32;
  constexpr StringLiteral eights = "float8_e4m3fn", fours = "float4_e2m1fn_x2";
  if (data.has("block_size") && data.get("block_size")->getInteger() != size)
    refuseValue(data, "block_size", "32", /*isRequired=*/true);
  constexpr StringLiteral fields[] = {"weight_dtype", "activation_dtype"};
  StringRef types[] = {eights, eights};
  for (auto [field, type] : llvm::zip_equal(fields, types))
    if (const json::Value *value = data.getObject(field)) {
      FieldReader inner = data.getInner(field, *value);
      inner.markKnown("_type");
      type = inner.getString("_data").value_or(eights);
      if (type != eights && type != fours)
        refuseValue(inner, "_data", "\"" + eights + "\" or \"" + fours + "\"",
                    /*isRequired=*/true);
    }
  bool isFour = types[0] == fours;
  Scheme scheme{getMeaning(isFour ? "mxfp4" : "mxfp8", Packing::TorchAo)};
  scheme.quantization.activation.reset();
  if (types[1] == eights)
    scheme.quantization.activation =
        getMeaning("mxfp8", Packing::Unstated).activation;
  else
    keepActivations(context, data.show("activation_dtype"));
  refuseOtherFields(data, kTorchAoTool);
  return scheme;
}

Scheme readNvfp4(FieldReader &data, bool hasActivations,
                 QuantizationContext &context) {
  Scheme scheme{getMeaning("nvfp4", Packing::TorchAo)};
  // Calibration states the scale in a file, whatever the field says.
  bool isDynamic = data.getBoolean("use_dynamic_per_tensor_scale", true);
  const json::Value *step = data.get("step");
  scheme.quantization.weight.hasGlobalScale = isDynamic || step;
  if (hasActivations)
    keepActivations(context, data.show("use_dynamic_per_tensor_scale"));
  refuseOtherFields(data, kTorchAoTool);
  return scheme;
}

std::optional<Scheme> readConfig(FieldReader &reader,
                                 QuantizationContext &context) {
  std::optional<Typed> typed = readTyped(reader);
  if (!typed)
    return std::nullopt;
  if (typed->type == "Int4WeightOnlyConfig")
    return readInt4(typed->data);
  if (typed->type == "IntxWeightOnlyConfig" ||
      typed->type == "Int8DynamicActivationIntxWeightConfig")
    return readIntx(typed->data, typed->type != "IntxWeightOnlyConfig",
                    context);
  if (typed->type == "MXDynamicActivationMXWeightConfig")
    return readMx(typed->data, context);
  if (typed->type == "NVFP4WeightOnlyConfig" ||
      typed->type == "NVFP4DynamicActivationNVFP4WeightConfig")
    return readNvfp4(typed->data, typed->type != "NVFP4WeightOnlyConfig",
                     context);
  const auto *config = llvm::find_if(
      kConfigs, [&](const Config &one) { return one.name == typed->type; });
  if (config == std::end(kConfigs)) {
    reader.error(
        "_type",
        reader.show("_type") + " is " + typed->type +
            ", which is not supported; 'Float8WeightOnlyConfig', "
            "'Float8DynamicActivationFloat8WeightConfig', "
            "'Int8WeightOnlyConfig', 'Int8DynamicActivationInt8WeightConfig', "
            "'Int4WeightOnlyConfig', 'IntxWeightOnlyConfig', "
            "'Int8DynamicActivationIntxWeightConfig', "
            "'MXDynamicActivationMXWeightConfig', "
            "'NVFP4WeightOnlyConfig' and "
            "'NVFP4DynamicActivationNVFP4WeightConfig' are");
    return std::nullopt;
  }
  FieldReader &data = typed->data;
  Scheme scheme;
  QuantizationSpec &result = scheme.quantization;
  result.weight.storage = config->storage;
  result.packing = Packing::TorchAo;
  std::string granularity = readGranularity(data, config->granularity);
  if (!setGranularity(granularity, result))
    refuseValue(data, "granularity",
                "PerTensor, PerRow, or for float8 PerBlock of 128",
                /*isRequired=*/true);
  if (!config->hasActivations)
    result.activation.reset();
  expect(data, "weight_dtype", "float8_e4m3fn");
  expect(data, "activation_dtype", "float8_e4m3fn");
  expect(data, "act_mapping_type", "SYMMETRIC");
  expect(data, "packing_format", "PLAIN");
  refuseOtherFields(data, kTorchAoTool);
  return scheme;
}

} // namespace

/// The rules of FqnToConfig: names ahead of expressions, which match a whole
/// name of a module or of its parameter `weight`. Null leaves it as it is.
static void addRules(const json::Value &byName, FieldReader &reader,
                     QuantizationMethod &method) {
  auto add = [&](bool areExpressions) {
    for (auto [number, member] : llvm::enumerate(byName.members)) {
      StringRef name = member.name;
      int scheme =
          member.value.isNull() ? ModuleRules::kNotQuantized : int(number);
      bool isExpression = name.consume_front("re:");
      if (isExpression != areExpressions)
        continue;
      if (name == "_default") {
        method.rules.setDefault(scheme);
        continue;
      }
      if (!isExpression) {
        name.consume_back(".weight");
        method.rules.add(Matching::Name, name, scheme);
        continue;
      }
      if (name.consume_back("weight") && !name.consume_back("\\."))
        name.consume_back(".");
      if (!method.rules.addExpression(Matching::Whole, name, scheme))
        reader.getContext().diags.error(
            reader.getContext().text, member.nameRange,
            reader.getName() + ": the expression \"" + member.name +
                "\" cannot be understood; write names, or " +
                kReadableExpressions);
    }
  };
  add(/*areExpressions=*/false);
  add(/*areExpressions=*/true);
}

void readTorchAo(FieldReader &reader, QuantizationContext &context,
                 QuantizationMethod &method) {
  const json::Value *types = reader.getObject("quant_type");
  refuseOtherFields(reader, kTorchAoTool);
  if (!types)
    return reader.reportMissing("quant_type", "an object with \"default\"");
  FieldReader all = reader.getInner("quant_type", *types);
  const json::Value *found = all.getObject("default");
  if (!found)
    return all.reportMissing("default", "an object of torchao");
  FieldReader only = all.getInner("default", *found);
  std::optional<StringRef> type = only.getString("_type");
  if (!type || !type->ends_with("FqnToConfig")) {
    method.rules.setDefault(0);
    method.read = [only, &context](int) mutable {
      return readConfig(only, context);
    };
    return;
  }
  const json::Value *data = only.getObject("_data");
  FieldReader inner = data ? only.getInner("_data", *data) : only;
  StringRef field =
      inner.has("fqn_to_config") ? "fqn_to_config" : "module_fqn_to_config";
  const json::Value *byName = inner.getObject(field);
  if (!byName)
    return inner.reportMissing(field, "an object");
  addRules(*byName, reader, method);
  method.read = [inner, field, byName, &context](int scheme) {
    const json::Member &member = byName->members[size_t(scheme)];
    FieldReader own =
        inner.getInner(field, *byName).getInner(member.name, member.value);
    return readConfig(own, context);
  };
}

} // namespace moec
