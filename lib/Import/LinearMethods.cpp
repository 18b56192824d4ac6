//===- LinearMethods.cpp - tools that replace linear modules --------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tools whose configuration has few fields, because the tensors of a module say
// the rest. The loader decodes most of them (getDecodedForm).
//
// Sources: the configurations of Transformers' utils/quantization_config.py,
// BaseQuantizeConfig of hqq, GGUFConfig of GPTQModel.
//
//===----------------------------------------------------------------------===//

#include "QuantizationMethods.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace moec {

static Scheme makeDecoded(Packing packing) {
  Scheme scheme;
  scheme.quantization.packing = packing;
  return scheme;
}

static void keepRows(QuantizationContext &context, StringRef shown) {
  context.remarks.push_back(shown.str() +
                            " quantizes activations in a call; they stay in " +
                            stringify(context.dtype).str());
}

/// One scheme of HQQ: `weight_quant_params`. Quantized scales are objects,
/// which safetensors files do not have.
static Scheme readHqqScheme(FieldReader &reader) {
  static constexpr int64_t allowed[] = {1, 2, 3, 4, 8};
  Scheme scheme = makeDecoded(Packing::Hqq);
  for (StringRef field : {"scale_quant_params", "zero_quant_params"})
    if (const json::Value *value = reader.get(field))
      reader.error(field, reader.show(field) + " = " + describeValue(*value) +
                              " is not supported: scales and zeros are numbers "
                              "in files; quantize the model without it");
  reader.markKnown("offload_meta");
  const json::Value *object = reader.getObject("weight_quant_params");
  FieldReader weight =
      object ? reader.getInner("weight_quant_params", *object) : reader;
  std::optional<int64_t> bits;
  if (const json::Value *value = weight.get("nbits"))
    bits = value->getInteger();
  if (!bits || !is_contained(allowed, *bits))
    refuseValue(weight, "nbits", listNumbers(allowed), /*isRequired=*/true);
  scheme.quantization.storedBits = bits.value_or(allowed[0]);
  for (StringRef field : {"axis", "channel_wise", "group_size", "optimize",
                          "round_zero", "view_as_float"})
    weight.markKnown(field);
  refuseOtherFields(weight, "hqq");
  if (object)
    refuseOtherFields(reader, "hqq");
  return scheme;
}

void readHqq(FieldReader &reader, QuantizationContext &,
             QuantizationMethod &method) {
  const json::Value *object = reader.getObject("quant_config");
  refuseOtherFields(reader, "hqq");
  if (!object)
    return reader.reportMissing("quant_config", "an object of HQQ");
  auto isScheme = [](const json::Value &value) {
    return value.find("weight_quant_params") || value.find("nbits");
  };
  if (isScheme(*object)) {
    method.rules.setDefault(0);
    method.read = [&reader, object](int) {
      FieldReader inner = reader.getInner("quant_config", *object);
      return std::optional(readHqqScheme(inner));
    };
    return;
  }
  // Tags are names without "model", "layers" and numbers.
  for (auto [index, member] : enumerate(object->members)) {
    SmallVector<StringRef> components;
    StringRef(member.name).split(components, '.');
    std::string pattern = "(^|\\.)" + join(components, "\\.([0-9]+\\.)*") + "$";
    if (!method.rules.addExpression(
            Matching::Search, pattern,
            member.value.isNull() ? ModuleRules::kNotQuantized : int(index)))
      reader.getContext().diags.error(
          reader.getContext().text, member.nameRange,
          reader.show("quant_config") + " has the tag \"" + member.name +
              "\", which names no module; write it as in "
              "\"mlp.experts.gate_proj\"");
  }
  method.read = [&reader, object](int number) {
    const json::Member &member = object->members[size_t(number)];
    FieldReader own = reader.getInner("quant_config", *object)
                          .getInner(member.name, member.value);
    return std::optional(readHqqScheme(own));
  };
}

void readAqlm(FieldReader &reader, QuantizationContext &,
              QuantizationMethod &method) {
  // Names of weights, or of modules.
  if (const json::Value *names =
          reader.getStrings("linear_weights_not_to_quantize"))
    for (const json::Value &name : names->elements) {
      StringRef module = name.text;
      module.consume_back(".weight");
      method.rules.add(Matching::Components, module,
                       ModuleRules::kNotQuantized);
    }
  for (StringRef field : {"in_group_size", "out_group_size", "num_codebooks",
                          "nbits_per_codebook"})
    reader.markKnown(field);
  refuseOtherFields(reader, "aqlm");
  setOnlyScheme(method, makeDecoded(Packing::Aqlm));
}

void readBitNet(FieldReader &reader, QuantizationContext &context,
                QuantizationMethod &method) {
  bool isAuto =
      reader.getOneOf("linear_class", {"bitlinear", "autobitlinear"}) ==
      "autobitlinear";
  if (isAuto &&
      reader.getOneOf("quantization_mode", {"offline", "online"}) == "online")
    refuseValue(reader, "quantization_mode", "\"offline\"",
                /*isRequired=*/true);
  reader.markKnown("quantization_mode");
  if (reader.getBoolean("use_rms_norm", false))
    refuseValue(reader, "use_rms_norm", "false", /*isRequired=*/true);
  reader.markKnown("rms_norm_eps");
  refuseOtherFields(reader, "bitnet");
  keepRows(context, reader.show("quant_method"));
  setOnlyScheme(method,
                makeDecoded(isAuto ? Packing::AutoBitNet : Packing::BitNet));
}

void readFbgemmFp8(FieldReader &reader, QuantizationContext &context,
                   QuantizationMethod &method) {
  if (reader.has("activation_scale_ub"))
    context.remarks.push_back(reader.show("activation_scale_ub") +
                              " bounds what a row's scale is computed from; "
                              "here larger values are not clipped");
  reader.markKnown("activation_scale_ub");
  refuseOtherFields(reader, "fbgemm_fp8");
  setOnlyScheme(method, {{makeFp8(Granularity::Channel),
                          makeFp8(Granularity::Token), Packing::Modules}});
}

void readGemma(FieldReader &reader, QuantizationContext &context,
               QuantizationMethod &method) {
  static constexpr int64_t allowed[] = {2, 4, 8};
  const json::Value *overrides = reader.getObject("module_quant_configs");
  if (overrides)
    for (auto [index, member] : enumerate(overrides->members))
      if (!method.rules.addExpression(Matching::Search, member.name,
                                      int(index) + 1))
        reader.error("module_quant_configs",
                     reader.show("module_quant_configs") +
                         " has the expression \"" + member.name +
                         "\", which cannot be understood; write " +
                         kReadableExpressions);
  auto read = [](FieldReader &own, int64_t base) {
    std::optional<int64_t> bits = base;
    if (const json::Value *value = own.get("num_bits"))
      bits = value->getInteger();
    if (!bits || !is_contained(allowed, *bits))
      refuseValue(own, "num_bits", listNumbers(allowed), /*isRequired=*/true);
    Scheme scheme = makeDecoded(Packing::Gemma);
    scheme.quantization.storedBits = bits.value_or(base);
    return scheme;
  };
  Scheme base = read(reader, allowed[2]);
  reader.markKnown("quantize_embeddings");
  refuseOtherFields(reader, "gemma");
  keepRows(context, reader.show("quant_method"));
  method.rules.setDefault(0);
  method.read = [&reader, base, read,
                 overrides](int number) -> std::optional<Scheme> {
    if (number == 0)
      return base;
    const json::Member &member = overrides->members[size_t(number) - 1];
    FieldReader own = reader.getInner("module_quant_configs", *overrides)
                          .getInner(member.name, member.value);
    Scheme scheme = read(own, base.quantization.storedBits);
    refuseOtherFields(own, "gemma");
    return scheme;
  };
}

void readGptqModelGguf(FieldReader &reader, QuantizationContext &context,
                       QuantizationMethod &method) {
  // Transformers' class, which only converts a GGUF file when it is loaded.
  if (!reader.has("format"))
    return readOnLoad(reader, context, method);
  const json::Value *bits = reader.get("bits");
  StringRef format = reader.getString("format").value_or("");
  Scheme scheme = makeDecoded(Packing::GgmlBlocks);
  // "q_0", or "q_k" with a size that names a mix of types.
  format.consume_front("q_");
  StringRef kind = format.take_front(1) == "k" ? StringRef("K") : format;
  if (bits)
    scheme.quantization.storedBlocks = "q" + bits->text + "_" + kind.str();
  if (!is_contained({"q4_0", "q8_0", "q4_K", "q5_K", "q6_K"},
                    scheme.quantization.storedBlocks))
    refuseValue(reader, "format",
                "\"q_0\" of 4 or 8 bits, or \"q_k\" of 4, 5 or 6 bits",
                /*isRequired=*/true);
  for (StringRef field : {"checkpoint_format", "lm_head", "meta", "method"})
    reader.markKnown(field);
  refuseOtherFields(reader, "gguf");
  setOnlyScheme(method, scheme);
}

void readOnLoad(FieldReader &reader, QuantizationContext &context,
                QuantizationMethod &) {
  context.remarks.push_back(
      reader.show("quant_method") + " = " +
      describeValue(*reader.get("quant_method")) +
      " quantizes weights when a model is loaded; the layer has those of the "
      "checkpoint");
}

} // namespace moec
