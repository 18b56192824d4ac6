//===- GptqAwq.cpp - configuration of GPTQ and AWQ ------------------------===//
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

int64_t readBits(FieldReader &reader, ArrayRef<int64_t> allowed) {
  const json::Value *value = reader.get("bits");
  std::optional<int64_t> bits;
  if (value)
    bits = value->getInteger();
  if (bits && is_contained(allowed, *bits))
    return *bits;
  std::string expected;
  for (int64_t number : allowed)
    expected += (expected.empty() ? "" : " or ") + std::to_string(number);
  if (value)
    refuseValue(reader, "bits", expected);
  else
    reader.reportMissing("bits", expected);
  return allowed.front();
}

/// Integers with f16 scales, one per `group_size` consecutive elements or, with
/// -1, per row.
OperandQuantization readIntegers(FieldReader &reader, int64_t bits) {
  OperandQuantization weight;
  weight.storage = bits == 4 ? StorageType::Int4 : StorageType::Int8;
  weight.scale = ScaleType::F16;
  const json::Value *value = reader.get("group_size");
  if (value && value->getInteger() == int64_t(-1)) {
    weight.granularity = Granularity::Channel;
    return weight;
  }
  weight.granularity = Granularity::Group;
  weight.blockRows = 1;
  weight.blockColumns = reader.getInteger("group_size", 1, limits::kMaxWidth);
  return weight;
}

/// Requires a field to be false or absent.
void requireOff(FieldReader &reader, StringRef field) {
  if (reader.getBoolean(field, false))
    refuseValue(reader, field, "false");
}

/// Fields about the quantization run and the kernels to use, which do not
/// affect what is stored.
constexpr StringLiteral kHow[] = {
    "act_group_aware",
    "backend",
    "batch_size",
    "block_name_to_quantize",
    "cache_block_outputs",
    "damp_auto_increment",
    "damp_percent",
    "dataset",
    "disable_exllama",
    "do_fuse",
    "exllama_config",
    "fuse_max_seq_len",
    "hyb_act",
    "lm_head",
    "max_input_length",
    "meta",
    "model_file_base_name",
    "model_name_or_path",
    "model_seqlen",
    "module_name_preceding_first_block",
    "modules_to_fuse",
    "mse",
    "pad_token_id",
    "quantizer",
    "static_groups",
    "tokenizer",
    "true_sequential",
    "use_cuda_fp16",
    "use_exllama",
};

void finish(FieldReader &reader, StringRef method,
            QuantizationContext &context) {
  for (StringRef field : kHow)
    reader.markKnown(field);
  refuseOtherFields(reader, method, context.ignored);
}

} // namespace

std::optional<QuantizationSpec> readGptq(FieldReader &reader,
                                         QuantizationContext &context) {
  QuantizationSpec result;
  result.weight = readIntegers(reader, readBits(reader, {4, 8}));
  result.weight.hasZeroPoint = !reader.getBoolean("sym", true);
  // With one group per row the order has no effect.
  StringRef order = "desc_act";
  if (reader.getBoolean(order, false) &&
      result.weight.granularity == Granularity::Group &&
      !context.ignored.take(reader.getPath(order)))
    context.hasColumnOrder = true;
  reader.getOneOf("pack_dtype", {"int32"});
  requireOff(reader, "is_marlin_format");
  StringRef format = reader.getOneOf("checkpoint_format", {"gptq", "gptq_v2"});
  result.packing = format == "gptq_v2" ? Packing::GptqV2 : Packing::Gptq;
  // Overrides of the quantization by module.
  if (const json::Value *modules = reader.getObject("dynamic"))
    if (!modules->members.empty() &&
        !context.ignored.take(reader.getPath("dynamic")))
      reader.error("dynamic", reader.show("dynamic") +
                                  " is not supported; if it says nothing of "
                                  "the experts, read past it with "
                                  "--ignore-field=" +
                                  reader.getPath("dynamic"));
  finish(reader, "gptq", context);
  return result;
}

std::optional<QuantizationSpec> readAwq(FieldReader &reader,
                                        QuantizationContext &context) {
  QuantizationSpec result;
  result.weight = readIntegers(reader, readBits(reader, {4}));
  result.weight.hasZeroPoint = true;
  result.packing = Packing::Awq;
  if (!reader.getBoolean("zero_point", true))
    refuseValue(reader, "zero_point", "true");
  // Also written in capitals.
  if (const json::Value *version = reader.get("version"))
    if (!StringRef(version->text).equals_insensitive("gemm"))
      refuseValue(reader, "version", "\"gemm\"");
  finish(reader, "awq", context);
  return result;
}

} // namespace moec
