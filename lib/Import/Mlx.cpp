//===- Mlx.cpp - quantization of MLX --------------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// MLX states bits, size of groups and mode of a model, and those of modules
// under their names. An affine code q stands for q * scale + bias.
//
// Sources: mlx.core.quantize, mlx_lm/utils.py; Transformers' MetalConfig.
//
//===----------------------------------------------------------------------===//

#include "QuantizationMethods.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

constexpr StringLiteral kMlx = "mlx";
constexpr int64_t kAffineBits[] = {2, 3, 4, 5, 6, 8};

/// A mode of numbers: its format, bits and size of groups.
struct MlxFormat {
  StringLiteral mode, meaning;
  int64_t bits, groupSize;
};
constexpr MlxFormat kMlxFormats[] = {{"mxfp4", "mxfp4", 4, 32},
                                     {"mxfp8", "mxfp8", 8, 32},
                                     {"nvfp4", "nvfp4", 4, 16}};

/// Fields that a module may override.
struct MlxFields {
  StringRef mode = "affine";
  int64_t bits = 0, groupSize = 0;
  bool hasGlobalScale = false;

  Scheme getScheme(Packing packing, DType dtype) const {
    for (const MlxFormat &format : kMlxFormats)
      if (format.mode == mode) {
        Scheme scheme{getMeaning(format.meaning, packing)};
        scheme.quantization.activation.reset();
        if (mode == "nvfp4")
          scheme.quantization.weight.hasGlobalScale = hasGlobalScale;
        return scheme;
      }
    Scheme scheme;
    OperandQuantization &weight = scheme.quantization.weight;
    setIntegerBits(scheme.quantization, bits);
    weight.granularity = Granularity::Group;
    weight.blockRows = 1;
    weight.blockColumns = groupSize;
    weight.hasMinimum = true;
    // Minima of signed bytes are sums, which have more digits.
    weight.scale = bits == 8 ? ScaleType::F32 : getScaleType(dtype);
    scheme.quantization.packing = packing;
    return scheme;
  }
};

void readMlxFields(FieldReader &reader, MlxFields &fields) {
  if (reader.has("mode"))
    fields.mode =
        reader.getOneOf("mode", {"affine", "mxfp4", "mxfp8", "nvfp4"});
  if (reader.has("bits"))
    fields.bits = reader.getInteger("bits", 1, 8);
  if (reader.has("group_size"))
    fields.groupSize = reader.getInteger("group_size", 1, limits::kMaxWidth);
  fields.hasGlobalScale =
      reader.getBoolean("global_scale", fields.hasGlobalScale);
  const auto *format = llvm::find_if(kMlxFormats, [&](const MlxFormat &other) {
    return other.mode == fields.mode;
  });
  if (format != std::end(kMlxFormats)) {
    if (fields.bits != format->bits)
      refuseValue(reader, "bits", Twine(format->bits), /*isRequired=*/true);
    if (fields.groupSize != format->groupSize)
      refuseValue(reader, "group_size", Twine(format->groupSize),
                  /*isRequired=*/true);
  } else if (!is_contained(kAffineBits, fields.bits)) {
    refuseValue(reader, "bits", listNumbers(kAffineBits), /*isRequired=*/true);
  }
}

} // namespace

bool statesMlx(const json::Value &value) {
  return value.isObject() && value.find("group_size") && value.find("bits") &&
         !value.find("quant_method") && !value.find("quant_algo");
}

void readMlx(FieldReader &reader, QuantizationContext &context,
             QuantizationMethod &method) {
  Packing packing = reader.has("quant_method") ? Packing::Metal : Packing::Mlx;
  // Modules under their names: an object, or whether they are quantized.
  const json::Value &object = reader.getObjectValue();
  for (auto [index, member] : enumerate(object.members)) {
    bool isBoolean = member.value.kind == json::Value::Kind::Boolean;
    if (packing != Packing::Mlx || !StringRef(member.name).contains('.') ||
        !(member.value.isObject() || isBoolean))
      continue;
    reader.markKnown(member.name);
    int scheme = int(index) + 1;
    if (isBoolean)
      scheme = member.value.boolean ? 0 : ModuleRules::kNotQuantized;
    method.rules.add(Matching::Name, member.name, scheme);
  }
  method.rules.setDefault(0);
  MlxFields base;
  readMlxFields(reader, base);
  refuseOtherFields(reader, kMlx);
  method.read = [&reader, base, packing,
                 dtype = context.dtype](int number) -> std::optional<Scheme> {
    if (number == 0)
      return base.getScheme(packing, dtype);
    const json::Member &member =
        reader.getObjectValue().members[size_t(number) - 1];
    FieldReader own = reader.getInner(member.name, member.value);
    MlxFields fields = base;
    readMlxFields(own, fields);
    refuseOtherFields(own, kMlx);
    return fields.getScheme(packing, dtype);
  };
}

} // namespace moec
