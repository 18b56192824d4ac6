//===- ModelOpt.cpp - configuration of NVIDIA's Model Optimizer -----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `quant_algo` determines everything. It is in config.json, or in a
// hf_quant_config.json beside it; a config.json may also contain that file's
// object.
//
//===----------------------------------------------------------------------===//

#include "QuantizationMethods.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

constexpr StringLiteral kMethod = "modelopt";

/// Bits of activations that stay in the layer's dtype.
enum class Activations { None, OfFour, OfEight };

/// One `quant_algo`.
struct Algorithm {
  StringLiteral name;
  QuantizationSpec meaning;
  /// Activations that are quantized and stay as they are.
  Activations left = Activations::None;
};

ArrayRef<Algorithm> getAlgorithms() {
  constexpr Packing packing = Packing::ModelOpt;
  auto makeInt8 = [] {
    OperandQuantization weight;
    weight.storage = StorageType::Int8;
    weight.granularity = Granularity::Channel;
    return weight;
  };
  constexpr int64_t side = 128;
  OperandQuantization blocks = makeFp8(Granularity::Block);
  blocks.blockRows = blocks.blockColumns = side;
  // The size of groups is that of the scales.
  OperandQuantization int4;
  int4.storage = StorageType::Int4;
  int4.granularity = Granularity::Channel;
  static const Algorithm algorithms[] = {
      {"FP8",
       {makeFp8(Granularity::Tensor),
        makeFp8(Granularity::Tensor, /*isStatic=*/true), packing}},
      {"FP8_PER_CHANNEL_PER_TOKEN",
       {makeFp8(Granularity::Channel), makeFp8(Granularity::Token), packing}},
      {"FP8_PB_WO", {blocks, std::nullopt, packing}},
      {"FP8_BLOCK_SCALES", {blocks, std::nullopt, packing}},
      {"FP8_PB_REAL", {blocks, std::nullopt, packing}},
      {"W8A16", {makeInt8(), std::nullopt, packing}},
      {"W4A16_NVFP4", getMeaning("nvfp4", packing)},
      {"NVFP4", getMeaning("nvfp4", packing), Activations::OfFour},
      // With factors of the input in the checkpoint it is `ModelOptSvd`.
      {"NVFP4_AWQ", getMeaning("nvfp4", packing), Activations::OfFour},
      {"W4A16_MXFP4", getMeaning("mxfp4", packing)},
      {"MXFP4", getMeaning("mxfp4", packing), Activations::OfFour},
      {"W4A8_MXFP4_FP8",
       {getMeaning("mxfp4").weight,
        makeFp8(Granularity::Tensor, /*isStatic=*/true), packing}},
      {"MXFP8", getMeaning("mxfp8", packing)},
      {"W4A16_AWQ", {int4, std::nullopt, Packing::ModelOptAwq}},
      {"W4A8_AWQ",
       {int4, std::nullopt, Packing::ModelOptAwq},
       Activations::OfEight},
      {"NVFP4_SVD",
       {getMeaning("nvfp4").weight, std::nullopt, Packing::ModelOptSvd},
       Activations::OfFour},
  };
  return algorithms;
}

/// Path of the field that quantizes activations: the one in `config_groups`,
/// else a path that only `--ignore-field` uses.
std::string getActivationPath(FieldReader &reader) {
  StringRef field = "input_activations";
  const json::Value *groups = reader.getObject("config_groups");
  if (groups)
    for (const json::Member &group : groups->members)
      if (group.value.isObject() && group.value.find(field))
        return reader.getPath("config_groups") + "." + group.name + "." +
               field.str();
  return reader.getPath(field);
}

/// Reads `quant_algo` and `group_size` of a whole model or of some modules.
/// `activations` is the path that leaves activations as they are.
std::optional<Scheme> readAlgorithm(FieldReader &reader,
                                    const std::string &activations,
                                    QuantizationContext &context) {
  StringRef field = "quant_algo";
  std::optional<StringRef> name = reader.getString(field);
  if (!name)
    return std::nullopt;
  const auto *algorithm =
      llvm::find_if(getAlgorithms(), [&](const Algorithm &other) {
        return name->equals_insensitive(other.name);
      });
  if (algorithm == getAlgorithms().end()) {
    SmallVector<StringRef> names;
    for (const Algorithm &other : getAlgorithms())
      names.push_back(other.name);
    names.push_back("MIXED_PRECISION");
    reader.reportWrong(field, *reader.get(field), listChoices(names));
    return std::nullopt;
  }
  QuantizationSpec result = algorithm->meaning;
  if (context.ignored.take(activations))
    result.activation.reset();
  else if (algorithm->left == Activations::OfFour)
    keepActivations(context, reader.show(field));
  else if (algorithm->left == Activations::OfEight)
    context.remarks.push_back(
        reader.show(field) +
        " quantizes activations to 8 bits, which no target multiplies with "
        "these weights; they stay in " +
        stringify(context.dtype).str());
  // Group sizes must be those of the algorithm.
  int64_t columns = result.weight.granularity == Granularity::Group ||
                            result.weight.granularity == Granularity::Block
                        ? result.weight.blockColumns
                        : 0;
  if (const json::Value *size = reader.get("group_size"))
    if (columns && size->getInteger() != columns)
      refuseValue(reader, "group_size", Twine(columns));
  return Scheme{result};
}

} // namespace

void readModelOpt(FieldReader &reader, QuantizationContext &context,
                  QuantizationMethod &method) {
  std::string activations = getActivationPath(reader);
  const json::Value *algorithm = reader.get("quant_algo");
  bool isMixed =
      algorithm &&
      StringRef(algorithm->text).equals_insensitive("MIXED_PRECISION");
  if (!isMixed) {
    method.rules.setDefault(0);
    method.read = [&reader, &context, activations](int) {
      return readAlgorithm(reader, activations, context);
    };
    reader.markKnown("group_size");
    refuseOtherFields(reader, kMethod);
    return;
  }
  // Modules, or the parents of modules, with their own algorithm; patterns come
  // after names.
  const json::Value *layers = reader.getObject("quantized_layers");
  if (!layers) {
    reader.reportMissing("quantized_layers",
                         "an object with the algorithm of each module");
    return;
  }
  for (bool arePatterns : {false, true})
    for (auto [index, member] : enumerate(layers->members))
      if (StringRef(member.name).contains('*') == arePatterns)
        method.rules.add(arePatterns ? Matching::ParentGlob : Matching::Parent,
                         member.name, int(index));
  method.read = [&reader, &context, activations, layers](int number) {
    const json::Member &member = layers->members[size_t(number)];
    FieldReader module = reader.getInner("quantized_layers", *layers)
                             .getInner(member.name, member.value);
    std::optional<Scheme> scheme = readAlgorithm(module, activations, context);
    refuseOtherFields(module, kMethod);
    return scheme;
  };
  reader.markKnown("group_size");
  refuseOtherFields(reader, kMethod);
}

} // namespace moec
