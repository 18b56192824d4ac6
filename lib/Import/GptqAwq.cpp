//===- GptqAwq.cpp - configuration of GPTQ, AWQ and AutoRound -------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "QuantizationMethods.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

/// The fields of a scheme of integers. Overrides of a module have the same.
struct Integers {
  int64_t bits = 4;
  /// Consecutive elements with one scale; -1 for a row.
  int64_t groupSize = 0;
  bool isSymmetric = true;
  bool hasColumnOrder = false;

  Scheme getScheme(Packing packing) const {
    Scheme scheme;
    OperandQuantization &weight = scheme.quantization.weight;
    setIntegerBits(scheme.quantization, bits);
    weight.scale = ScaleType::F16;
    weight.hasZeroPoint = !isSymmetric;
    weight.granularity = Granularity::Channel;
    if (groupSize != -1) {
      weight.granularity = Granularity::Group;
      weight.blockRows = 1;
      weight.blockColumns = groupSize;
    }
    scheme.quantization.packing = packing;
    // With one group per row the order has no effect.
    scheme.hasColumnOrder = hasColumnOrder && groupSize != -1;
    return scheme;
  }
};

int64_t readBits(FieldReader &reader, ArrayRef<int64_t> allowed,
                 std::optional<int64_t> fallback) {
  const json::Value *value = reader.get("bits");
  std::optional<int64_t> bits = fallback;
  if (value)
    bits = value->getInteger();
  if (bits && is_contained(allowed, *bits))
    return *bits;
  std::string expected = listNumbers(allowed);
  if (value)
    refuseValue(reader, "bits", expected, /*isRequired=*/true);
  else
    reader.reportMissing("bits", expected);
  return allowed.front();
}

/// Reads the fields of a scheme; `base` has those that are absent.
Integers readIntegers(FieldReader &reader, ArrayRef<int64_t> allowed,
                      const Integers *base = nullptr) {
  Integers result = base ? *base : Integers();
  result.bits = readBits(reader, allowed,
                         base ? std::optional(base->bits) : std::nullopt);
  const json::Value *size = reader.get("group_size");
  if (size && size->getInteger() == int64_t(-1))
    result.groupSize = -1;
  else if (size || !base)
    result.groupSize = reader.getInteger("group_size", 1, limits::kMaxWidth);
  result.isSymmetric = reader.getBoolean("sym", result.isSymmetric);
  result.hasColumnOrder = reader.getBoolean("desc_act", result.hasColumnOrder);
  return result;
}

/// The rules of `dynamic` of GPTQModel, in order: an expression with `-:`
/// leaves modules as they are, another overrides fields of their scheme.
void addOverrides(FieldReader &reader, const json::Value &overrides,
                  QuantizationMethod &method) {
  for (auto [index, member] : enumerate(overrides.members)) {
    StringRef text = member.name;
    bool isLeft = text.consume_front("-:");
    if (!isLeft)
      text.consume_front("+:");
    // Number 0 is the scheme without overrides.
    int scheme = isLeft ? ModuleRules::kNotQuantized : int(index) + 1;
    if (!method.rules.addExpression(Matching::Expression, text, scheme))
      reader.getContext().diags.error(
          reader.getContext().text, member.nameRange,
          reader.show("dynamic") + " has the expression \"" + member.name +
              "\", which cannot be understood; write " + kReadableExpressions +
              ", as \"-:.*mlp\\.gate.*\"" + reader.offerIgnoring("dynamic"));
  }
}

/// The object of a rule of `dynamic`, whose schemes begin at 1.
FieldReader getOverride(FieldReader &reader, const json::Value &overrides,
                        int scheme) {
  const json::Member &member = overrides.members[size_t(scheme) - 1];
  return reader.getInner("dynamic", overrides)
      .getInner(member.name, member.value);
}

/// Names of modules: a list of names or of lists of names, or names separated
/// by commas. Reports an error at anything else.
SmallVector<StringRef> readNames(FieldReader &reader, StringRef field) {
  using Kind = json::Value::Kind;
  SmallVector<StringRef> names;
  const json::Value *value = reader.get(field);
  if (!value)
    return names;
  if (value->kind == Kind::String)
    StringRef(value->text).split(names, ',', -1, /*KeepEmpty=*/false);
  bool isRight = value->kind == Kind::String || value->kind == Kind::Array;
  auto add = [&](const json::Value &name) {
    isRight &= name.kind == Kind::String;
    names.push_back(name.text);
  };
  for (const json::Value &element : value->elements)
    if (element.kind == Kind::Array)
      for_each(element.elements, add);
    else
      add(element);
  if (!isRight)
    reader.reportWrong(field, *value,
                       "a list of names of modules, or of lists of names",
                       /*isRequired=*/false);
  return names;
}

/// `modules_in_block_to_quantize`: the ends of names; all others stay as they
/// are.
void addQuantizedModules(FieldReader &reader, QuantizationMethod &method) {
  SmallVector<StringRef> names =
      readNames(reader, "modules_in_block_to_quantize");
  if (!names.empty())
    method.rules.setDefault(ModuleRules::kNotQuantized);
  for (StringRef name : names)
    method.rules.add(Matching::End, name.trim(), 0);
}

/// `activation` of GPTQModel: the dtype of the rows that gemms read. `mlp`
/// lists decoder layers whose rows have 8 bits although others have 4.
std::optional<OperandQuantization>
readActivation(FieldReader &reader, QuantizationContext &context) {
  const json::Value *object = reader.getObject("activation");
  if (!object || object->members.empty())
    return std::nullopt;
  constexpr StringLiteral eight = "w4afp8";
  FieldReader inner = reader.getInner("activation", *object);
  bool isEight = inner.getOneOf("mode", {eight, "w4a_nvfp4"}) == eight;
  if (const json::Value *mlp = inner.getObject("mlp")) {
    FieldReader ofMlp = inner.getInner("mlp", *mlp);
    ofMlp.getOneOf("mode", {eight});
    if (const json::Value *layers = ofMlp.getList("layers"))
      isEight |= llvm::any_of(layers->elements, [&](const json::Value &layer) {
        return layer.getInteger() == context.layer.value_or(0);
      });
    refuseOtherFields(ofMlp, "gptq");
  }
  for (StringRef field : {"attention", "global_scales", "recipe"})
    inner.markKnown(field);
  refuseOtherFields(inner, "gptq");
  if (isEight)
    return makeFp8(Granularity::Token);
  keepActivations(context, inner.show("mode"));
  return std::nullopt;
}

} // namespace

void readGptq(FieldReader &reader, QuantizationContext &context,
              QuantizationMethod &method) {
  static constexpr StringLiteral kTool = "gptq", kPlanes = "gptq_p",
                                 kMarlin = "marlin";
  // Two names of one key; Transformers writes both.
  StringRef format =
      reader.getOneOf("format", {"gptq", "gptq_v2", kPlanes, kMarlin});
  if (!reader.has("format"))
    format = reader.getOneOf("checkpoint_format",
                             {"gptq", "gptq_v2", kPlanes, kMarlin});
  else if (reader.has("checkpoint_format"))
    reader.getOneOf("checkpoint_format", {format});
  Packing packing = format == kPlanes     ? Packing::GptqPlanes
                    : format == kMarlin   ? Packing::GptqMarlin
                    : format == "gptq_v2" ? Packing::GptqV2
                                          : Packing::Gptq;
  static constexpr int64_t ofWords[] = {2, 3, 4, 8}, ofMarlin[] = {4};
  ArrayRef<int64_t> bits = packing == Packing::GptqPlanes
                               ? ArrayRef(kPackedBits)
                           : packing == Packing::GptqMarlin ? ArrayRef(ofMarlin)
                                                            : ArrayRef(ofWords);
  Integers base = readIntegers(reader, bits);
  reader.getOneOf("pack_dtype", {"int32"});
  method.rules.setDefault(0);
  const json::Value *overrides = reader.getObject("dynamic");
  if (overrides)
    addOverrides(reader, *overrides, method);
  addQuantizedModules(reader, method);
  std::optional<OperandQuantization> activation =
      readActivation(reader, context);
  if (packing == Packing::GptqMarlin)
    reader.markKnown("is_marlin_format");
  refuseOtherFields(reader, kTool);
  auto getScheme = [packing, activation](const Integers &weight) {
    Scheme scheme = weight.getScheme(packing);
    scheme.quantization.activation = activation;
    return scheme;
  };
  method.read = [&reader, base, bits, getScheme,
                 overrides](int number) -> std::optional<Scheme> {
    if (number == 0)
      return getScheme(base);
    FieldReader own = getOverride(reader, *overrides, number);
    Integers result = readIntegers(own, bits, &base);
    refuseOtherFields(own, kTool);
    return getScheme(result);
  };
}

/// Fields of GPTQModel's fp8, which an override may have too. Activations stay
/// in the layer's dtype.
static Scheme readReciprocals(FieldReader &reader, const Scheme &base) {
  Scheme scheme = base;
  OperandQuantization &weight = scheme.quantization.weight;
  constexpr int64_t eight = 8;
  if (reader.has("bits") && reader.get("bits")->getInteger() != eight)
    refuseValue(reader, "bits", "8", /*isRequired=*/true);
  if (reader.has("group_size") &&
      reader.get("group_size")->getInteger() != int64_t(-1))
    refuseValue(reader, "group_size", "-1");
  for (StringRef field : {"format", "checkpoint_format", "fmt"})
    if (const json::Value *format = reader.get(field)) {
      if (format->text == "float8_e5m2")
        weight.storage = StorageType::Fp8E5M2;
      else if (format->text != "float8_e4m3fn")
        refuseValue(reader, field, "\"float8_e4m3fn\" or \"float8_e5m2\"",
                    /*isRequired=*/true);
    }
  const json::Value *semantics = reader.get("weight_scale_semantics");
  if (semantics && semantics->text != "inverse")
    refuseValue(reader, "weight_scale_semantics", "\"inverse\"",
                /*isRequired=*/true);
  // Floats are not packed in words.
  reader.markKnown("pack_dtype");
  if (reader.has("weight_scale_method")) {
    StringRef of =
        reader.getOneOf("weight_scale_method", {"row", "tensor", "block"});
    StorageType storage = weight.storage;
    weight = makeFp8(of == "row" ? Granularity::Channel : Granularity::Tensor);
    weight.storage = storage;
    if (of == "block")
      readBlockSize(reader, weight);
  }
  refuseOtherFields(reader, "fp8 of GPTQModel");
  return scheme;
}

void readGptqModelFp8(FieldReader &reader, QuantizationMethod &method) {
  Scheme usual{
      {makeFp8(Granularity::Channel), std::nullopt, Packing::Reciprocals}};
  method.rules.setDefault(0);
  const json::Value *overrides = reader.getObject("dynamic");
  if (overrides)
    addOverrides(reader, *overrides, method);
  Scheme base = readReciprocals(reader, usual);
  method.read = [&reader, base,
                 overrides](int number) -> std::optional<Scheme> {
    if (number == 0)
      return base;
    FieldReader own = getOverride(reader, *overrides, number);
    return readReciprocals(own, base);
  };
}

/// Versions of AWQ's kernels, whose weights differ in their order.
static constexpr std::pair<StringLiteral, Packing> kAwqVersions[] = {
    {"gemm", Packing::Awq},
    {"gemv", Packing::AwqGemv},
    {"gemv_fast", Packing::AwqGemvFast},
    {"llm-awq", Packing::LlmAwq},
    {"marlin", Packing::AwqMarlin}};

void readAwq(FieldReader &reader, QuantizationContext &,
             QuantizationMethod &method) {
  static constexpr int64_t bits[] = {4};
  Integers base = readIntegers(reader, bits);
  base.isSymmetric = base.hasColumnOrder = false;
  // The words have zero points either way: all 8 in a symmetric file.
  reader.getBoolean("zero_point", true);
  reader.getOneOf("pack_dtype", {"int32"});
  // Also written in capitals, and by GPTQModel as `checkpoint_format`.
  Packing packing = Packing::Awq;
  StringRef stated;
  for (StringRef field : {"version", "format", "checkpoint_format"})
    if (const json::Value *version = reader.get(field)) {
      const auto *known = llvm::find_if(kAwqVersions, [&](const auto &one) {
        return one.first.equals_insensitive(version->text);
      });
      if (known != std::end(kAwqVersions) &&
          (stated.empty() || packing == known->second)) {
        packing = known->second;
        stated = field;
      } else if (known != std::end(kAwqVersions)) {
        reader.error(field, reader.show(field) + " = " +
                                describeValue(*version) +
                                " is another version than " +
                                reader.show(stated) + " states; keep one");
      } else {
        reader.error(field, reader.show(field) + " = " +
                                describeValue(*version) +
                                " is not supported; \"gemm\" is: quantize the "
                                "model again with this version");
      }
    }
  method.rules.setDefault(0);
  const json::Value *overrides = reader.getObject("dynamic");
  if (overrides)
    addOverrides(reader, *overrides, method);
  addQuantizedModules(reader, method);
  refuseOtherFields(reader, "awq");
  method.read = [&reader, base, overrides, packing](int number) {
    Integers result = base;
    if (number > 0) {
      FieldReader own = getOverride(reader, *overrides, number);
      result = readIntegers(own, bits, &base);
      result.isSymmetric = result.hasColumnOrder = false;
      refuseOtherFields(own, "awq");
    }
    return result.getScheme(packing);
  };
}

/// `packing_format` of AutoRound and the packing of its words: the name of a
/// tool, or AutoRound's own, which stores zero points as they are.
static std::optional<Packing> findAutoRoundPacking(StringRef format) {
  if (!format.consume_front("auto_round"))
    return std::nullopt;
  format.consume_front(":");
  if (format.contains("awq"))
    return Packing::Awq;
  if (format.contains("gptq") && !format.contains("gptqmodel"))
    return Packing::Gptq;
  bool isOwn = format.empty() || format.contains("gptqmodel") ||
               format.contains("exllama") || format.contains("triton");
  return isOwn ? std::optional(Packing::GptqV2) : std::nullopt;
}

/// Overrides, and the blocks outside of which modules stay as they are. Scheme
/// 0 is that of the model, scheme i + 1 the override i of the object returned.
static const json::Value *addAutoRoundRules(FieldReader &reader,
                                            QuantizationMethod &method) {
  // Overrides by name, by the end of a name, or by an expression.
  const json::Value *overrides = reader.getObject("extra_config");
  if (overrides)
    for (auto [index, member] : enumerate(overrides->members)) {
      const json::Member *own = member.value.find("bits");
      constexpr int64_t half = 16;
      bool isLeft = own && own->value.getInteger().value_or(0) >= half;
      int scheme = isLeft ? ModuleRules::kNotQuantized : int(index) + 1;
      StringRef text = member.name;
      method.rules.add(Matching::End, text, scheme);
      if (text.find_first_of("*+?^$()[]{}|\\") != StringRef::npos)
        if (!method.rules.addExpression(Matching::Search, text, scheme))
          reader.getContext().diags.error(
              reader.getContext().text, member.nameRange,
              reader.show("extra_config") + " has the expression \"" + text +
                  "\", which cannot be understood; write names, or " +
                  kReadableExpressions + reader.offerIgnoring("extra_config"));
    }
  method.rules.setDefault(0);
  for (StringRef name : {"block_name_to_quantize", "to_quant_block_names"}) {
    SmallVector<StringRef> names = readNames(reader, name);
    if (names.empty())
      continue;
    method.rules.setDefault(ModuleRules::kNotQuantized);
    for (StringRef block : names)
      method.rules.add(Matching::Parent, block.trim(), 0);
  }
  return overrides;
}

/// Floats of AutoRound, in tensors like those of compressed-tensors.
static void readAutoRoundFloats(FieldReader &reader,
                                QuantizationContext &context,
                                QuantizationMethod &method) {
  static constexpr StringLiteral kTool = "auto-round";
  static constexpr int64_t four = 4, eight = 8;
  StringRef type = reader.getOneOf("data_type", {"nv_fp", "mx_fp"});
  bool isNv = type == "nv_fp";
  reader.getOneOf("packing_format", {("auto_round:" + type).str()});
  static constexpr int64_t bits[] = {four, eight};
  auto allowed = ArrayRef(bits).take_front(isNv ? 1 : 2);
  int64_t base = readBits(reader, allowed, std::nullopt);
  int64_t group = isNv ? 16 : 32;
  const json::Value *size = reader.get("group_size");
  if (size && size->getInteger() != group)
    refuseValue(reader, "group_size", Twine(group), /*isRequired=*/true);
  // Floats are symmetric.
  reader.markKnown("sym");
  int64_t ofActivations = reader.getInteger("act_bits", 1, 32, 16);
  if (ofActivations == four)
    keepActivations(context, reader.show("act_bits"));
  else if (ofActivations < 16 && (ofActivations != eight || isNv))
    refuseValue(reader, "act_bits", "4, 8 (mx_fp) or 16");
  const json::Value *overrides = addAutoRoundRules(reader, method);
  refuseOtherFields(reader, kTool);
  auto getScheme = [isNv, ofActivations](int64_t bits) {
    QuantizationSpec eights = getMeaning("mxfp8", Packing::Modules);
    QuantizationSpec result =
        bits == eight
            ? eights
            : getMeaning(isNv ? "nvfp4" : "mxfp4", Packing::CompressedFp4);
    result.activation.reset();
    if (ofActivations == eight)
      result.activation = eights.activation;
    return Scheme{result};
  };
  method.read = [&reader, allowed, base, getScheme,
                 overrides](int number) -> std::optional<Scheme> {
    if (number == 0)
      return getScheme(base);
    const json::Member &member = overrides->members[size_t(number) - 1];
    FieldReader own = reader.getInner("extra_config", *overrides)
                          .getInner(member.name, member.value);
    int64_t bits = readBits(own, allowed, base);
    own.markKnown("act_bits");
    refuseOtherFields(own, kTool);
    return getScheme(bits);
  };
}

void readAutoRound(FieldReader &reader, QuantizationContext &context,
                   QuantizationMethod &method) {
  static constexpr StringLiteral kTool = "auto-round";
  if (reader.getOneOf("data_type", {"int", "nv_fp", "mx_fp"}) != "int")
    return readAutoRoundFloats(reader, context, method);
  // Activations of 16 bits and more stay as they are.
  if (reader.getInteger("act_bits", 1, 32, 16) < 16)
    refuseValue(reader, "act_bits", "16");
  StringRef field = "packing_format";
  const json::Value *format = reader.get(field);
  std::optional<Packing> packing = findAutoRoundPacking(
      format ? StringRef(format->text) : "auto_round:auto_gptq");
  if (!packing)
    refuseValue(reader, field,
                "\"auto_round:auto_gptq\", \"auto_round:gptqmodel\" or "
                "\"auto_round:auto_awq\"",
                /*isRequired=*/true);
  Packing known = packing.value_or(Packing::Gptq);
  bool isAwq = known == Packing::Awq;
  static constexpr int64_t ofAwq[] = {4};
  ArrayRef<int64_t> bits = isAwq ? ofAwq : ArrayRef(kPackedBits);
  Integers base = readIntegers(reader, bits);
  const json::Value *overrides = addAutoRoundRules(reader, method);
  refuseOtherFields(reader, kTool);
  method.read = [&reader, base, bits, known, isAwq,
                 overrides](int number) -> std::optional<Scheme> {
    Integers result = base;
    if (number > 0) {
      const json::Member &member = overrides->members[size_t(number) - 1];
      FieldReader own = reader.getInner("extra_config", *overrides)
                            .getInner(member.name, member.value);
      own.getOneOf("data_type", {"int"});
      own.markKnown("act_bits");
      result = readIntegers(own, bits, &base);
      refuseOtherFields(own, kTool);
    }
    // AWQ's words always come with zero points.
    if (isAwq)
      result.isSymmetric = false;
    return result.getScheme(known);
  };
}

} // namespace moec
